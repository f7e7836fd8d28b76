"""Joins events into batches for the browser without slowing the engine down."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Iterator
from typing import Final

from specdemo.trace.events import Event

PERIOD_SECONDS: Final = 0.055  # about 18 updates a second
_END: Final = object()


def batches(
    events: Iterator[Event], cancel: threading.Event, period: float = PERIOD_SECONDS
) -> Iterator[list[Event]]:
    """Events in lists, at most one list per period; what `events` raises is raised after the last list.

    The events are drawn in a thread of their own: a slow browser never holds the engine up.
    Closing this generator sets `cancel` and waits until the engine has let go.
    """
    waiting: queue.SimpleQueue[object] = queue.SimpleQueue()

    def pump() -> None:
        try:
            for event in events:
                waiting.put(event)
            waiting.put(_END)
        except BaseException as error:  # noqa: BLE001 - handed over to the reader, who raises it
            waiting.put(error)

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(pump,), name="events", daemon=True
    )
    thread.start()
    try:
        yield from _collect(waiting, period)
    finally:
        cancel.set()
        thread.join()


def _collect(waiting: queue.SimpleQueue[object], period: float) -> Iterator[list[Event]]:
    while True:
        item = waiting.get()
        batch: list[Event] = []
        deadline = time.monotonic() + period
        while not (item is _END or isinstance(item, BaseException)):
            batch.append(item)  # type: ignore[arg-type]
            try:
                item = waiting.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
        else:
            if batch:
                yield batch
            if isinstance(item, BaseException):
                raise item
            return
        yield batch
