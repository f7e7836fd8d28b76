"""Guessing what the target will say next: one method, one file, one protocol."""
