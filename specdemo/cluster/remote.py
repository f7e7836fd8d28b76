"""A door to engines elsewhere. A visitor's messages stay here and go along with each run, so a lost engine loses only caches."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from specdemo.cluster.engine import name_of, raise_reported
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.errors import UserError
from specdemo.models.progress import Progress, ProgressCallback
from specdemo.scenarios.batch import new_texts
from specdemo.session.admission import page_line
from specdemo.session.door import Plain, Work
from specdemo.session.menu import MethodInfo, PairInfo
from specdemo.session.meter import Meter
from specdemo.session.starting import Starting
from specdemo.session.studio import Studio
from specdemo.settings import AppSettings, Recommended, RunSettings, Sampling
from specdemo.trace.codec import decode
from specdemo.trace.events import (
    SPECULATIVE,
    Event,
    FinishReason,
    ModelInfo,
    RunFailed,
    RunFinished,
    RunStarted,
    Verified,
)
from specdemo.trace.metrics import output_ids

if TYPE_CHECKING:
    from specdemo.models.offers import Offer
    from specdemo.models.outlook import Outlook


class Lost(Exception):
    """The engine that answered has gone. told: why, where that is known; another one is then not asked unseen"""

    def __init__(self, told: UserError | None = None) -> None:
        super().__init__()
        self.told = told


class Stream(Protocol):
    """What an engine answers, piece by piece: lines, each ended by a newline. Raises Lost and UserError."""

    def __iter__(self) -> Iterator[str]: ...

    def cancel(self) -> None:
        """End the work there; nothing when it has ended."""


class Link(Protocol):
    """The way to the engines.

    whole: each request may get an engine of its own, so what belongs together is one request
    """

    whole: bool

    def about(self) -> Plain:
        """See `Engine.about`. Raises UserError."""

    def stream(self, method: str, visitor: str, request: Plain) -> Stream:
        """Ask for `Engine.run` or `Engine.perform`. A visitor stays with an engine while it can be."""

    def leave(self, visitor: str) -> None:
        """The visitor has gone; returns at once."""

    def replicas(self) -> int:
        """Engines that answer now."""


class RemoteStudio(Starting):
    """A door to engines in other processes. Safe to use from several threads.

    connect: starts or finds the engines and waits until one answers; reports meanwhile. Raises UserError
    """

    thread_name = "specdemo-connect"
    failed = "The engines could not be reached"

    def __init__(
        self, settings: AppSettings, connect: Callable[[Callable[[Progress], None]], Link]
    ) -> None:
        super().__init__()
        self.settings = settings
        self.replay_only: UserError | None = None
        self.meter = Meter()
        self.meter.replicas = self.replicas
        self.admission = page_line(settings, self.meter, self.replicas)
        self._conversations: weakref.WeakSet[RemoteConversation] = weakref.WeakSet()
        self._catalogue = Studio(replace(settings, replay=True))  # what is known without any engine
        self._connect = connect
        self._link: Link | None = None
        self._about: Plain = {}
        self._target: ModelInfo | None = None

    def bring(self, report: ProgressCallback) -> None:
        """Connect, and wait for an engine."""
        link = self._connect(report)
        about = link.about()
        self._about, self._target = about, ModelInfo(**about["target"])
        self._link, self.error = link, None

    @property
    def link(self) -> Link:
        """The way to the engines; raises UserError while there is none."""
        if self._link is None:
            raise self.error or UserError(
                "The engines are still starting.", advice="Wait until they are ready."
            )
        return self._link

    def replicas(self) -> int:
        """Engines that answer now."""
        return self._link.replicas() if self._link else 0

    @property
    def ready(self) -> bool:
        """Whether an engine answers."""
        return self.replicas() > 0

    @property
    def whole(self) -> bool:
        """See `Door.whole`."""
        return self._link is not None and self._link.whole

    @property
    def target(self) -> ModelInfo:
        """What runs as the target; raises UserError while it is not known."""
        assert self.link
        assert self._target
        return self._target

    @property
    def chosen(self) -> str:
        """Why the engines took their target."""
        return str(self._about.get("chosen", ""))

    @property
    def recommended(self) -> Recommended:
        """How the engines' target is let to draw by its authors; greedy while it is not known."""
        known = self._about.get("recommended")
        return (
            Recommended(Sampling(**known["sampling"]), known["origin"]) if known else Recommended()
        )

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer; raises UserError while they are not known."""
        assert self.link
        return frozenset(self._about["stop_ids"])

    def switch(
        self, target: str, draft: str, precision: str, drafter: str | None = None
    ) -> Iterator[Progress]:
        """Raises UserError: the engines' model is chosen when they are started."""
        raise UserError(
            "The model of engines on a cluster is chosen when they are started.",
            unharmed="The loaded one stays.",
            advice="Start the page again with another --target.",
        )
        yield

    def methods(self) -> list[MethodInfo]:
        """Every drafting method, and whether the engines can do it."""
        if not self._about:
            return self._catalogue.methods()
        return [
            MethodInfo(
                **{**method, "options": tuple(method["options"]), "needs": tuple(method["needs"])}
            )
            for method in self._about["methods"]
        ]

    def pairs(self) -> list[PairInfo]:
        """The catalogue's pairs."""
        return self._catalogue.pairs()

    def outlooks(self, precision: str) -> dict[str, Outlook]:
        """Empty: the model of the engines is chosen when they start."""
        return {}

    def to_download(self, target: str, draft: str, precision: str) -> int | None:
        """Nothing: no other model is loaded."""
        return 0

    def drafters(self, target: str) -> list[Offer]:
        """None: the drafter of the engines is chosen when they start."""
        return []

    def drafter(self, name: str, *, ask: bool) -> Offer:
        """What this disk tells of it: no other is loaded."""
        return self._catalogue.drafter(name, ask=False)

    def card(self, method: str) -> Mapping[str, Any] | None:
        """How the weights were trained that a method drafts with."""
        card: Mapping[str, Any] | None = self._about.get("cards", {}).get(method)
        return card

    def last_audit(self) -> dict[str, object] | None:
        """The last proof of losslessness on an engine's machine."""
        audit: dict[str, object] | None = self._about.get("audit")
        return audit

    def machine(self) -> Plain | None:
        """An engine's costs."""
        machine: Plain | None = self._about.get("machine")
        return machine

    def open(self, visitor: str = "") -> RemoteConversation:
        """A conversation for one visitor."""
        conversation = RemoteConversation(self, visitor)
        with self._lock:
            self._conversations.add(conversation)
        return conversation

    def leave(self, visitor: str) -> None:
        """A visitor has gone, or seems to have: the engines give their caches back."""
        with self._lock:
            conversations = list(self._conversations)
        for conversation in conversations:
            if conversation.owner == visitor:
                conversation.rest()


