"""Work of several runs: races, batches, drafts of all methods."""
