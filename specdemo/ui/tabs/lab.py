"""The cost model with sliders, next to the measurements of this machine, and experiments on the real model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.config.errors import UserError
from specdemo.config.strings import Json, strings
from specdemo.session.admission import TIMED
from specdemo.session.door import EngineClient, Work, perform
from specdemo.session.work import lab
from specdemo.ui import words as page
from specdemo.ui.run_tab import IN_LINE, QUICK, RunTab, Shown, TabState, create_state
from specdemo.ui.view import Tab, mounted

WORDS = strings("lab").WORDS

RUN_COUNT = 2 + len(lab.LOOKAHEADS)  # with a draft: plain decoding comes first and last
RUNNING = {"state": "running", "done": 0.0}
Tried = dict[str, Json]
Measured = Generator[Json, None, None]  # parts of a result, fuller each time


@dataclass(slots=True)
class LabVisitor(TabState):
    """Results of one visitor, and the latest experiment.

    tried: by experiment; `state` is waiting, running, done, stopped or failed, `said` and `done` are its progress,
        `place` its position in the queue
    """

    tried: Tried = field(default_factory=dict)


def create_lab(studio: EngineClient) -> None:
    """Create the tab's components and their events. Call it inside the tab."""
    words: Any = WORDS
    handlers = LabHandlers(studio)
    visitor = create_state()
    mounted("", "lab/lab.js", "mountLab", "sd-lab", own_words=WORDS, answers=[handlers.machine])
    heading = f'<div class="sd-tried-head"><h2>{words["tried"]["title"]}</h2><p>{words["tried"]["lead"]}</p></div>'
    gr.HTML(heading, elem_id="sd-lab-heading", apply_default_css=False)
    with gr.Row(elem_id="sd-lab-buttons"):
        buttons = {
            name: gr.Button(
                words["buttons"][name],
                elem_id=f"sd-try-{name}",
                interactive=not studio.replay_only,
            )
            for name in EXPERIMENTS
        }
        stop = gr.Button(words["buttons"]["stop"], elem_id="sd-try-stop")
    results = mounted(
        "{}", "lab/experiments.js", "mountExperiments", "sd-lab-tried", own_words=WORDS
    )

    for name, button in buttons.items():
        button.click(
            lambda visitor, name=name: handlers.begin(visitor, name),
            visitor,
            [visitor, results],
            **QUICK,
        ).then(
            lambda visitor, name=name: (yield from handlers.run(visitor, name)),
            visitor,
            results,
            **IN_LINE,
        )
    stop.click(handlers.stop, visitor, None, **QUICK)


class LabHandlers(RunTab[LabVisitor]):
    """Handlers of the experiments."""

    def machine(self, _asked: str) -> Json | None:
        """Return this machine's costs for the script, None until a model is loaded."""
        return self.studio.machine()

    def newcomer(self) -> LabVisitor:
        return LabVisitor()

    def opening(self, visitor: LabVisitor, waiting: str, *asked: Any) -> str:
        visitor.tried = {**visitor.tried, **{name: {"state": "waiting"} for name in asked}}
        return json.dumps(visitor.tried)

    def run(self, visitor: LabVisitor, name: str) -> Iterator[object]:
        """Run the experiment. yields: value of the results, fuller each time, until another one replaces it"""
        found = _Found(visitor, name)
        yield from self.stream(
            visitor,
            self._measure(found),
            found,
            kind=TIMED,
            waiting=json.dumps(found.tried),
            seconds=0,
            unexpected=lambda error: UserError("lab.failed", error=error),
        )

    def _measure(self, found: _Found) -> Generator[None, None, None]:
        with closing(EXPERIMENTS[found.name](self.studio, found.task.cancel)) as measured:
            for part in measured:
                found.one = {**found.one, **part}
                yield
        found.end("stopped" if found.task.cancel.is_set() else "done")


class _Found(Shown):
    """Results of an experiment so far, next to the visitor's earlier results."""

    def __init__(self, visitor: LabVisitor, name: str) -> None:
        self.visitor, self.name = visitor, name
        self.task, self.tried = visitor.task, visitor.tried
        self.one: Json = RUNNING

    def value(self) -> str:
        return json.dumps({**self.tried, self.name: self.one})

    def wait(self, sentence: str) -> None:
        self.one = {"state": "waiting", "place": sentence} if sentence else RUNNING

    def end(self, state: str, **more: object) -> None:
        """Store the final result for the visitor, unless another experiment has replaced this one."""
        self.one = {**self.one, "state": state, **more}
        if not self.task.replaced:
            self.visitor.tried = {**self.tried, self.name: self.one}

    def fail(self, error: UserError) -> None:
        parts = {"message": error.message, "unharmed": error.unaffected, "advice": error.advice}
        self.end("failed", error=parts)


def _lanes(work: Work) -> Callable[[EngineClient, threading.Event], Measured]:
    """An experiment with a draft, lookahead by lookahead."""

    def run(studio: EngineClient, cancel: threading.Event) -> Measured:
        lanes: list[Json] = []
        about = {"precision": studio.target.precision, **(studio.machine() or {})}
        yield {**about, "lanes": [], "said": {"name": "plain"}}
        for lane in perform(studio, work, cancel):
            lanes.append(lane)
            said = {"name": "lookahead", "lookahead": len(lanes), "most": len(lab.LOOKAHEADS)}
            if len(lanes) > len(lab.LOOKAHEADS):
                said = {"name": "plain"}
            yield {"lanes": lanes, "done": len(lanes) / RUN_COUNT, "said": said}

    return run


def _look_back(studio: EngineClient, cancel: threading.Event) -> Measured:
    """The real model first, which takes a moment, then the two words."""
    yield {"said": {"name": "places"}}
    real = next(perform(studio, lab.places_taken_back, cancel), None)
    yield {"real": real, "done": 0.5, "said": {"name": "toy"}}
    if not cancel.is_set():
        yield {"toy": lab.two_words(), "done": 1.0}


EXPERIMENTS = {
    "perfect": _lanes(lab.perfect_lanes),
    "random": _lanes(lab.random_lanes),
    "look_back": _look_back,
}


def _site(_studio: EngineClient, _runs: Path) -> dict[str, object]:
    return {"value": "{}", "words": WORDS}


TAB = Tab(4, "lab", page.TAB_LAB, create_lab, _site)
