"""Reads a saved trace: returns every complete event, and a message about the part that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.trace.codec import TraceError, decode
from specdemo.trace.events import LARGEST_FILE, Event, RunStarted, Trace


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
