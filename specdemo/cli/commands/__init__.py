"""One file a command: SUMMARY, `add_arguments(parser)` and `run(options)`, which returns the exit status."""
