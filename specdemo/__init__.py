"""Speculative decoding, visible, provable and fast."""

__version__ = "0.1.0"
