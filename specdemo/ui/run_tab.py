"""Base of all tabs that run something: one task per visitor, the loop that streams its results, and common components."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

import gradio as gr
from gradio.context import LocalContext

from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView
from specdemo.session.admission import Cancel, Turn
from specdemo.session.door import EngineClient
from specdemo.ui import present, words
from specdemo.ui.settings_panel import by_name
from specdemo.ui.visits import begin_run, go_on

LOADING_SECONDS = 0.5  # seconds between polls whether the model is ready
# Appends are joined: browsers lag on one update for each token, and each update takes a core from the pass.
YIELD_SECONDS = 1 / 8
VISITOR_SECONDS = 3600  # seconds until the `gr.State` of a visitor who left is dropped
QUICK: Json = {"queue": False, "show_progress": "hidden"}  # answered immediately
# The same with messages, which reach the page through the queue alone.
TELLING: Json = {"concurrency_limit": None, "show_progress": "hidden"}
# Events that use the engine: its queue decides on the order. Gradio's queue would drop a run before the previous run's end.
IN_LINE: Json = {"concurrency_limit": None, "show_progress": "hidden", "trigger_mode": "multiple"}


def current_session_id() -> str:
    """Return the id of the current session; a new id outside of a page."""
    request = LocalContext.request.get(None)
    return getattr(request, "session_hash", None) or uuid.uuid4().hex


@dataclass(slots=True)
class LatestRun:
    """Latest run of a visitor in one tab. It ends, is stopped, or is replaced by the next.

    visitor: id for the queue
    cancel: ends the work within a step; set when the task is over
    replaced: another task shows its results in the same view, so this one shows nothing more
    begun: its work was started and is not done a second time
    """

    visitor: str = field(default_factory=current_session_id)
    cancel: Cancel = field(default_factory=Cancel)
    replaced: bool = False
    begun: bool = False

    def begin(self) -> None:
        """Mark the task as started. Raises UserError if it was started before, since the visitor pressed no button."""
        if self.begun:
            raise UserError("page.not_begun")
        self.begun = True

    def stop(self) -> None:
        """End the work within a step. Results so far remain."""
        self.cancel.set()

    def replace(self) -> LatestRun:
        """Stop this task and show nothing more of it. returns: the next task"""
        self.replaced = True
        self.cancel.set()
        return LatestRun(self.visitor)


@dataclass(slots=True)
class TabState:
    """State of a visitor in one tab, stored in `gr.State`: the latest task, and more in a tab that needs it."""

    task: LatestRun = field(default_factory=LatestRun, kw_only=True)

    def close(self) -> None:
        """Stop the task, and free the memory of the visitor, who has left."""
        self.task.replace()


def create_state() -> gr.State:
    """Create the component for a visitor's state in a tab, which is closed after the visitor has left."""
    return gr.State(None, time_to_live=VISITOR_SECONDS, delete_callback=leave)


def leave(visitor: TabState | None) -> None:
    """The visitor has gone: a callback of `gr.State`."""
    if visitor is not None:
        visitor.close()


class Shown:
    """Results of a task, which grow while the work continues. error: the one that ended it"""

    error: UserError | None = None

    def value(self) -> object:
        """The value of the components as it is now."""
        raise NotImplementedError

    def wait(self, sentence: str) -> None:
        """Show the position in the queue; "" when the turn has come. Most results do not show it."""

    def fail(self, error: UserError) -> None:
        self.error = error


