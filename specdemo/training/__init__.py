"""Distils drafters from a target's own output."""
