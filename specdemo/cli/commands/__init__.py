"""The functions of the commands that `commands.toml` lists; each returns the exit status."""
