"""Drafters, which predict the target's next tokens: one protocol, and an entry for each method."""
