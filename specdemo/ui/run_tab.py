"""Base of all tabs that run something: one task per visitor, the loop that streams its results, and common components."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import gradio as gr
from gradio.components import Component
from gradio.context import LocalContext
from gradio.events import Dependency

from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView
from specdemo.session.admission import Cancel, Turn
from specdemo.session.door import EngineClient
from specdemo.ui import present, words
from specdemo.ui.settings_panel import by_name
from specdemo.ui.visits import check_run

LOADING_SECONDS = 0.5  # seconds between polls whether the model is ready
# Appends are joined: each update takes a core from the pass, and nobody reads more than four in a second.
YIELD_SECONDS = 1 / 4
VISITOR_SECONDS = 3600  # seconds until the `gr.State` of a visitor who left is dropped
QUICK: Json = {"queue": False, "show_progress": "hidden"}  # answered immediately
BARE: Json = {"show_label": False, "container": False}  # options of a component without frame
# The same with messages, which reach the page through the queue alone.
TELLING: Json = {"concurrency_limit": None, "show_progress": "hidden"}
# Events that use the engine: its queue decides on the order. Gradio's queue would drop a run before the previous run's end.
IN_LINE: Json = {"concurrency_limit": None, "show_progress": "hidden", "trigger_mode": "multiple"}
Follow: TypeAlias = tuple[Callable[..., object], object, object]
"""Handler, inputs and outputs of an event that follows another one."""


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
    """State of a visitor in one tab, stored in `gr.State`: the latest task, and more in a tab that needs it.

    opening: value of the view until the task's results are there
    """

    task: LatestRun = field(default_factory=LatestRun, kw_only=True)
    opening: object = field(default=None, kw_only=True)

    def close(self) -> None:
        """Stop the task, and free the memory of the visitor, who has left."""
        self.task.replace()


def create_state() -> gr.State:
    """Create the component for a visitor's state in a tab, which is closed after the visitor has left."""
    return gr.State(None, time_to_live=VISITOR_SECONDS, delete_callback=leave)


def leave(visitor: TabState | None) -> None:
    """Close the state of a visitor who has left: a callback of `gr.State`."""
    if visitor is not None:
        visitor.close()


class Shown:
    """Results of a task, which grow while the work continues. error: the one that ended it"""

    error: UserError | None = None

    def __init__(self, task: LatestRun) -> None:
        self.task = task

    def value(self) -> object:
        """Return the present value of the components."""
        raise NotImplementedError

    def wait(self, sentence: str) -> None:
        """Show the position in the queue; "" when the turn has come. Most results do not show it."""

    def fail(self, error: UserError) -> None:
        self.error = error


