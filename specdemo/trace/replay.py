"""Reads saved traces: their complete events, a message about the part that cannot be read, their tokens as a table, and the index of recorded runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.trace.codec import TraceError, decode
from specdemo.trace.events import LARGEST_FILE, Event, Node, RunStarted, Trace, Verified

RUNS = ASSETS / "runs"
INDEX_FILE = "index.json"
WORTH_SHOWING = 1.3  # speedup from which a recorded run is an example of drafting that pays
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
        text: str = row["text"]
        table.writerow({**row, "text": f"'{text}" if text.startswith(FORMULA) else text})
    return out.getvalue()


def token_rows(events: Iterable[Event]) -> Iterator[Json]:
    """Yield the rows of the table of tokens as plain values by `NODE_FIELDS`."""
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


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """An entry of the index of a folder with recorded runs, each a trace whose file has this name and the suffix `.jsonl`.

    settings: changes to the defaults of a run
    target: catalogue name; if empty, the default; precision: of the target
    speedup, repeats: of the run, see `tools.record`
    """

    name: str
    title: str
    prompt: str = ""
    settings: JsonView = field(default_factory=dict)
    precision: str = "nf4"
    target: str = ""
    speedup: float | None = None
    repeats: bool = False

    @property
    def method(self) -> str:
        return str(self.settings.get("method", ""))

    @property
    def group(self) -> str:
        """Group of the run in a menu: a repetition is no showpiece, and a loss is shown as one."""
        if self.speedup is not None and self.speedup < 1:
            return "loses"
        return "wins" if not self.repeats and (self.speedup or 0) >= WORTH_SHOWING else "small"


def read_index(folder: Path = RUNS) -> list[RecordedRun]:
    """Return the entries of a folder's index, in the order of the menu."""
    found = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
    return [RecordedRun(**entry) for entry in found["runs"]]


def recorded_runs(folder: Path = RUNS) -> list[RecordedRun]:
    """Return the entries of a folder's index whose file is there."""
    return [run for run in read_index(folder) if (folder / f"{run.name}.jsonl").is_file()]
