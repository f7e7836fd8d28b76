"""Speculative decoding, visible, provable and fast."""

__version__ = "0.2.0"
