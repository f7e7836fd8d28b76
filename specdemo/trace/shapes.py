"""What each field of an event may hold, read from the dataclasses of `events.py`: the one table of rules for every reader."""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from specdemo.trace.events import (
    MOST_ITEMS,
    Drafted,
    OneOf,
    Range,
    RunFailed,
    RunFinished,
    RunStarted,
    Verified,
)

EVENTS: dict[str, type[Any]] = {
    "started": RunStarted,
    "drafted": Drafted,
    "verified": Verified,
    "finished": RunFinished,
    "failed": RunFailed,
}
DEEPEST = 32  # levels of lists and objects in a field that may hold anything
HALF = re.compile("[\ud800-\udfff]")  # of a character: it cannot be written as UTF-8


@dataclass(frozen=True, slots=True)
class Text:
    """texts: the only ones allowed; empty where any is. enum: the class that they are values of"""

    texts: tuple[str, ...] = ()
    enum: type[StrEnum] | None = None

    @property
    def wanted(self) -> str:
        """What must stand there, in words."""
        return f"one of {', '.join(self.texts)}" if self.texts else "a text of whole characters"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON has this shape."""
        if type(value) is not str:
            return False
        return value in self.texts if self.texts else value.isascii() or not HALF.search(value)


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number between two others, both included; truth values are none."""

    low: float
    high: float
    whole: bool

    @property
    def wanted(self) -> str:
        """What must stand there, in words."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {_short(self.low)} to {_short(self.high)}"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON has this shape."""
        kind = type(value)
        if kind is float:
            return self.low <= value <= self.high and not (self.whole and value % 1)  # type: ignore[operator]
        return kind is int and self.low <= value <= self.high  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    wanted: str = "true or false"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON has this shape."""
        return isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Free:
    """An object of anything, at most `DEEPEST` levels deep."""

    wanted: str = f"an object of at most {DEEPEST} levels"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON has this shape; every number in it is finite, and every character whole."""
        return isinstance(value, dict) and _is_plain(value, DEEPEST)


@dataclass(frozen=True, slots=True)
class Many:
    """A list of at most `MOST_ITEMS` values of one shape."""

    item: Shape
    wanted: str = f"a list of at most {MOST_ITEMS} items"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON is such a list, whatever its items are."""
        return isinstance(value, list) and len(value) <= MOST_ITEMS


@dataclass(frozen=True, slots=True)
class Row:
    """A list of a fixed length, each item of its own shape."""

    items: tuple[Shape, ...]

    @property
    def wanted(self) -> str:
        """What must stand there, in words."""
        return f"a list of {len(self.items)} items"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON is such a list, whatever its items are."""
        return isinstance(value, list) and len(value) == len(self.items)


@dataclass(frozen=True, slots=True)
class Part:
    """An object whose fields are those of a dataclass."""

    cls: type[Any]
    wanted: str = "an object"

    def takes(self, value: object) -> bool:
        """Whether a value of JSON is an object, whatever its fields are."""
        return isinstance(value, dict)


Shape: TypeAlias = Text | Number | Flag | Free | Many | Row | Part


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a `Part`. required: a line may not leave it out; empty: null stands for a missing value"""

    shape: Shape
    required: bool
    empty: bool


def members(cls: type[Any]) -> dict[str, Member]:
    """The fields of a dataclass, by name."""
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for field in fields(cls):
        hint, empty = hints[field.name], False
        if get_origin(hint) in (Union, UnionType):
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
            empty = True
        default = field.default is not MISSING or field.default_factory is not MISSING
        found[field.name] = Member(_shape(hint), not (default or empty), empty)
    return found


def _shape(hint: Any) -> Shape:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, limit = parts
        if isinstance(limit, OneOf):
            return Text(limit.texts)
        if isinstance(limit, Range):
            return Number(limit.low, limit.high, whole=kind is int)
    elif origin is tuple:
        inner = tuple(_shape(part) for part in parts if part is not Ellipsis)
        return Many(inner[0]) if parts[-1] is Ellipsis else Row(inner)
    elif origin is dict:
        return Free()
    elif hint in (str, bool):
        return Text() if hint is str else Flag()
    elif is_dataclass(hint) and isinstance(hint, type):
        return Part(hint)
    elif issubclass(hint, StrEnum):
        return Text(tuple(member.value for member in hint), hint)
    raise TypeError(f"no rule for a field of {hint}")


def _is_plain(value: object, levels: int) -> bool:
    """Whether a value of JSON is of at most so many levels, with finite numbers and whole characters."""
    if isinstance(value, dict | list):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return levels > 0 and all(_is_plain(item, levels - 1) for item in inner)
    if isinstance(value, str):
        return not HALF.search(value)
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _parts() -> dict[type[Any], dict[str, Member]]:
    """The fields of every event and of all that events hold."""
    found: dict[type[Any], dict[str, Member]] = {}
    waiting = list(EVENTS.values())
    while waiting:
        cls = waiting.pop(0)
        if cls in found:
            continue
        found[cls] = members(cls)
        for member in found[cls].values():
            shape = member.shape.item if isinstance(member.shape, Many) else member.shape
            waiting += [shape.cls] if isinstance(shape, Part) else []
    return found


PARTS = _parts()
