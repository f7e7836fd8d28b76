"""Drafters, which predict the target's next tokens: one method, one file, one protocol."""
