"""Loads models as pairs, and describes published drafters and devices."""