class RemoteConversation:
    """One visitor's messages, answered by engines elsewhere. owner: whose it is on the page"""

    def __init__(self, studio: RemoteStudio, owner: str = "") -> None:
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
            raise lost.told or _gone() from None

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
            yield _failed(lane.name, lost.told or _gone())
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
            _pieces(self._studio.link.stream(method, self._visitor, request), cancel)
        ) as pieces:
            for piece in pieces:
                for line in filter(None, piece.split("\n")):
                    raise_reported(line)
                    yield line


def _pieces(stream: Stream, cancel: threading.Event) -> Generator[str, None, None]:
    """What a stream gives, until it is cancelled. Closing cancels the work there."""
    arrived: SimpleQueue[str | BaseException | None] = SimpleQueue()

    def pull() -> None:
        try:
            for piece in stream:
                arrived.put(piece)
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001 - raised where it is looked at
            arrived.put(error)

    # With its context: whose request this is decides whose engine answers.
    threading.Thread(
        target=copy_context().run, args=[pull], name="specdemo-stream", daemon=True
    ).start()
    try:
        while not cancel.is_set():
            try:
                item = arrived.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stream.cancel()


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
    return RunFailed(lane, error.message, error.unharmed, error.advice)


def _gone() -> UserError:
    return UserError(
        "The engine that answered has gone.",
        unharmed="What was said so far is kept.",
        advice="Run again: another engine answers.",
    )
