"""Work of several runs: races, experiments, batches, drafts of all methods."""
