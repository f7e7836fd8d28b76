"""One visitor's messages, answered by engines elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol
from uuid import uuid4

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.admission import Admission
from specdemo.session.door import Plain, Work
from specdemo.session.meter import Meter
from specdemo.session.remote.engine import name_of, raise_reported
from specdemo.session.remote.link import Link, Lost, gone, pieces
from specdemo.session.work.batch import new_texts
from specdemo.trace.codec import decode
from specdemo.trace.events import (
    SPECULATIVE,
    Event,
    FinishReason,
    RunFailed,
    RunFinished,
    RunStarted,
    Verified,
)
from specdemo.trace.metrics import output_ids


class RemoteDoor(Protocol):
    """A door to engines elsewhere, as its conversations see it."""

    admission: Admission
    meter: Meter

    @property
    def link(self) -> Link:
        """The way to the engines; raises UserError while there is none."""


class RemoteConversation:
    """One visitor's messages, answered by engines elsewhere. owner: whose it is on the page"""

    def __init__(self, studio: RemoteDoor, owner: str = "") -> None:
        self.owner = owner
        self._studio = studio
        self._visitor = uuid4().hex  # of this conversation; nothing of the browser is in it
        self._messages: list[dict[str, str]] = []
        self._start = object()  # of what is said: another one when it starts over
        self._lesson = 0
        self._asked = False

    def forget(self) -> None:
        """Drop what earlier runs have taught the drafters of this visitor."""
        self._lesson += 1

    def reset(self) -> None:
        """Start over. A run that goes on adds nothing to it."""
        self._messages = []
        self._start = object()

    def close(self) -> None:
        """The visitor has gone."""
        self._messages = []
        self.rest()

    def rest(self) -> None:
        """The visitor may have gone: the engine gives the caches back. The messages stay here."""
        if self._asked:
            self._asked = False
            self._studio.link.leave(self._visitor)

    def perform(
        self, work: Work, arguments: Mapping[str, Any], cancel: threading.Event | None = None
    ) -> Iterator[Plain]:
        """Work on this visitor's caches there. Raises UserError."""
        request = {"work": name_of(work), "arguments": dict(arguments)}
        lines = self._lines("perform", request, cancel or threading.Event())
        try:
            with closing(lines):
                for line in lines:
                    yield json.loads(line)["part"]
        except Lost as lost:
            raise lost.told or gone() from None

    def run(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
    ) -> Iterator[Event]:
        """Answer a prompt; see `Conversation.run`. Where the engine is lost, what was said so far is kept."""
        request = {
            "messages": self._messages,
            "prompt": prompt,
            "system": system,
            "settings": settings.checked().to_dict(),
            "every": max(every, LOOK_SECONDS),
            "others_wait": self._studio.admission.waits_beside(self.owner),
        }
        cancel = cancel or threading.Event()
        waited = self._studio.admission.waited_by(self.owner)
        yield from self._studio.meter.watch(self._run(request, cancel), waited)

    def _run(self, request: Plain, cancel: threading.Event) -> Generator[Event, None, None]:
        lane, start = _LaneSoFar(), self._start
        try:
            with closing(self._events(request, cancel)) as events:
                for event in events:
                    lane.add(event)
                    yield event
        except Lost as lost:
            yield _failed(lane.name, lost.told or gone())
        else:
            if cancel.is_set() and lane.going_on:
                yield RunFinished(
                    lane.name, FinishReason.CANCELLED, lane.new_tokens, lane.elapsed_seconds
                )
        if self._start is start:
            self._messages = [
                *self._messages,
                {"role": "user", "content": request["prompt"]},
                {"role": "assistant", "content": lane.answer},
            ]

    def _events(self, request: Plain, cancel: threading.Event) -> Generator[Event, None, None]:
        """The run's events. An engine that is lost before it said anything is asked for in vain: another one is."""
        for last in (False, True):
            begun = False
            try:
                with closing(self._lines("run", request, cancel)) as lines:
                    for line in lines:
                        begun = True
                        yield decode(line)
            except Lost as lost:
                if begun or last or lost.told:
                    raise
            else:
                return

    def _lines(
        self, method: str, request: Plain, cancel: threading.Event
    ) -> Generator[str, None, None]:
        """What the engine answers, line by line; ends when it is cancelled. Raises Lost and UserError."""
        request = {**request, "visitor": self._visitor, "lesson": self._lesson}
        self._asked = True
        with closing(
            pieces(self._studio.link.stream(method, self._visitor, request), cancel)
        ) as answer:
            for piece in answer:
                for line in filter(None, piece.split("\n")):
                    raise_reported(line)
                    yield line


class _LaneSoFar:
    """The lane that goes on: what stands in its events so far."""

    def __init__(self) -> None:
        self.name, self.going_on = SPECULATIVE, False
        self._steps: list[Verified] = []
        self._reason: FinishReason | None = None

    def add(self, event: Event) -> None:
        """One more event."""
        match event:
            case RunStarted():
                self.name, self.going_on, self._steps = event.lane, True, []
                self._reason = None
            case Verified():
                self._steps.append(event)
            case RunFinished():
                self.going_on, self._reason = False, event.reason
            case RunFailed():
                self.going_on = False

    @property
    def new_tokens(self) -> int:
        """How many it has."""
        return len(output_ids(self._steps))

    @property
    def elapsed_seconds(self) -> float:
        """Of decoding."""
        return self._steps[-1].elapsed_seconds if self._steps else 0.0

    @property
    def answer(self) -> str:
        """Its text, without the token that ends an answer."""
        texts = [text for step in self._steps for text in new_texts(step)]
        return "".join(texts[:-1] if self._reason is FinishReason.STOP else texts)


def _failed(lane: str, error: UserError) -> RunFailed:
    return RunFailed(lane, error.message, error.unaffected, error.advice)
