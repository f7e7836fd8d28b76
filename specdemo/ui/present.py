"""Lines of the stream that the view reads: the events of a run, and what the page says about them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from specdemo.errors import UserError
from specdemo.trace.codec import encode
from specdemo.trace.events import Event, Verified

SHOWN_PROMPT = 4000  # characters of a prompt that travel to the page


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt and what was answered."""

    prompt: str
    answer: str


def opening(
    source: Literal["live", "recorded"],
    key: str,
    *,
    title: str = "",
    waiting: bool = False,
    earlier: Iterable[Turn] = (),
) -> str:
    """First lines of a stream. `key` tells two streams apart; `earlier` are the turns before this one."""
    first = _line(type="open", source=source, key=key, title=title, waiting=waiting)
    return first + "".join(
        _line(type="earlier", prompt=turn.prompt[:SHOWN_PROMPT], answer=turn.answer) for turn in earlier
    )


def notice(error: UserError) -> str:
    """A line that shows an error of the page below what is there."""
    return _line(type="notice", message=error.message, unharmed=error.unharmed, advice=error.advice)


def lines(events: Iterable[Event]) -> str:
    """Events as lines, each ended by a newline."""
    return "".join(encode(event) + "\n" for event in events)


def step_text(event: Verified) -> str:
    """The text that a step added."""
    kept = "".join(event.nodes[node].text for node in event.path)
    return kept + (event.next.text if event.next else "")


def _line(**values: object) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"
