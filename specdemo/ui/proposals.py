"""What every drafter would have drafted at the same place of the same text."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.errors import UserError
from specdemo.scenarios.proposals import ANSWER, Guess, Place, Text
from specdemo.scenarios.race import recorded_together
from specdemo.session.studio import Studio
from specdemo.settings import MAX_LOOKAHEAD, RunSettings, Sampling
from specdemo.trace.codec import encode
from specdemo.ui import words as page
from specdemo.ui.handlers import LOADING_SECONDS, YIELD_SECONDS
from specdemo.ui.race import ALONE, QUICK, unexpected
from specdemo.ui.view import RUNS, mounted
from specdemo.ui.words.en import proposals as words

TOKENS, LOOKAHEAD = 64, 6


@dataclass(slots=True)
class Looker:
    """One visitor's text and the place looked at. turn: counts what was asked for; what is older shows nothing more"""

    place: Place
    text: Text | None = None
    position: int = 0
    turn: int = 0
    cancel: threading.Event = field(default_factory=threading.Event)

    def next_turn(self) -> None:
        """What still goes on ends within a step."""
        self.cancel.set()
        self.cancel = threading.Event()
        self.turn += 1

    def leave(self) -> None:
        """Nobody is there any more: free the caches."""
        self.cancel.set()
        self.place.close()


class Proposals:
    """Handlers bound to one studio; they hold nothing of a visitor, that is what `Looker` is for."""

    def __init__(self, studio: Studio, folder: Path = RUNS) -> None:
        self.studio = studio
        self.recorded = [runs for runs in recorded_together(folder) if len(runs) > 1]
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))["runs"]
        self._prompts = {run["name"]: run["prompt"] for run in index}

    def choices(self) -> list[tuple[str, int]]:
        """Entries of the menu of recorded texts."""
        return [
            (
                words.RECORDED.format(runs=len(runs), prompt=self._prompts[runs[0].run]),
                place,
            )
            for place, runs in enumerate(self.recorded)
        ]

    def first(self) -> str:
        """What the tab shows before anything was written: the first recorded text."""
        return self.stream(0) if self.recorded else self._value()

    def stream(self, place: int) -> str:
        """A recorded text; its runs are fetched by the script."""
        runs = self.recorded[place]
        names = [lane.run for lane in runs]
        return self._value("recorded", runs=names, prompt=self._prompts[names[0]])

    def replay(self, looker: Looker | None, place: int | None) -> object:
        """A recorded text was chosen. returns: value of the view"""
        if looker is not None:
            looker.next_turn()
        return gr.skip() if place is None else self.stream(place)

    def begin(self, looker: Looker | None) -> tuple[Looker, object]:
        """Write was pressed; answered at once. returns: looker, value of the view"""
        looker = looker or Looker(Place(self.studio))
        looker.next_turn()
        if self.studio.replay_only:
            gr.Info(str(self.studio.replay_only), duration=None)
            return looker, gr.skip()
        waiting = words.WAIT_TURN if self.studio.ready else words.WAIT_LOADING
        return looker, self._value(phase="writing", waiting=waiting)

    def write(
        self,
        looker: Looker,
        prompt: str | None,
        system: str | None,
        tokens: float,
        temperature: float,
    ) -> Iterator[object]:
        """The target writes the text. yields: value of the view"""
        turn, cancel, seen = looker.turn, looker.cancel, 0.0
        looker.text = None
        while not (self.studio.ready or self.studio.error or cancel.wait(LOADING_SECONDS)):
            yield gr.skip()  # a closed browser is noticed here
        if self.studio.replay_only or looker.turn != turn:
            yield gr.skip()
            return
        error: UserError | None = None
        try:
            written = looker.place.write(
                prompt or "",
                most=int(tokens),
                system=system or "",
                sampling=Sampling(temperature=float(temperature)),
                cancel=cancel,
            )
            with closing(written):
                for looker.text in written:
                    if time.monotonic() - seen >= YIELD_SECONDS and looker.turn == turn:
                        seen = time.monotonic()
                        yield self._shown(looker, phase="writing")
            if not (looker.text and looker.text.tokens):
                raise UserError(words.EMPTY, advice=words.EMPTY_ADVICE)
        except UserError as told:
            error = told
        except Exception as broke:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            error = unexpected(broke)
        if looker.turn == turn:
            looker.position = len(looker.text.tokens) // 4 if looker.text else 0
            yield self._shown(looker, error=error)

    def choose(self, looker: Looker | None, sent: str) -> tuple[Looker, object]:
        """A place was chosen on the page; answered at once. sent: {"position": n}. returns: looker, value of the view"""
        looker = looker or Looker(Place(self.studio))
        looker.next_turn()
        if not looker.text:
            return looker, self._value(
                error=str(UserError(words.NO_TEXT, advice=words.NO_TEXT_ADVICE))
            )
        position = int(json.loads(sent).get("position", 0))
        looker.position = max(0, min(len(looker.text.tokens), position))
        return looker, self._shown(looker, phase="asking", waiting=words.WAIT_TURN)

    def ask(
        self, looker: Looker, policy: str, lookahead: float, temperature: float
    ) -> Iterator[object]:
        """Every drafter, at the chosen place. yields: value of the view, a row longer each time"""
        turn, cancel = looker.turn, looker.cancel
        if not looker.text or cancel.is_set():
            yield gr.skip()
            return
        rows: list[dict[str, object]] = []
        error: UserError | None = None
        titles = self._titles()
        left = [name for name in titles if name != ANSWER]
        try:
            settings = RunSettings(
                policy=policy,
                lookahead=int(lookahead),
                sampling=Sampling(temperature=float(temperature)),
            )
            yield self._shown(looker, phase="asking", asking=titles[left[0]])
            asked = looker.place.guesses(looker.text, looker.position, settings, cancel=cancel)
            with closing(asked):
                for guess in asked:
                    rows.append(_row(guess, titles))
                    left.remove(guess.method)
                    if left and looker.turn == turn:
                        yield self._shown(looker, rows=rows, phase="asking", asking=titles[left[0]])
        except UserError as told:
            error = told
        except Exception as broke:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            error = unexpected(broke)
        if looker.turn == turn:
            phase = "stopped" if cancel.is_set() else "done"
            yield self._shown(looker, rows=rows, phase=phase, error=error)

    def stop(self, looker: Looker | None) -> None:
        """Stop was pressed: what is there is kept."""
        if looker is not None:
            looker.cancel.set()

    def _titles(self) -> dict[str, str]:
        return {method.name: method.title for method in self.studio.methods()}

    def _shown(
        self,
        looker: Looker,
        *,
        rows: list[dict[str, object]] | None = None,
        phase: str = "choose",
        error: UserError | None = None,
        **more: str,
    ) -> str:
        """The looker's text and place as a value of the view."""
        text = looker.text
        info = self.studio.pair.target.info if self.studio.ready else None
        return self._value(
            phase=phase if text else "empty",
            prompt=text.prompt if text else "",
            tokens=[node.text for node in text.tokens] if text else [],
            position=looker.position,
            rows=rows or [],
            machine=f"{info.name} {info.precision}" if info else "",
            error=str(error or ""),
            **more,
        )

    def _value(self, source: str = "live", **shown: object) -> str:
        """Value of the view, see proposals.js."""
        methods = [
            {"name": method.name, "title": method.title, "lossy": method.lossy}
            for method in self.studio.methods()
        ]
        return json.dumps(
            {"source": source, "key": uuid.uuid4().hex, "methods": methods, **shown},
            ensure_ascii=False,
        )


