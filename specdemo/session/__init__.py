"""The door to the engine: one studio a process, one conversation a visitor."""
