"""The JSON-lines form of events: the wire format, the saved trace and the test fixture are this one text.

What is read is checked field by field, by the rules of `shapes.py`; assets/view/core/check.js does the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from enum import Enum
from functools import partial
from itertools import repeat, starmap
from typing import Any, NoReturn, TypeAlias

from specdemo.trace.events import (
    SCHEMA_VERSION,
    Drafted,
    Event,
    Node,
    Origin,
    RunStarted,
    Verified,
)
from specdemo.trace.shapes import (
    EVENTS,
    PARTS,
    Many,
    Number,
    Part,
    Row,
    Shape,
    Text,
)

READABLE = tuple(range(1, SCHEMA_VERSION + 1))
NAMES = {cls: name for name, cls in EVENTS.items()}
Rule: TypeAlias = tuple[
    Callable[[Any], bool], Callable[[Any], Any], str
]  # takes, converts, what is wrong
CLOSE = 1e-5  # two numbers that were equal before they were written with seven digits


class TraceError(ValueError):
    """A line that is not an event. field: the one that is wrong, as in nodes[3].parent; empty for the whole line"""

    def __init__(self, problem: str, field: str = "") -> None:
        super().__init__(f"{field or 'it'} {problem}")
        self.problem = problem
        self.field = field

    def within(self, outer: str) -> TraceError:
        """The same, said of a field of `outer`."""
        dot = "." if self.field and not self.field.startswith("[") else ""
        return TraceError(self.problem, f"{outer}{dot}{self.field}")


def encode(event: Event) -> str:
    """One event as one JSON line without its newline; fields that are None are left out."""
    return json.dumps(
        {"type": NAMES[type(event)], **_plain(event)}, ensure_ascii=False, separators=(",", ":")
    )


def decode(line: str) -> Event:
    """One JSON line as an event of this schema. Raises TraceError, and nothing else, when it is not one."""
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
    cls = EVENTS[kind]
    if cls is RunStarted:
        _readable(data.get("schema", SCHEMA_VERSION))
    event: Event = READERS[cls](data)
    if isinstance(event, Drafted | Verified):
        _agree(event)
        return replace(event, nodes=_with_origin(event))
    return replace(event, schema=SCHEMA_VERSION) if isinstance(event, RunStarted) else event


def dumps(events: Iterable[Event]) -> str:
    """Events as JSON lines, each ended by a newline."""
    return "".join(encode(event) + "\n" for event in events)


def loads(text: str) -> Iterator[Event]:
    """The events of JSON lines, lazily; raises TraceError at the first bad line."""
    return (decode(line) for line in text.split("\n") if line.strip())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
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


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _readable(schema: object) -> None:
    """Raise TraceError unless it is a schema to read. Asked first: another schema may have other fields."""
    number = PARTS[RunStarted]["schema"].shape
    if not number.takes(schema):
        raise TraceError(f"must be {number.wanted}", "schema")
    if schema not in READABLE:
        raise TraceError(f"{schema:g} is not one of {', '.join(map(str, READABLE))}", "schema")


def _converter(shape: Shape) -> Callable[[Any], Any]:
    """What turns a JSON value that has a shape into the value that events hold."""
    match shape:
        case Text(enum=enum) if enum:
            return {member.value: member for member in enum}.__getitem__
        case Number():
            return int if shape.whole else float
        case Many():
            return partial(_items, repeat((shape.item.takes, *_rest(shape.item))))
        case Row():
            return partial(_items, [(item.takes, *_rest(item)) for item in shape.items])
        case Part():
            return _members_of(shape.cls)
    return _same


def _rest(shape: Shape) -> tuple[Callable[[Any], Any], str]:
    return _converter(shape), f"must be {shape.wanted}"


def _same(value: Any) -> Any:
    return value


def _items(rules: Iterable[Rule], values: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for (takes, convert, wrong), value in zip(rules, values, strict=False):
            if not takes(value):
                raise TraceError(wrong)
            found.append(convert(value))
    except TraceError as error:
        raise error.within(f"[{len(found)}]") from None
    return tuple(found)


def _members_of(cls: type[Any]) -> Callable[[dict[str, Any]], Any]:
    """What makes an object of a class from its JSON object, each field checked once.

    null stands for a missing value where there may be none.
    """
    rules = [
        (name, member.required, member.empty, member.shape.takes, *_rest(member.shape))
        for name, member in PARTS[cls].items()
    ]
    names = PARTS[cls].keys()
    missing = {name: None for name, member in PARTS[cls].items() if member.empty}

    def members(data: dict[str, Any]) -> Any:
        if not data.keys() <= names:
            name = re.sub(r"[^A-Za-z0-9_]", "?", min(data.keys() - names))[:40]
            raise TraceError(f"is no field of {cls.__name__}", name)
        values: dict[str, Any] = {**missing}
        try:
            for name, required, empty, takes, convert, wrong in rules:
                if name not in data or (empty and data[name] is None):
                    if required:
                        raise TraceError("is missing")
                    continue
                value = data[name]
                if not takes(value):
                    raise TraceError(wrong)
                values[name] = convert(value)
        except TraceError as error:
            raise error.within(name) from None
        return cls(**values)

    return members


READERS = {cls: _members_of(cls) for cls in NAMES}


def _agree(event: Drafted | Verified) -> None:
    """Raise TraceError where fields that are right one by one contradict each other."""
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
    for place, index in enumerate(event.path):
        if not 0 <= index < len(nodes) or nodes[index].parent != above:
            raise TraceError("must be the index of a node below the one before", f"path[{place}]")
        above = index
    for index, thoughts in enumerate(event.places or ()):
        if thoughts.after >= len(nodes):
            raise TraceError("must be the index of a node, or -1", f"places[{index}].after")


def _with_origin(event: Drafted | Verified) -> tuple[Node, ...]:
    """The nodes of a step, those of schema 1 turned into those of schema 2.

    Schema 1 has no `origin`, and writes the drafter's own number as `draft_prob` for every token: that is the
    `confidence`. All tokens of a step were drawn or all were chosen, and the first token that was tested after
    each node tells, as nothing had been refused there: a chosen one is kept with its probability p under the
    target, a drawn one with min(1, p / q). A test without a draw was greedy, so all were chosen. Where the two
    give the same, and before the verdict, schema 1 cannot say, and `origin` stays None.
    """
    nodes = event.nodes
    if all(node.origin for node in nodes):
        return nodes
    said = [
        node.confidence if node.origin or node.draft_prob is None else node.draft_prob
        for node in nodes
    ]
    origins = (
        starmap(_origin, _first_tested(zip(nodes, said, strict=True)))
        if isinstance(event, Verified)
        else ()
    )
    origin = next(filter(None, origins), None)
    return tuple(
        node if node.origin else _as(node, confidence, origin)
        for node, confidence in zip(nodes, said, strict=True)
    )


def _as(node: Node, confidence: float | None, origin: Origin | None) -> Node:
    """A node of schema 1 in schema 2."""
    if origin is not Origin.DRAWN:
        return replace(node, origin=origin, confidence=confidence, draft_prob=None)
    drawn = None if confidence is None else origin
    return replace(node, origin=drawn, confidence=confidence, draft_prob=confidence)


def _first_tested(
    nodes: Iterable[tuple[Node, float | None]],
) -> Iterator[tuple[Node, float | None]]:
    """Of the nodes below each parent, the one that was tested first."""
    parents = set()
    for node, confidence in nodes:
        if node.accept_prob is not None and node.parent not in parents:
            parents.add(node.parent)
            yield node, confidence


def _origin(node: Node, confidence: float | None) -> Origin | None:
    """Whether the tokens of a step were drawn or chosen, by the test of one of them; None where it does not show."""
    if node.draw is None:
        return Origin.CHOSEN
    if node.accept_prob is None or node.target_prob is None:
        return None
    chosen = math.isclose(node.accept_prob, node.target_prob, rel_tol=CLOSE)
    if not confidence:
        return Origin.CHOSEN if chosen else None
    kept = min(1.0, node.target_prob / confidence)
    drawn = math.isclose(node.accept_prob, kept, rel_tol=CLOSE)
    if chosen == drawn:
        return None
    return Origin.CHOSEN if chosen else Origin.DRAWN
