"""TypeScript declarations of the events in their JSON form, made from the dataclasses of `events.py`."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from specdemo.trace import events
from specdemo.trace.codec import NAMES

HEAD = "// Generated from specdemo/trace/events.py by `python -m specdemo.cli.docs`; do not edit."
SIMPLE: dict[object, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    object: "any",
}


def declarations() -> str:
    """An interface for each event and its parts, a union of strings for each enumeration.

    A field that has a default or may be None may be missing in a line, so it is optional.
    """
    found = [cls for _, cls in inspect.getmembers(events, inspect.isclass)]
    own = [cls for cls in found if cls.__module__ == events.__name__ and cls is not events.Trace]
    own.sort(key=lambda cls: inspect.getsourcelines(cls)[1])
    blocks = [_enumeration(c) if issubclass(c, StrEnum) else _interface(c) for c in own]
    union = " | ".join(cls.__name__ for cls in NAMES)
    return "\n\n".join((HEAD, *blocks, f"export type Event = {union};")) + "\n"


def _enumeration(cls: type[StrEnum]) -> str:
    values = " | ".join(f'"{member.value}"' for member in cls)
    return f"{_comment(cls)}\nexport type {cls.__name__} = {values};"


def _interface(cls: type[Any]) -> str:
    hints = get_type_hints(cls)
    lines = [f'  type: "{NAMES[cls]}";'] if cls in NAMES else []
    lines += [f"  {_member(field, hints[field.name])}" for field in fields(cls)]
    return "\n".join((_comment(cls), f"export interface {cls.__name__} {{", *lines, "}"))


def _member(field: Field[Any], hint: object) -> str:
    default = field.default is not MISSING or field.default_factory is not MISSING
    required = not default and NoneType not in get_args(hint)
    return f"{field.name}{'' if required else '?'}: {_type(hint)};"


def _type(hint: object) -> str:
    if hint in SIMPLE:
        return SIMPLE[hint]
    if is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return hint.__name__  # type: ignore[union-attr]
    parts = get_args(hint)
    if isinstance(hint, UnionType):  # what is None is left out of a line
        return " | ".join(_type(part) for part in parts if part is not NoneType)
    if get_origin(hint) is dict:
        return f"Record<{_type(parts[0])}, {_type(parts[1])}>"
    if get_origin(hint) is tuple and parts[-1] is Ellipsis:
        return f"{_type(parts[0])}[]"
    if get_origin(hint) is tuple:
        return f"[{', '.join(_type(part) for part in parts)}]"
    raise TypeError(f"no TypeScript for {hint}")


def _comment(cls: type[Any]) -> str:
    return f"/** {(inspect.getdoc(cls) or '').partition(chr(10))[0]} */"
