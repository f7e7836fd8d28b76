"""Errors with any sentences, for tests."""

from specdemo.config.errors import UserError


def reported(message: str, unaffected: str = "", advice: str = "") -> UserError:
    return UserError("run.reported", message=message, unaffected=unaffected, advice=advice)
