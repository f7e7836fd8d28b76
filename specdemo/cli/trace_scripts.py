"""Writes the declaration of a trace for the page's scripts and for the document: types, rules to check lines, a table."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from typing import Any

from specdemo.config.strings import Json
from specdemo.trace import codec, events

HEAD = "// Generated from specdemo/trace/events.py by `python -m specdemo.cli.docs`; do not edit."
ENUMERATIONS: tuple[type[StrEnum], ...] = (
    *(events.FinishReason, events.Status, events.Origin, events.Knowledge),
)


def declarations() -> str:
    """Return an interface for each event and its parts, and a union of strings for each enumeration.

    A field that has a default or may be None may be missing in a line, so it is optional.
    """
    parts = {name: part for name, part in codec.json_schema().items() if "properties" in part}
    blocks = [
        f"{_comment(cls)}\nexport type {cls.__name__} = {_union(cls)};" for cls in ENUMERATIONS
    ]
    blocks += [_interface(name, part) for name, part in parts.items()]
    union = " | ".join(cls.__name__ for cls in events.EVENTS.values())
    return "\n\n".join((HEAD, *blocks, f"export type Event = {union};")) + "\n"


def rules() -> str:
    """Return the module by which assets/view/core/check.js checks events: JSON Schema, and the expected values in words."""
    constants = {
        "events": {name: cls.__name__ for name, cls in events.EVENTS.items()},
        "schema": events.SCHEMA_VERSION,
        "largestFile": events.LARGEST_FILE,
        "deepest": events.DEEPEST,
    }
    lines = [
        *(f"  {name}: {json.dumps(value)}," for name, value in constants.items()),
        "  parts: {",
    ]
    for name, part in codec.json_schema().items():
        if "properties" in part:
            rows = {
                field: {**_optional(part, field), **_rule(value)}
                for field, value in part["properties"].items()
            }
            lines.append(f"    {name}: {json.dumps(rows)},")
    return "\n".join((HEAD, "", "export const RULES = {", *lines, "  },", "};\n"))


def events_table() -> str:
    rows = [
        f"| `{name}` | {_summary(cls)} | {', '.join(f'`{field}`' for field in _fields(cls))} |"
        for name, cls in events.EVENTS.items()
    ]
    return "\n".join(("| type | meaning | fields |", "|---|---|---|", *rows))


def _fields(cls: type[Any]) -> list[str]:
    return list(codec.json_schema()[cls.__name__]["properties"])


def _optional(part: Json, field: str) -> dict[str, bool]:
    """Return whether a line must contain a field, and whether null may replace it."""
    nullable = "anyOf" in part["properties"][field]
    required = field in part.get("required", ()) and not nullable
    return {**({"required": True} if required else {}), **({"nullable": True} if nullable else {})}


def _rule(schema: Json) -> Json:
    """Return a JSON Schema without descriptions, and the expected values in words."""
    schema = next((one for one in schema.get("anyOf", []) if one.get("type") != "null"), schema)
    value = codec.value_schema(schema)
    found: Json = {"expected": codec.expected(value)}
    if "properties" in value:
        return {**found, "part": value["title"]}
    kept = ("type", "enum", "minimum", "maximum", "maxItems")
    found |= {name: value[name] for name in kept if name in value and "prefixItems" not in value}
    if "prefixItems" in value:
        found |= {"type": "row", "items": [_rule(item) for item in value["prefixItems"]]}
    elif "items" in value:
        found |= {"items": _rule(value["items"])}
    elif isinstance(value.get("additionalProperties"), dict):
        found |= {"values": _rule(value["additionalProperties"])}
    return found


def _interface(name: str, part: Json) -> str:
    cls = getattr(events, name)
    lines = [f'  type: "{codec.EVENT_NAMES[cls]}";'] if cls in codec.EVENT_NAMES else []
    for field, schema in part["properties"].items():
        sign = "" if _optional(part, field).get("required") else "?"
        lines.append(f"  {field}{sign}: {_type(schema)};")
    return "\n".join((_comment(cls), f"export interface {name} {{", *lines, "}"))


def _type(schema: Json) -> str:
    allowed = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    match allowed[0]:
        case {"$ref": name}:
            return str(name).removeprefix("#/$defs/")
        case {"type": "string"}:
            return "string"
        case {"type": "integer" | "number"}:
            return "number"
        case {"prefixItems": items}:
            return f"[{', '.join(map(_type, items))}]"
        case {"items": item}:
            return f"{_type(item)}[]"
        case {"type": "object", "additionalProperties": values}:
            return f"Record<string, {_type(values) if isinstance(values, dict) else 'any'}>"
    return "boolean"


def _union(cls: type[StrEnum]) -> str:
    return " | ".join(f'"{member.value}"' for member in cls)


def _summary(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _comment(cls: type[Any]) -> str:
    return f"/** {_summary(cls)} */"
