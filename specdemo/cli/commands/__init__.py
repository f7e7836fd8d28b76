"""One file a command: `add_arguments(parser)` and `run(options)`, which returns the exit status."""
