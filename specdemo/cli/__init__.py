"""The command line: `specdemo COMMAND`, also as `python -m specdemo COMMAND`."""
