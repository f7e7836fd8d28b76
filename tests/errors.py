"""Errors with any sentences, for tests."""

from __future__ import annotations

from specdemo.config.errors import UserError


def reported(message: str, unaffected: str = "", advice: str = "") -> UserError:
    """Return an error with the given sentences."""
    return UserError("run.reported", message=message, unaffected=unaffected, advice=advice)
