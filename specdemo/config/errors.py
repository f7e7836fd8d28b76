"""Errors for users: a code and values. Their sentences are in `assets/words/LANGUAGE/errors.json`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from specdemo.config.strings import load


class Phrase:
    """Part of an error's sentence that is translated on its own, such as a range of values."""

    def __init__(self, code: str, /, **values: object) -> None:
        self.code = code
        self.values = values

    def __str__(self) -> str:
        template: str = load("errors")[self.code]
        return template.format_map(self.values)


class UserError(Exception):
    """An error with three sentences: the failure, its limits and the remedy. `str` returns the English ones.

    code: key in `errors.json`; values: inserted into its sentences
    """

    def __init__(self, code: str, /, **values: object) -> None:
        super().__init__(code)
        self.code = code
        self.values = values

    @property
    def message(self) -> str:
        """The failure."""
        return self._sentence("message")

    @property
    def unaffected(self) -> str:
        """Everything that the failure did not change; may be empty."""
        return self._sentence("unaffected")

    @property
    def advice(self) -> str:
        """The remedy; may be empty."""
        return self._sentence("advice")

    @property
    def sentences(self) -> list[str]:
        """The three sentences without empty ones."""
        return [one for one in (self.message, self.unaffected, self.advice) if one]

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def __reduce__(self) -> tuple[Callable[[], UserError], tuple[()]]:
        """Let `pickle` copy the error to another process: of a subclass as a UserError, and a value that is no phrase as text."""
        values = {
            name: value if isinstance(value, Phrase) else str(value)
            for name, value in self.values.items()
        }
        return partial(UserError, self.code, **values), ()

    def _sentence(self, part: str) -> str:
        template: str = load("errors")[self.code].get(part, "")
        return template.format_map(self.values)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; its class for an error without text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def system_error(error: OSError) -> UserError:
    """Return an error of the operating system, such as a full disk, as sentences."""
    reason = error.strerror or error
    if error.filename is None:
        return UserError("cli.system_error", reason=reason)
    return UserError("cli.file_error", path=error.filename, reason=reason)