class Lines(Shown):
    """An append-only text of JSON lines, which the script reads as it grows."""

    def __init__(self, task: LatestRun, text: str = "") -> None:
        super().__init__(task)
        self._parts = [text]

    def add(self, *lines: str) -> None:
        self._parts += lines

    def restart(self, text: str) -> None:
        self._parts = [text]

    def value(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def wait(self, sentence: str) -> None:
        self.add(present.line("waiting", text=sentence or words.TURN))

    def fail(self, error: UserError) -> None:
        parts = {"message": error.message, "unharmed": error.unaffected, "advice": error.advice}
        self.add(present.line("notice", **parts))


def stream(
    studio: EngineClient,
    work: Generator[object, None, None],
    shown: Shown,
    *,
    kind: str | None = "run",
    counts: bool = True,
    seconds: float = YIELD_SECONDS,
) -> Generator[object, None, None]:
    """Wait for the model and for a turn, do the work, and yield its growing results.

    studio: waited for until its model is ready, has failed or the task is stopped
    kind: of the work, for the queue of the engine; None for work that queues by itself
    counts: whether it counts for the visitor's runs per minute; seconds: least time between two values
    yields: values of the components; the last one at the end, an empty update if the task was replaced

    Closing the generator, as Gradio does when the browser disconnects, stops the task and closes the work.
    """
    task = shown.task
    with ExitStack() as ending:
        ending.enter_context(closing(work))
        task.begin()
        try:
            yield from _load(studio, task)
            if studio.ready and not task.cancel.is_set():
                if counts:
                    check_run(studio, task.visitor, begins=True)
                if kind:
                    turn = studio.admission.turn(task.visitor, kind=kind, cancel=task.cancel)
                    yield from _stand(studio, ending.enter_context(turn), shown)
                    ending.enter_context(closing(work))  # before the next visitor gets the slot
            if task.replaced:
                yield gr.skip()
                return
            looked = time.monotonic() - seconds  # the first result is shown immediately
            for _ in work:
                if time.monotonic() - looked >= seconds and not task.replaced:
                    yield shown.value()
                    looked = time.monotonic()
        except UserError as error:
            shown.fail(error)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            shown.fail(UserError("page.unexpected", error=error))
        finally:
            task.stop()  # also after the browser has disconnected: all work must end
    yield gr.skip() if task.replaced else shown.value()


def _load(studio: EngineClient, task: LatestRun) -> Iterator[object]:
    """Wait for the model."""
    while not (studio.ready or studio.error or task.cancel.wait(LOADING_SECONDS)):
        yield gr.skip()  # a closed browser is noticed here


def _stand(studio: EngineClient, turn: Turn, shown: Shown) -> Iterator[object]:
    """Wait in the queue for a turn, or until the task is over. Raises UserError if the model has changed."""
    task, told = shown.task, ""
    for waiting in turn:
        sentence = present.place(waiting)
        if sentence != told and not task.replaced:
            told = sentence
            shown.wait(told)
            yield shown.value()
        else:
            yield gr.skip()  # a closed browser is noticed here
    if told and turn.admitted:
        check_run(studio, task.visitor)
        shown.wait("")
        yield shown.value()


V = TypeVar("V", bound=TabState)


class RunTab(Generic[V]):
    """Handlers of a tab that runs something, bound to one studio. State of visitors is in `gr.State`.

    words: with WAIT_TURN and WAIT_LOADING; kind: see `stream`
    recorded: recordings of the tab's menu
    """

    words: ClassVar[Any] = words
    kind: ClassVar[str | None] = "run"
    recorded: Sequence[object] = ()

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
        if self.studio.replay_only:  # `run` shows why
            return visitor, gr.skip()
        waiting = self.words.WAIT_TURN if self.studio.ready else self.words.WAIT_LOADING
        visitor.opening = self.opening(visitor, waiting, *asked)
        return visitor, visitor.opening

    def shown(self, visitor: V) -> Shown:
        """Return the results of the visitor's task, which are still empty: by default lines after the opening ones."""
        return Lines(visitor.task, str(visitor.opening))

    def work(self, visitor: V, shown: Any, *asked: Any) -> Generator[object, None, None]:
        """Do the work and add its results to `shown`. asked: unchecked values; yields after each result"""
        raise NotImplementedError

    def run(self, visitor: V, *asked: Any) -> Iterator[object]:
        """Do the work after `begin`. yields: value of the view, until the task is replaced"""
        if self.studio.replay_only:
            # Shown here, because messages reach the page through the queue alone.
            gr.Info(str(self.studio.replay_only), duration=None)
            yield gr.skip()
            return
        shown = self.shown(visitor)
        yield from stream(self.studio, self.work(visitor, shown, *asked), shown, kind=self.kind)

    def connect(
        self,
        pressed: Sequence[object],
        stop: gr.Button,
        state: gr.State,
        view: gr.HTML,
        inputs: Sequence[Component],
        fields: JsonView,
        asked: Sequence[Component] = (),
    ) -> Dependency:
        """Connect the events of a run. returns: the last one

        inputs, fields: of `run`, which receives the values of the fields by name as its last argument
        asked: inputs of `opening`
        """
        begun = gr.on(list(pressed), self.begin, [state, *asked], [state, view], **QUICK)
        stop.click(self.stop, state, None, **QUICK)
        given = [state, *inputs, *fields.values()]
        last: Dependency = begun.then(by_name(self.run, fields), given, view, **IN_LINE)
        return last

    def stop(self, visitor: V | None) -> None:
        """End the run within one step. Results so far remain."""
        if visitor is not None:
            visitor.task.stop()

    def title(self, index: int) -> str:
        """Return the entry of a recording in the tab's menu."""
        raise NotImplementedError

    def choices(self) -> list[tuple[str, int]]:
        """Return the entries of the menu of recordings."""
        return [(self.title(index), index) for index in range(len(self.recorded))]

    def recording(self, index: int) -> str:
        """Return the value of the view for a recording of the tab's menu; the script fetches its runs."""
        raise NotImplementedError

    def site(self) -> Json | None:
        """Return the tab's content on the static site: its recordings."""
        choices = [(str(index), title, self.recording(index)) for title, index in self.choices()]
        return {"choices": choices, "words": self.words.WORDS} if choices else None

    def replay(self, visitor: V | None, index: int | None) -> object:
        """Show a recording instead of a run that continues or waits. returns: value of the view"""
        if visitor is not None:
            visitor.task.replace()
        return gr.skip() if index is None else self.recording(index)


def create_ask(
    tab: RunTab[V], name: str, run: tuple[str, str], presets: Sequence[str] = ()
) -> tuple[gr.Textbox, gr.Button, gr.Button, list[gr.Button], gr.Dropdown]:
    """Create the lead, the prompt and the menu of recordings, the first of which is chosen.

    name: part of the elements' ids; run: its id and its label; presets: labels of more buttons
    returns: prompt, the button that runs it and the one that stops, the other buttons, the menu
    """
    words, live, choices = tab.words, not tab.studio.replay_only, tab.choices()
    gr.Markdown(words.LEAD, elem_classes="sd-lead")
    with gr.Row(elem_classes="sd-race-ask"):
        named = {"elem_id": f"sd-{name}-prompt", "label": words.PROMPT, **BARE}
        box = gr.Textbox(words.EXPLAIN, lines=1, max_lines=3, scale=8, **named)
        named = {"elem_id": f"sd-{name}-{run[0]}", "interactive": live}
        start = gr.Button(run[1], variant="primary", scale=1, **named)
        stop = gr.Button(words.STOP, scale=1, elem_id=f"sd-{name}-stop")
    with gr.Row(elem_classes="sd-race-presets"):
        buttons = [gr.Button(title, size="sm") for title in presets]
        named = {"elem_id": f"sd-{name}-recorded", "label": words.RECORDED_LABEL, **BARE}
        recorded = gr.Dropdown(choices, value=0 if choices else None, **named)
    return box, start, stop, buttons, recorded
