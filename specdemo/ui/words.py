"""Interface strings of the page: `assets/words`, with the titles of recorded runs and of examples."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from specdemo.config import strings
from specdemo.config.strings import ASSETS, Json

languages = strings.languages


def __getattr__(name: str) -> Any:
    """Return a string of the page by its name: `words.RUN`."""
    try:
        return english("page")[name]
    except KeyError:
        raise AttributeError(name) from None


@cache
def english(part: str) -> Json:
    """Return the English strings of a part, including the titles of recorded runs and examples."""
    if part == "runs":
        return {
            "RUNS": _titles("runs/index.json", "runs"),
            "EXAMPLES": _titles("examples.json", "examples"),
        }
    known = strings.load(part)
    if part == "page":
        return {**known, "VIEW": {**known["VIEW"], "runs": english("runs")["RUNS"]}}
    return known


def texts(part: str, language: str) -> dict[str, str]:
    """Return every string of a part by its path, such as `/VIEW/phase/done`."""
    found = english(part) if language == strings.ENGLISH else strings.load(part, language)
    return dict(strings.flat(found))


def translations(language: str) -> dict[str, str]:
    """Return the translation of each English string that a language translates."""
    known: dict[str, str] = {}
    for part in strings.parts(language):
        translated = texts(part, language)
        pairs = ((text, translated.get(path, text)) for path, text in texts(part, "en").items())
        known |= {text: meaning for text, meaning in pairs if meaning != text}
    return known


def _titles(file: str, entries: str) -> dict[str, str]:
    listed = json.loads((ASSETS / file).read_text(encoding="utf-8"))[entries]
    return {entry["title"]: entry["title"] for entry in listed}