def _row(guess: Guess, titles: dict[str, str]) -> dict[str, object]:
    """One method's row: its two events as they stand in a trace, or why there are none."""
    events = [json.loads(encode(event)) for event in (guess.drafted, guess.verified) if event]
    return {
        "method": guess.method,
        "title": titles.get(guess.method, guess.method),
        "events": events,
        "why": guess.why_not,
    }


def create_proposals(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
    proposals = Proposals(studio)
    looker = gr.State(None, time_to_live=3600, delete_callback=_leave)
    gr.Markdown(words.LEAD, elem_classes="sd-lead")
    with gr.Row(elem_classes="sd-race-ask"):
        prompt = gr.Textbox(
            words.EXPLAIN,
            label=words.PROMPT,
            show_label=False,
            container=False,
            lines=1,
            max_lines=3,
            scale=8,
            elem_id="sd-proposals-prompt",
        )
        write = gr.Button(words.WRITE, variant="primary", scale=1, elem_id="sd-proposals-write")
        stop = gr.Button(words.STOP, scale=1, elem_id="sd-proposals-stop")
    with gr.Row(elem_classes="sd-race-presets"):
        recorded = gr.Dropdown(
            proposals.choices(),
            value=0 if proposals.recorded else None,
            label=words.RECORDED_LABEL,
            show_label=False,
            container=False,
            elem_id="sd-proposals-recorded",
        )
    with gr.Accordion(words.SETTINGS, open=False), gr.Row():
        policy = gr.Dropdown(
            [(title, name) for name, title in page.POLICIES.items()],
            value="constant",
            label=words.POLICY,
        )
        lookahead = gr.Slider(1, MAX_LOOKAHEAD, LOOKAHEAD, step=1, label=words.LOOKAHEAD)
        temperature = gr.Slider(0, 2, 0, step=0.05, label=words.TEMPERATURE)
        tokens = gr.Slider(16, 256, TOKENS, step=8, label=words.TOKENS)
        system = gr.Textbox(label=words.SYSTEM, lines=2)
    view = mounted(
        proposals.first(),
        "proposals/proposals.js",
        "mountProposals",
        "sd-proposals-view",
        own_words={"view": page.VIEW, **words.WORDS},
    )
    drafting: list[Any] = [looker, policy, lookahead, temperature]

    begun = gr.on([write.click, prompt.submit], proposals.begin, looker, [looker, view], **QUICK)
    begun.then(
        proposals.write,
        [looker, prompt, system, tokens, temperature],
        view,
        show_progress="hidden",
        **ALONE,
    ).then(proposals.ask, drafting, view, show_progress="hidden", **ALONE)
    view.sent(proposals.choose, [looker, view], [looker, view], **QUICK).then(
        proposals.ask, drafting, view, show_progress="hidden", **ALONE
    )
    stop.click(proposals.stop, looker, None, **QUICK)
    recorded.input(proposals.replay, [looker, recorded], view, **QUICK)


def _leave(looker: Looker | None) -> None:
    if looker is not None:
        looker.leave()
