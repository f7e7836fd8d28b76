"""Interface strings, `assets/words/LANGUAGE/PART.json`, and the folder of all assets: next to the package, or inside it in a wheel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

_PACKAGE = Path(__file__).resolve().parents[1]
ASSETS = next(
    folder for folder in (_PACKAGE / "assets", _PACKAGE.parent / "assets") if folder.is_dir()
)


Json: TypeAlias = dict[str, Any]
"""An object of a JSON or TOML file."""

JsonView: TypeAlias = Mapping[str, Any]
"""A `Json` that is only read."""

WORDS = ASSETS / "words"
ENGLISH = "en"  # the language of the program; other languages may lack strings


def languages() -> list[str]:
    """Return the names of all languages except English."""
    return sorted(folder.name for folder in WORDS.iterdir() if folder.name != ENGLISH)


def parts(language: str = ENGLISH) -> list[str]:
    """Return the names of a language's files without suffix."""
    return sorted(file.stem for file in (WORDS / language).glob("*.json"))


@cache
def load(part: str, language: str = ENGLISH) -> Json:
    """Read the strings of one part. They are shared: do not change them."""
    loaded: Json = json.loads((WORDS / language / f"{part}.json").read_text(encoding="utf-8"))
    return loaded


def strings(part: str) -> SimpleNamespace:
    """Return the English strings of one part as attributes: `strings("race").LEAD`."""
    return SimpleNamespace(**load(part))


def flat(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each string of nested values with its path, such as `/VIEW/phase/done`."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from flat(item, f"{path}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from flat(item, f"{path}/{index}")
