"""The JSON-lines form of events: the wire format, the saved trace and the test fixture are this one text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from enum import Enum
from typing import Any

from specdemo.trace.events import (
    SCHEMA_VERSION,
    Choice,
    Drafted,
    Event,
    FinishReason,
    ModelInfo,
    Node,
    Place,
    RunFailed,
    RunFinished,
    RunStarted,
    Status,
    Verified,
)

TYPES: dict[str, type[Any]] = {
    "started": RunStarted,
    "drafted": Drafted,
    "verified": Verified,
    "finished": RunFinished,
    "failed": RunFailed,
}
NAMES = {cls: name for name, cls in TYPES.items()}


class TraceError(ValueError):
    """A line that is not an event of this schema."""


def encode(event: Event) -> str:
    """One event as one JSON line without its newline; fields that are None are left out."""
    return json.dumps(
        {"type": NAMES[type(event)], **_plain(event)}, ensure_ascii=False, separators=(",", ":")
    )


def decode(line: str) -> Event:
    """One JSON line as an event. Raises TraceError when it is not one of this schema."""
    try:
        data = json.loads(line)
        cls = TYPES[data.pop("type")]
        if data.get("schema", SCHEMA_VERSION) != SCHEMA_VERSION:
            raise TraceError(f"schema {data['schema']} is not schema {SCHEMA_VERSION}")
        event: Event = _build(cls, data)
    except TraceError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"not an event: {error}") from error
    return event


def dumps(events: Iterable[Event]) -> str:
    """Events as JSON lines, each ended by a newline."""
    return "".join(encode(event) + "\n" for event in events)


def loads(text: str) -> Iterator[Event]:
    """The events of JSON lines, lazily; raises TraceError at the first bad line."""
    return (decode(line) for line in text.split("\n") if line.strip())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}") if value == value else None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        pairs = ((f.name, getattr(value, f.name)) for f in fields(value))
        return {name: _plain(item) for name, item in pairs if item is not None}
    return value


def _build(cls: type[Any], data: dict[str, Any]) -> Any:
    values = dict(data)
    if "nodes" in values:
        values["nodes"] = tuple(_node(item) for item in values["nodes"])
    if "path" in values:
        values["path"] = tuple(values["path"])
    if cls is Verified:
        values["next"] = _node(values["next"]) if "next" in values else None
        if "places" in values:
            values["places"] = tuple(_place(item) for item in values["places"])
    if cls is RunFinished:
        values["reason"] = FinishReason(values["reason"])
    if cls is RunStarted:
        values["target"] = ModelInfo(**values["target"])
        values["draft"] = ModelInfo(**values["draft"]) if "draft" in values else None
        costs = values.get("verify_costs", ())
        values["verify_costs"] = tuple((rows, seconds) for rows, seconds in costs)
        values["history"] = tuple(values.get("history", ()))
    return cls(**values)


def _place(data: dict[str, Any]) -> Place:
    names = ("target", "draft", "residual")
    return Place(data["after"], *(tuple(Choice(**c) for c in data.get(n, ())) for n in names))


def _node(data: dict[str, Any]) -> Node:
    return Node(**{**data, "status": Status(data.get("status", "drafted"))})
