"""Errors that a user reads: what happened, what is unharmed, what to do."""

from __future__ import annotations


class UserError(Exception):
    """An error with a remedy. `message`, `unharmed` and `advice` are whole sentences."""

    def __init__(self, message: str, *, unharmed: str = "", advice: str = "") -> None:
        super().__init__(" ".join(part for part in (message, unharmed, advice) if part))
        self.message = message
        self.unharmed = unharmed
        self.advice = advice
