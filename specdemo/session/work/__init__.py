"""Several runs with one question: races, experiments, batches, drafts side by side."""
