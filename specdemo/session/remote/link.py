"""The way to engines elsewhere: what goes there, and what they answer piece by piece."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Protocol

from specdemo.config.errors import UserError
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.door import Plain


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


def pieces(stream: Stream, cancel: threading.Event) -> Generator[str, None, None]:
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


def gone() -> UserError:
    """The sentence for an engine that is lost."""
    return UserError("engine.gone")
