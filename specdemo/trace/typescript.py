"""What the page's scripts know of events, made from `shapes.py`: TypeScript declarations and the rules to check a line by."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from typing import Any

from specdemo.trace.codec import NAMES, READABLE
from specdemo.trace.events import LARGEST_FILE, MOST_ITEMS
from specdemo.trace.shapes import (
    DEEPEST,
    EVENTS,
    PARTS,
    Flag,
    Free,
    Many,
    Member,
    Number,
    Part,
    Row,
    Shape,
    Text,
)

HEAD = "// Generated from specdemo/trace/events.py by `python -m specdemo.cli.docs`; do not edit."


def declarations() -> str:
    """An interface for each event and its parts, a union of strings for each enumeration.

    A field that has a default or may be None may be missing in a line, so it is optional.
    """
    shapes = (member.shape for known in PARTS.values() for member in known.values())
    enums = dict.fromkeys(s.enum for s in shapes if isinstance(s, Text) and s.enum)
    union = " | ".join(cls.__name__ for cls in NAMES)
    blocks = [*map(_enumeration, enums), *map(_interface, PARTS)]
    return "\n\n".join((HEAD, *blocks, f"export type Event = {union};")) + "\n"


def rules() -> str:
    """The module that assets/view/core/check.js checks events by."""
    known = {
        "events": {name: cls.__name__ for name, cls in EVENTS.items()},
        "schemas": READABLE,
        "largestFile": LARGEST_FILE,
        "mostItems": MOST_ITEMS,
        "deepest": DEEPEST,
    }
    parts = [
        "\n".join((f"    {cls.__name__}: {{", *_rules(members), "    },"))
        for cls, members in PARTS.items()
    ]
    lines = [f"  {name}: {json.dumps(value)}," for name, value in known.items()]
    return "\n".join(
        (HEAD, "", "export const RULES = {", *lines, "  parts: {", *parts, "  },", "};\n")
    )


def _rules(members: dict[str, Member]) -> list[str]:
    return [
        f"      {name}: {json.dumps({**_true(required=m.required, empty=m.empty), **_rule(m.shape)})},"
        for name, m in members.items()
    ]


def _true(**facts: bool) -> dict[str, bool]:
    return {name: fact for name, fact in facts.items() if fact}


def _rule(shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": type(shape).__name__, "wanted": shape.wanted}
    match shape:
        case Text():
            found |= {"texts": shape.texts} if shape.texts else {}
        case Number():
            found |= {"low": shape.low, "high": shape.high, **_true(whole=shape.whole)}
        case Many():
            found |= {"item": _rule(shape.item)}
        case Row():
            found |= {"items": [_rule(item) for item in shape.items]}
        case Part():
            found |= {"part": shape.cls.__name__}
    return found


def _enumeration(cls: type[StrEnum]) -> str:
    values = " | ".join(f'"{member.value}"' for member in cls)
    return f"{_comment(cls)}\nexport type {cls.__name__} = {values};"


def _interface(cls: type[Any]) -> str:
    lines = [f'  type: "{NAMES[cls]}";'] if cls in NAMES else []
    for name, member in PARTS[cls].items():
        lines.append(f"  {name}{'' if member.required else '?'}: {_type(member.shape)};")
    return "\n".join((_comment(cls), f"export interface {cls.__name__} {{", *lines, "}"))


def _type(shape: Shape) -> str:
    match shape:
        case Text():
            return shape.enum.__name__ if shape.enum else "string"
        case Number():
            return "number"
        case Flag():
            return "boolean"
        case Free():
            return "Record<string, any>"
        case Many():
            return f"{_type(shape.item)}[]"
        case Row():
            return f"[{', '.join(map(_type, shape.items))}]"
        case Part():
            return shape.cls.__name__


def _comment(cls: type[Any]) -> str:
    return f"/** {(inspect.getdoc(cls) or '').partition(chr(10))[0]} */"
