"""Reading a saved trace: everything that is whole is returned, and a sentence says what is not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdemo.errors import UserError
from specdemo.trace.codec import TraceError, decode
from specdemo.trace.events import Event, Trace


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace that was read, and `problem`: empty, or a sentence on what could not be read."""

    trace: Trace
    problem: str = ""


def read(path: str | Path) -> Replay:
    """Read a trace file. Raises UserError when the file cannot be opened or holds no event at all."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(
            f"The trace {path} cannot be read: {error.strerror or error}.", advice="Check the path."
        ) from error
    return parse(text, str(path))


def parse(text: str, name: str = "the trace") -> Replay:
    """Read JSON lines up to the first line that is not an event of this schema."""
    events: list[Event] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            events.append(decode(line))
        except TraceError as error:
            if not events:
                raise UserError(
                    f"{name} is not a trace of this program: line {number} is {error}.",
                    unharmed="Nothing was changed.",
                    advice="Open a .jsonl file that specdemo saved, of the same schema version.",
                ) from error
            problem = f"Line {number} of {name} cannot be read ({error}); the {len(events)} events before it are shown."
            return Replay(Trace(tuple(events)), problem)
    if not events:
        raise UserError(f"{name} is empty.", advice="Open a .jsonl file that specdemo saved.")
    return Replay(Trace(tuple(events)))
