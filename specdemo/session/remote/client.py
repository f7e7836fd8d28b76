"""The engine client for engines in other processes, and the connection to them.

A user's messages stay here and are sent with each run, so a lost engine loses only caches.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.files.progress import ProgressCallback
from specdemo.session.admission import Cancel
from specdemo.session.door import About, ConversationClient, EngineClient, Part, Work, streamed
from specdemo.session.remote.server import Answer, Call, run
from specdemo.session.runs import failed
from specdemo.trace.events import SPECULATIVE, Event, FinishReason, RunFailed, RunFinished
from specdemo.trace.metrics import measure, output_text


class Lost(Exception):
    """The engine that answered has ended. cause: the reason if it is known; the request is then not repeated"""

    def __init__(self, cause: UserError | None = None) -> None:
        super().__init__()
        self.cause = cause

    @property
    def error(self) -> UserError:
        return self.cause or UserError("engine.gone")


class Link(ABC):
    """A connection to the engines.

    whole: each request may get a different engine, so that related work must be one request
    """

    whole = False

    @abstractmethod
    def about(self) -> About:
        """Return the result of `Engine.about`. Raises UserError."""

    @abstractmethod
    def stream(self, call: Call, ended: Cancel) -> Generator[list[Answer], None, None]:
        """Call `Engine.perform`. Calls of a visitor go to the same engine if possible.

        ended: ends the work in the engine
        yields: the answers that arrived together
        Raises Lost and UserError.
        """

    def leave(self, visitor: str) -> None:  # noqa: B027 - some engines manage their caches themselves
        """Free the caches of a visitor; returns immediately."""

    def replicas(self) -> int:
        """Return the number of engines that answer now; 1 if it is unknown."""
        return 1


class RemoteStudio(EngineClient):
    """An engine client for engines in other processes.

    connect: starts or finds the engines and waits until one answers; gets a callback for progress. Raises UserError
    """

    thread_name = "specdemo-connect"
    failed = "engine.unreachable"
    not_loaded = "engine.starting"

    def __init__(self, settings: AppSettings, connect: Callable[[ProgressCallback], Link]) -> None:
        super().__init__(settings)
        self._conversations: weakref.WeakSet[RemoteConversation] = weakref.WeakSet()
        self._connect = connect
        self._link: Link | None = None

    def bring(self, report: ProgressCallback) -> None:
        link = self._connect(report)
        self.about = link.about()
        self.whole, self._link, self.error = link.whole, link, None

    def learn(self, about: About) -> None:
        """Replace the description of the same target by one with more measurements."""
        self.about = replace(about, target=self.target)

    @property
    def link(self) -> Link:
        """The connection to the engines. Raises UserError before it exists."""
        if self._link is None:
            raise self.error or UserError(self.not_loaded)
        return self._link

    def replicas(self) -> int:
        return self._link.replicas() if self._link else 0

    @property
    def ready(self) -> bool:
        return self.replicas() > 0

    def open(self, visitor: str = "") -> RemoteConversation:
        conversation = RemoteConversation(self, visitor)
        with self._lock:
            self._conversations.add(conversation)
        return conversation

    def leave(self, visitor: str) -> None:
        with self._lock:
            conversations = list(self._conversations)
        for conversation in conversations:
            if conversation.visitor == visitor:
                conversation.rest()


class RemoteConversation(ConversationClient):
    """The messages of one user, answered by engines in other processes."""

    host: RemoteStudio

    def __init__(self, host: RemoteStudio, visitor: str = "") -> None:
        super().__init__(host, visitor)
        self._visitor = uuid4().hex  # identifies this conversation; contains nothing of the browser
        self._lesson = 0
        self._has_caches = False

    def forget(self) -> None:
        self._lesson += 1

    def close(self) -> None:
        self.messages = []
        self.rest()

    def rest(self) -> None:
        """Let the engine free its caches, because the user may have left. The messages stay."""
        if self._has_caches:
            self._has_caches = False
            self.host.link.leave(self._visitor)

    def perform(
        self, work: Work, arguments: Mapping[str, object], cancel: threading.Event | None = None
    ) -> Iterator[Part]:
        try:
            with closing(self._parts(work, arguments, cancel or threading.Event())) as parts:
                yield from parts
        except Lost as lost:
            raise lost.error from None

    def events(
        self,
        prompt: str,
        settings: RunSettings,
        cancel: threading.Event,
        *,
        system: str = "",
        every: float = 0.0,
    ) -> Generator[Event, None, None]:
        """Let an engine answer. If it is lost, the text so far stays."""
        asked = {
            "messages": self.messages,
            "prompt": prompt,
            "system": system,
            "settings": settings.checked(),
            "every": max(every, LOOK_SECONDS),
        }
        start = self._start
        seen: dict[
            str, list[Event]
        ] = {}  # events of each variant; the last one's text is the answer
        try:
            with closing(self._parts(run, asked, cancel)) as parts:
                for _, event in parts:
                    assert isinstance(event, Event)  # of `run`
                    seen.setdefault(event.lane, []).append(event)
                    yield event
        except Lost as lost:
            yield failed(next(reversed(seen), SPECULATIVE), lost.error)
        else:
            for lane, own in seen.items():
                if cancel.is_set() and not isinstance(own[-1], RunFinished | RunFailed):
                    metrics = measure(own)
                    yield RunFinished(
                        lane, FinishReason.CANCELLED, metrics.new_tokens, metrics.elapsed_seconds
                    )
        answer = next(reversed(seen.values()), [])
        self._store(start, prompt, output_text(answer))

    def _parts(
        self, work: Work, arguments: Mapping[str, object], cancel: threading.Event
    ) -> Generator[Part, None, None]:
        """Yield the results of a function in an engine until the end or the cancellation. Raises Lost and UserError.

        If an engine is lost before its first answer, the call is sent once more.
        """
        call = Call(self._visitor, self._lesson, work, dict(arguments))
        self._has_caches = True

        def pull(arrived: Callable[[Answer], None], ended: Cancel) -> None:
            for answers in self.host.link.stream(call, ended):
                for answer in answers:
                    arrived(answer)

        for last in (False, True):
            answered = False
            try:
                with closing(streamed(pull, cancel)) as answers:
                    for answer in answers:
                        answered = True
                        if isinstance(answer, Exception):
                            raise answer
                        yield answer
                return
            except Lost as lost:
                if answered or last or lost.cause:
                    raise
