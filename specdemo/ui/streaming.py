"""How a page shows work that goes on: one task for each visitor and view, and the one loop that streams it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import gradio as gr

from specdemo.errors import UserError
from specdemo.session.door import Door
from specdemo.ui import present, words
from specdemo.ui.visits import begin_run

LOADING_SECONDS = 0.5  # between two looks at whether the model is ready
# Appends are joined: browsers lag on one update for each token, and each update takes a core from the pass.
YIELD_SECONDS = 1 / 8
VISITOR_SECONDS = 3600  # what a visitor has in `gr.State` is dropped so long after they left
QUICK: dict[str, Any] = {"queue": False, "show_progress": "hidden"}  # answered at once


@dataclass(slots=True)
class Task:
    """What a visitor asked for last in one part of the page. It is done, stopped or replaced by the next.

    cancel: ends the work within a step; set when the task is over, however it ended
    replaced: another task shows its results there now, so this one shows nothing more
    """

    cancel: threading.Event = field(default_factory=threading.Event)
    replaced: bool = False

    def stop(self) -> None:
        """The work ends within a step, and what there is stays."""
        self.cancel.set()

    def replace(self) -> Task:
        """Stop this task and show nothing more of it. returns: the task that takes its place"""
        self.replaced = True
        self.cancel.set()
        return Task()


def alone(studio: Door) -> dict[str, Any]:
    """What is timed takes turns: options of its events."""
    return {"concurrency_id": "alone", "concurrency_limit": studio.settings.races_at_once}


def leave(task: Task | None) -> None:
    """The visitor has gone: a callback of `gr.State`."""
    if task is not None:
        task.replace()


class Shown(Protocol):
    """What a task shows: it grows while the work goes on."""

    def value(self) -> object:
        """The value of the components as it is now."""

    def fail(self, error: UserError) -> None:
        """Add what went wrong."""


class Lines:
    """An append-only text of JSON lines, which the script reads as it grows."""

    def __init__(self, text: str = "") -> None:
        self._parts = [text]

    def add(self, *lines: str) -> None:
        """Append lines, each with its line break."""
        self._parts += lines

    def restart(self, text: str) -> None:
        """Begin anew with another text."""
        self._parts = [text]

    def value(self) -> str:
        """The whole text."""
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def fail(self, error: UserError) -> None:
        """Append a notice."""
        self.add(present.notice_line(error))


def stream(
    studio: Door | None,
    task: Task,
    work: Generator[object, None, None],
    shown: Shown,
    *,
    waiting: object = None,
    seconds: float = YIELD_SECONDS,
    unexpected: Callable[[Exception], UserError] | None = None,
) -> Iterator[object]:
    """Wait for the model, do the work, and show how it grows. The work yields whenever there is more to show.

    studio: waited for until its model is ready, it has failed or the task is stopped; None: no model is needed
    waiting: shown meanwhile; None leaves the page as it is
    seconds: at least so long between two values
    unexpected: turns an error that is no UserError into one
    yields: values of the components; the last one when the work has ended, unless the task was replaced

    Closing the generator, as Gradio does when the browser has gone, stops the task and closes the work.
    """
    with closing(work):
        try:
            while not (
                studio is None or studio.ready or studio.error or task.cancel.wait(LOADING_SECONDS)
            ):
                yield gr.skip() if waiting is None else waiting  # a closed browser is noticed here
            if task.replaced:
                yield gr.skip()
                return
            if studio and studio.ready and not task.cancel.is_set():
                begin_run(studio)
            looked = time.monotonic()
            for _ in work:
                if time.monotonic() - looked >= seconds and not task.replaced:
                    yield shown.value()
                    looked = time.monotonic()
        except UserError as error:
            shown.fail(error)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            shown.fail((unexpected or unexpected_error)(error))
        finally:
            task.stop()  # also when the browser has gone: whatever still runs must end
    if not task.replaced:
        yield shown.value()


def unexpected_error(error: Exception) -> UserError:
    """A sentence for what nobody has foreseen."""
    return UserError(
        words.UNEXPECTED.format(error=error),
        unharmed=words.UNEXPECTED_UNHARMED,
        advice=words.UNEXPECTED_ADVICE,
    )
