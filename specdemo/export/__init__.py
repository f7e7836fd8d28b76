"""Runs as tables and as one self-contained page."""
