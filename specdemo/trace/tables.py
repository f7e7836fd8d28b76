"""A saved run as a table. Needs no torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from specdemo.config.strings import Json
from specdemo.trace.events import Event, Node, Verified
from specdemo.trace.replay import parse

NODE_FIELDS = (
    *("lane", "step", "node", "parent", "token_id", "text", "status"),
    *("target_prob", "draft_prob", "accept_prob", "draw", "survival"),
    *("confidence", "origin", "ticket"),
    *("draft_seconds", "verify_seconds", "overhead_seconds", "elapsed_seconds"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


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
            values = (
                *(event.lane, event.step, place, None if place is None else node.parent),
                *(node.token_id, node.text, node.status.value),
                *(node.target_prob, node.draft_prob, node.accept_prob, node.draw),
                *(node.survival, node.confidence, node.origin and node.origin.value, node.ticket),
                *(event.draft_seconds, event.verify_seconds),
                *(event.overhead_seconds, event.elapsed_seconds),
            )
            yield dict(zip(NODE_FIELDS, values, strict=True))


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text