class Lines(Shown):
    """An append-only text of JSON lines, which the script reads as it grows."""

    def __init__(self, text: str = "") -> None:
        self._parts = [text]

    def add(self, *lines: str) -> None:
        self._parts += lines

    def restart(self, text: str) -> None:
        self._parts = [text]

    def value(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def wait(self, sentence: str) -> None:
        self.add(present.waiting_line(sentence or words.TURN))

    def fail(self, error: UserError) -> None:
        self.add(present.notice_line(error))


def stream(
    studio: EngineClient | None,
    task: LatestRun,
    work: Generator[object, None, None],
    shown: Shown,
    *,
    kind: str | None = "run",
    counts: bool = True,
    waiting: object = None,
    seconds: float = YIELD_SECONDS,
) -> Generator[object, None, None]:
    """Wait for the model and for a turn, do the work, and yield its growing results.

    studio: waited for until its model is ready, has failed or the task is stopped; None for no model
    kind: of the work, for the queue of the engine; None for work that queues by itself
    counts: whether it counts for the visitor's runs per minute
    waiting: value while the model is loaded, None for no change; seconds: least time between two values
    yields: values of the components; the last one at the end, unless the task was replaced

    Closing the generator, as Gradio does when the browser disconnects, stops the task and closes the work.
    """
    with ExitStack() as ending:
        ending.enter_context(closing(work))
        task.begin()
        try:
            yield from _load(studio, task, waiting)
            if studio and studio.ready and not task.cancel.is_set():
                if counts:
                    begin_run(studio, task.visitor)
                if kind:
                    turn = studio.admission.turn(task.visitor, kind=kind, cancel=task.cancel)
                    yield from _stand(studio, ending.enter_context(turn), task, shown)
                    ending.enter_context(closing(work))  # before the next visitor gets the slot
            if task.replaced:
                yield gr.skip()
                return
            yield from _shown(task, work, shown, seconds)
        except UserError as error:
            shown.fail(error)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            shown.fail(unexpected_error(error))
        finally:
            task.stop()  # also after the browser has disconnected: all work must end
    if not task.replaced:
        yield shown.value()


def _shown(
    task: LatestRun, work: Iterator[object], shown: Shown, seconds: float
) -> Iterator[object]:
    """Do the work. yields: its first result at once, later ones at most once in so many seconds; nothing after the task was replaced"""
    looked = time.monotonic() - seconds
    for _ in work:
        if time.monotonic() - looked >= seconds and not task.replaced:
            yield shown.value()
            looked = time.monotonic()


def _load(studio: EngineClient | None, task: LatestRun, waiting: object) -> Iterator[object]:
    """Wait for the model. waiting: shown meanwhile; None leaves the page as it is"""
    while not (studio is None or studio.ready or studio.error or task.cancel.wait(LOADING_SECONDS)):
        yield gr.skip() if waiting is None else waiting  # a closed browser is noticed here


def _stand(studio: EngineClient, turn: Turn, task: LatestRun, shown: Shown) -> Iterator[object]:
    """Wait in the queue for a turn, or until the task is over. Raises UserError if the model has changed."""
    told = ""
    for waiting in turn:
        sentence = present.place(waiting)
        if sentence != told and not task.replaced:
            told = sentence
            shown.wait(told)
            yield shown.value()
        else:
            yield gr.skip()  # a closed browser is noticed here
    if told and turn.admitted:
        go_on(studio, task.visitor)
        shown.wait("")
        yield shown.value()


def unexpected_error(error: Exception) -> UserError:
    """Return the error for an exception that no code expects."""
    return UserError("page.unexpected", error=error)


V = TypeVar("V", bound=TabState)


class RunTab(Generic[V]):
    """Handlers of a tab that runs something, bound to one studio. State of visitors is in `gr.State`.

    words: with WAIT_TURN and WAIT_LOADING
    """

    words: ClassVar[Any] = words

    def __init__(self, studio: EngineClient) -> None:
        self.studio = studio

    def newcomer(self) -> V:
        """Return the state of a visitor who has just come."""
        return cast("V", TabState())

    def renewed(self, visitor: V | None) -> V:
        """Return the visitor with a new task. The one before is replaced."""
        visitor = visitor or self.newcomer()
        visitor.task = visitor.task.replace()
        return visitor

    def opening(self, visitor: V, waiting: str, *asked: object) -> object:
        """Return the view until the run starts. waiting: reason why it waits"""
        raise NotImplementedError

    def begin(self, visitor: V | None, *asked: object) -> tuple[V, object]:
        """Handle the button immediately. returns: visitor, and the view until the run starts"""
        visitor = self.renewed(visitor)
        if self.studio.replay_only:
            gr.Info(str(self.studio.replay_only), duration=None)
            return visitor, gr.skip()
        waiting = self.words.WAIT_TURN if self.studio.ready else self.words.WAIT_LOADING
        return visitor, self.opening(visitor, waiting, *asked)

    def stream(
        self, visitor: V, work: Generator[object, None, None], shown: Shown, **options: Any
    ) -> Iterator[object]:
        """Do the work after `begin`. options: of the function `stream`"""
        if self.studio.replay_only:  # `begin` has shown why
            yield gr.skip()
            return
        yield from stream(self.studio, visitor.task, work, shown, **options)

    def connect(
        self,
        pressed: list[Any],
        stop: gr.Button,
        state: gr.State,
        view: gr.HTML,
        run: Callable[..., Iterator[object]],
        inputs: list[Any],
        fields: JsonView,
        asked: Sequence[Any] = (),
    ) -> Any:
        """Connect the events of a run. returns: the last one

        run: handler of the visitor, the inputs and the values of the fields by name
        asked: inputs of `opening`
        """
        begun = gr.on(pressed, self.begin, [state, *asked], [state, view], **QUICK)
        stop.click(self.stop, state, None, **QUICK)
        given = [state, *inputs, *fields.values()]
        return begun.then(by_name(run, fields), given, view, **IN_LINE)

    def stop(self, visitor: V | None) -> None:
        """End the run within one step. Results so far remain."""
        if visitor is not None:
            visitor.task.stop()

    def recording(self, index: int) -> str:
        """Return the value of the view for a recording of the tab's menu; the script fetches its runs."""
        raise NotImplementedError

    def replay(self, visitor: V | None, index: int | None) -> object:
        """Show a recording instead of a run that continues or waits. returns: value of the view"""
        if visitor is not None:
            visitor.task.replace()
        return gr.skip() if index is None else self.recording(index)


def create_ask(
    name: str, prompt: str, label: str, run: tuple[str, str], stop: str, *, live: bool
) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    """Create the row with the prompt, the button that runs it and the one that stops.

    name: part of the elements' ids; run: its id and its label; live: whether it can be pressed
    """
    with gr.Row(elem_classes="sd-race-ask"):
        box = gr.Textbox(
            prompt,
            label=label,
            show_label=False,
            container=False,
            lines=1,
            max_lines=3,
            scale=8,
            elem_id=f"sd-{name}-prompt",
        )
        start = gr.Button(
            run[1], variant="primary", scale=1, elem_id=f"sd-{name}-{run[0]}", interactive=live
        )
        return box, start, gr.Button(stop, scale=1, elem_id=f"sd-{name}-stop")


def create_recorded(name: str, choices: list[tuple[str, int]], label: str) -> gr.Dropdown:
    """Create the menu of a tab's recordings; the first one is chosen."""
    return gr.Dropdown(
        choices,
        value=0 if choices else None,
        label=label,
        show_label=False,
        container=False,
        elem_id=f"sd-{name}-recorded",
    )
