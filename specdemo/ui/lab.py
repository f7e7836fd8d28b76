"""The cost model with sliders, beside what this machine measured, and experiments on the real model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import gradio as gr

from specdemo.errors import UserError
from specdemo.scenarios import lab
from specdemo.session.studio import Studio
from specdemo.ui.view import mounted
from specdemo.ui.words.en.lab import WORDS

LOADING_SECONDS = 0.5  # between two looks at whether the model is there
VISITOR_SECONDS = 3600
LANES = 2 + len(
    lab.LOOKAHEADS
)  # of an experiment with a draft: plain decoding comes first and last
Tried = dict[str, dict[str, Any]]


@dataclass(slots=True)
class LabVisitor:
    """What one visitor has tried, and the switch that stops what is in progress.

    tried: by experiment; `state` is waiting, running, done, stopped or failed, `said` and `done` tell how far it is
    """

    tried: Tried = field(default_factory=dict)
    cancel: threading.Event = field(default_factory=threading.Event)


def create_lab(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
    words: Any = WORDS
    handlers = LabHandlers(studio)
    visitor = gr.State(None, time_to_live=VISITOR_SECONDS, delete_callback=_leave)
    mounted("", "lab/lab.js", "mountLab", "sd-lab", own_words=WORDS, answers=[handlers.machine])
    heading = f'<div class="sd-tried-head"><h2>{words["tried"]["title"]}</h2><p>{words["tried"]["lead"]}</p></div>'
    gr.HTML(heading, elem_id="sd-lab-heading", apply_default_css=False)
    with gr.Row(elem_id="sd-lab-buttons"):
        buttons = {
            name: gr.Button(words["buttons"][name], elem_id=f"sd-try-{name}")
            for name in EXPERIMENTS
        }
        stop = gr.Button(words["buttons"]["stop"], elem_id="sd-try-stop")
    results = mounted(
        "{}", "lab/experiments.js", "mountExperiments", "sd-lab-tried", own_words=WORDS
    )

    quick: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
    for name, button in buttons.items():
        button.click(
            lambda visitor, name=name: handlers.begin(visitor, name),
            visitor,
            [visitor, results],
            **quick,
        ).then(
            lambda visitor, name=name: (yield from handlers.run(visitor, name)),
            visitor,
            results,
            show_progress="hidden",
            concurrency_id="alone",  # what is timed takes turns, here and in the race
            concurrency_limit=1,
        )
    stop.click(handlers.stop, visitor, None, **quick)


class LabHandlers:
    """Handlers bound to one studio; what a visitor has tried is in `LabVisitor`."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

    def machine(self, _asked: str) -> dict[str, Any] | None:
        """What the script asks: this machine's costs, None while nothing is loaded."""
        return lab.machine(self.studio)

    def begin(self, visitor: LabVisitor | None, name: str) -> tuple[LabVisitor, str]:
        """A button was pressed; answered at once. returns: visitor, value of the results"""
        visitor = visitor or LabVisitor()
        visitor.cancel.set()  # an experiment of this visitor that is still going on ends within a step
        visitor.cancel = threading.Event()
        visitor.tried = {**visitor.tried, name: {"state": "waiting"}}
        return visitor, json.dumps(visitor.tried)

    def run(self, visitor: LabVisitor, name: str) -> Iterator[str]:
        """The experiment itself. yields: value of the results, fuller each time, until another one takes its place"""
        cancel, tried = visitor.cancel, visitor.tried
        while not (self.studio.ready or self.studio.error or cancel.wait(LOADING_SECONDS)):
            yield json.dumps(tried)  # a closed browser is noticed here
        one: dict[str, Any] = {"state": "running", "done": 0.0}
        try:
            for found in EXPERIMENTS[name](self.studio, cancel):
                one = {**one, **found}
                if visitor.cancel is cancel:
                    yield json.dumps({**tried, name: one})
            one["state"] = "stopped" if cancel.is_set() else "done"
        except UserError as error:
            one |= {"state": "failed", "error": _told(error)}
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            one |= {"state": "failed", "error": _told(_unexpected(error))}
        finally:
            cancel.set()  # also when the browser has gone: whatever still runs must end
        if visitor.cancel is cancel:
            visitor.tried = {**tried, name: one}
            yield json.dumps(visitor.tried)

    def stop(self, visitor: LabVisitor | None) -> None:
        """Stop was pressed: the experiment ends within one step and keeps what there is."""
        if visitor is not None:
            visitor.cancel.set()


def _lanes(
    measure: Callable[[Studio, threading.Event], Iterator[lab.Lane]],
) -> Callable[[Studio, threading.Event], Iterator[dict[str, Any]]]:
    """An experiment with a draft, lookahead by lookahead."""

    def run(studio: Studio, cancel: threading.Event) -> Iterator[dict[str, Any]]:
        lanes: list[dict[str, Any]] = []
        about = {"precision": studio.pair.target.info.precision, **(lab.machine(studio) or {})}
        yield {**about, "lanes": [], "said": {"name": "plain"}}
        for lane in measure(studio, cancel):
            lanes.append(asdict(lane))
            said = {"name": "lookahead", "lookahead": len(lanes), "most": len(lab.LOOKAHEADS)}
            if len(lanes) > len(lab.LOOKAHEADS):
                said = {"name": "plain"}
            yield {"lanes": lanes, "done": len(lanes) / LANES, "said": said}

    return run


def _look_back(studio: Studio, cancel: threading.Event) -> Iterator[dict[str, Any]]:
    """The real model first, which takes a moment, then the two words."""
    yield {"said": {"name": "places"}}
    real = lab.taken_back(studio, cancel)
    yield {"real": real and asdict(real), "done": 0.5, "said": {"name": "toy"}}
    if not cancel.is_set():
        toy = {name: asdict(row) for name, row in lab.two_words().items()}
        yield {"toy": toy, "done": 1.0}


EXPERIMENTS = {
    "perfect": _lanes(lab.perfect),
    "random": _lanes(lab.at_random),
    "look_back": _look_back,
}


def _told(error: UserError) -> dict[str, str]:
    return {"message": error.message, "unharmed": error.unharmed, "advice": error.advice}


def _unexpected(error: Exception) -> UserError:
    words: Any = WORDS["unexpected"]
    return UserError(
        words["message"].format(error=error), unharmed=words["unharmed"], advice=words["advice"]
    )


def _leave(visitor: LabVisitor | None) -> None:
    if visitor is not None:
        visitor.cancel.set()
