"""Every word of the page, in one place: a module a language, and in it a section a part of the page."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

from specdemo.ui.words import en
from specdemo.ui.words.en import *  # noqa: F403 - English is what the page is built with


def languages() -> list[str]:
    """Languages beside English: one folder each, found by its name."""
    found = pkgutil.iter_modules(importlib.import_module(__name__).__path__)
    return sorted(info.name for info in found if info.ispkg and info.name != "en")


def missing(language: str) -> list[str]:
    """What a language does not say yet: the paths of English texts, a part's name before each."""
    said = parts(importlib.import_module(f"{__name__}.{language}"))
    return [
        f"{part.removeprefix('.')}{path}"
        for part in parts()
        for path in set(texts(part, "en")) - set(texts(part, language) if part in said else ())
    ]


def parts(package: ModuleType = en) -> list[str]:
    """Names of the modules of a language, without the language's own: "" is the page's, then `lab` and so on."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return ["", *(f".{info.name.removeprefix(package.__name__ + '.')}" for info in found)]


def texts(part: str, language: str) -> dict[str, str]:
    """Every text of a part by its path, such as `VIEW/phase/done`."""
    module = importlib.import_module(f"specdemo.ui.words.{language}{part}")
    values = {
        name: value
        for name, value in vars(module).items()
        if re.match("[A-Z]", name) and name.isupper()
    }
    return dict(_flat("", values))


def translations(language: str) -> dict[str, str]:
    """English texts and what they mean in a language, for the parts that the language has."""
    known: dict[str, str] = {}
    for part in parts(importlib.import_module(f"specdemo.ui.words.{language}")):
        english, other = texts(part, "en"), texts(part, language)
        said = ((text, other.get(path, text)) for path, text in english.items())
        known |= {text: meaning for text, meaning in said if meaning != text}
    return known


def _flat(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(f"{path}/{name}", item)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _flat(f"{path}/{place}", item)
