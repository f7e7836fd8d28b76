"""JSON lines of events: what the page's scripts get, the saved trace and the test fixtures have this one form.

Every field that is read is checked by the declaration in `events`; assets/view/core/check.js checks the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import NoReturn

from pydantic import TypeAdapter, ValidationError

from specdemo.config.strings import Json
from specdemo.trace.events import (
    DEEPEST,
    EVENTS,
    SCHEMA_VERSION,
    Drafted,
    Event,
    Origin,
    Verified,
)

EVENT_NAMES = {cls: name for name, cls in EVENTS.items()}


class TraceError(ValueError):
    """A line that is not an event. field: the wrong one, as in nodes[3].parent; empty for the whole line"""

    def __init__(self, problem: str, field: str = "") -> None:
        super().__init__(f"{field or 'it'} {problem}")


@cache
def _reader(kind: str) -> TypeAdapter[Event]:
    """Return the reader and writer of one kind of event, built when the first is used: building costs more than importing it."""
    return TypeAdapter(EVENTS[kind])


def encode(event: Event) -> str:
    """Return an event as one JSON line without its newline; fields that are None are left out."""
    kind = EVENT_NAMES[type(event)]
    fields = _reader(kind).dump_json(event, exclude_none=True).decode()
    return f'{{"type":"{kind}",{fields[1:]}'


def decode(line: str) -> Event:
    """Return the event of one JSON line. Raises TraceError, and nothing else, if it is not an event."""
    try:
        data = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise TraceError("is nested too deeply") from None
    except ValueError:
        raise TraceError("is not JSON") from None
    if not isinstance(data, dict):
        raise TraceError("is not an object")
    kind = data.pop("type", None)
    if not isinstance(kind, str) or kind not in EVENTS:
        raise TraceError(f"must be one of {', '.join(EVENTS)}", "type")
    # The schema comes first: another one may have other fields.
    if kind == "started" and data.get("schema", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise TraceError(f"must be {SCHEMA_VERSION}, the only one that can be read", "schema")
    if kind == "verified":
        data.setdefault("next", None)
        data.setdefault("draft_seconds", None)
    try:
        event = _reader(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise _trace_error(EVENTS[kind].__name__, first["type"], first["loc"]) from None
    if isinstance(event, Drafted | Verified):
        _check_agreement(event)
    return event


def dumps(events: Iterable[Event]) -> str:
    """Return events as JSON lines, each ended by a newline."""
    return "".join(encode(event) + "\n" for event in events)


@cache
def json_schema() -> dict[str, Json]:
    """Return the JSON Schema of each event and of its parts, by class name."""
    _, schema = TypeAdapter.json_schemas([(name, "validation", _reader(name)) for name in EVENTS])
    found: dict[str, Json] = schema["$defs"]
    return found


def expected(schema: Json) -> str:
    """Return a description of the values that a JSON Schema of one value allows."""
    match schema:
        case {"enum": texts}:
            return f"one of {', '.join(texts)}"
        case {"type": "integer" | "number" as kind, "minimum": low, "maximum": high}:
            return f"a {'whole ' if kind == 'integer' else ''}number from {_short(low)} to {_short(high)}"
        case {"prefixItems": items}:
            return f"a list of {len(items)} items"
        case {"type": "array", "maxItems": most}:
            return f"a list of at most {most} items"
        case {"additionalProperties": True}:
            return f"an object of at most {DEEPEST} levels"
    return {"string": "a text of whole characters", "boolean": "true or false"}.get(
        schema.get("type", ""), "an object"
    )


def value_schema(schema: Json) -> Json:
    """Return the JSON Schema of a value that is there, whether or not null may replace it."""
    allowed = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    name = allowed[0].get("$ref", "").removeprefix("#/$defs/")
    return json_schema()[name] if name else allowed[0]


def _trace_error(name: str, kind: str, place: tuple[int | str, ...]) -> TraceError:
    """Return the error for a violation that pydantic found: its type, and its path inside the class `name`."""
    if kind == "missing" and isinstance(place[-1], int):  # an item of a list of fixed length
        kind, place = "too_short", place[:-1]
    schema, at = json_schema()[name], ""
    for index, step in enumerate(place):
        owner = schema
        at += (
            f"[{step}]"
            if isinstance(step, int)
            else "." + re.sub(r"\W", "?", step, flags=re.A)[:40]
        )
        if kind in ("missing", "unexpected_keyword_argument") and index == len(place) - 1:
            problem = "is missing" if kind == "missing" else f"is no field of {owner['title']}"
            return TraceError(problem, at.removeprefix("."))
        schema = value_schema(_inner(schema, step))
    return TraceError(f"must be {expected(schema)}", at.removeprefix("."))


def _inner(schema: Json, step: int | str) -> Json:
    """Return the JSON Schema of an item or a field of a value."""
    found: Json
    if isinstance(step, int):
        found = schema["prefixItems"][step] if "prefixItems" in schema else schema["items"]
    else:
        found = (
            schema["properties"][step] if "properties" in schema else schema["additionalProperties"]
        )
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _check_agreement(event: Drafted | Verified) -> None:
    """Raise TraceError if fields that are valid one by one contradict each other."""
    nodes = event.nodes
    for index, node in enumerate(nodes):
        if node.parent >= index:
            problem = "must be the index of a node before it, or -1"
            raise TraceError(problem, f"nodes[{index}].parent")
        if node.origin and (node.draft_prob is None) != (node.origin is Origin.CHOSEN):
            problem = "must be there when the token was drawn, and only then"
            raise TraceError(problem, f"nodes[{index}].draft_prob")
    if isinstance(event, Drafted):
        return
    above = -1
    for position, index in enumerate(event.path):
        if not 0 <= index < len(nodes) or nodes[index].parent != above:
            problem = "must be the index of a node below the one before"
            raise TraceError(problem, f"path[{position}]")
        above = index
    for index, alternatives in enumerate(event.places or ()):
        if alternatives.after >= len(nodes):
            raise TraceError("must be the index of a node, or -1", f"places[{index}].after")
