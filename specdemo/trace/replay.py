"""Reads a saved trace: its complete events, a message about the part that cannot be read, and its tokens as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.strings import Json
from specdemo.trace.codec import TraceError, decode
from specdemo.trace.events import LARGEST_FILE, Event, Node, RunStarted, Trace, Verified

TOKEN_FIELDS = (
    *("parent", "token_id", "text", "status", "target_prob", "draft_prob", "accept_prob", "draw"),
    *("survival", "confidence", "origin", "ticket"),
)
STEP_FIELDS = ("draft_seconds", "verify_seconds", "overhead_seconds", "elapsed_seconds")
NODE_FIELDS = ("lane", "step", "node", *TOKEN_FIELDS, *STEP_FIELDS)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace that was read, and `problem`: empty, or a message about the part that could not be read."""

    trace: Trace
    problem: str = ""


def read(path: str | Path) -> Replay:
    """Read a trace file. Raises UserError when it cannot be opened, is too large or contains no event at all."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE + 1).decode("utf-8-sig", "replace")
    except OSError as error:
        raise UserError("trace.unreadable", path=path, error=error.strerror or error) from error
    return parse(text, str(path))


def parse(text: str, name: str = "the trace") -> Replay:
    """Read JSON lines up to the first that is not an event. Raises UserError when that is the first of all.

    Raises no other error for any text. The message names the line, the field and its valid values.
    """
    if len(text) > LARGEST_FILE or len(text.encode("utf-8", "replace")) > LARGEST_FILE:
        raise UserError("trace.too_large", name=name, most=LARGEST_FILE >> 20)
    events: list[Event] = []
    begun: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            event = decode(line)
            if isinstance(event, RunStarted):
                if event.lane in begun:
                    raise TraceError(f"lane {event.lane} starts twice")
                begun.add(event.lane)
        except TraceError as error:
            if not events:
                raise UserError("trace.foreign", name=name, number=number, error=error) from error
            problem = f"Line {number} of {name} cannot be read ({error}); the {len(events)} events before it are shown."
            return Replay(Trace(tuple(events)), problem)
        events.append(event)
    if not events:
        raise UserError("trace.empty", name=name)
    return Replay(Trace(tuple(events)))


def csv_table(trace_text: str) -> str:
    """Return one row for each token of a trace, rejected ones included; the target's own has no node (RFC 4180).

    A text that a spreadsheet would read as a formula gets an apostrophe before it: a model may write anything.
    """
    out = io.StringIO()
    table = csv.DictWriter(out, NODE_FIELDS)
    table.writeheader()
    for row in token_rows(parse(trace_text).trace.events):
        table.writerow({**row, "text": _harmless(row["text"])})
    return out.getvalue()


def token_rows(events: Iterable[Event]) -> Iterator[Json]:
    """The rows of that table as plain values by `NODE_FIELDS`."""
    for event in events:
        if not isinstance(event, Verified):
            continue
        rows: list[tuple[int | None, Node]] = [*enumerate(event.nodes)]
        if event.next:
            rows.append((None, event.next))
        for place, node in rows:
            row = {"lane": event.lane, "step": event.step, "node": place}
            row |= {name: getattr(node, name) for name in TOKEN_FIELDS}
            row |= {name: getattr(event, name) for name in STEP_FIELDS}
            enumerations = {
                "status": node.status.value,
                "origin": node.origin and node.origin.value,
            }
            yield row | enumerations | ({"parent": None} if place is None else {})


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text
