"""The connection to engines in other processes, and reading a streamed answer with cancellation."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Protocol

from specdemo.config.errors import UserError
from specdemo.config.strings import Json
from specdemo.engine.runner import LOOK_SECONDS


class Lost(Exception):
    """The engine that answered has ended. cause: the reason if it is known; the request is then not repeated"""

    def __init__(self, cause: UserError | None = None) -> None:
        super().__init__()
        self.cause = cause

    @property
    def error(self) -> UserError:
        return self.cause or UserError("engine.gone")


class Stream(Protocol):
    """The answer of an engine: strings of whole lines, each ended by a newline. Raises Lost and UserError."""

    def __iter__(self) -> Iterator[str]: ...

    def cancel(self) -> None:
        """End the work in the engine; no effect after its end."""


class Link(Protocol):
    """A connection to the engines.

    whole: each request may get a different engine, so that related work must be one request
    """

    whole: bool

    def about(self) -> Json:
        """Return the result of `Engine.about`. Raises UserError."""

    def stream(self, method: str, visitor: str, request: Json) -> Stream:
        """Call `Engine.run` or `Engine.perform`. Requests of a visitor go to the same engine if possible."""

    def leave(self, visitor: str) -> None:
        """Free the caches of a visitor; returns immediately."""

    def replicas(self) -> int:
        """Return the number of engines that answer now."""


def pieces(stream: Stream, cancel: threading.Event) -> Generator[str, None, None]:
    """Yield the strings of a stream until it is cancelled. Closing cancels the work in the engine."""
    arrived: SimpleQueue[str | BaseException | None] = SimpleQueue()

    def pull() -> None:
        try:
            for piece in stream:
                arrived.put(piece)
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001 - raised in the consumer's thread
            arrived.put(error)

    # The thread inherits the context, because the user of the request determines the engine.
    context = copy_context()
    threading.Thread(target=context.run, args=[pull], name="specdemo-stream", daemon=True).start()
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
