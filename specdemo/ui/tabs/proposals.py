"""Drafts of every method at the same position of the same text."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import gradio as gr

from specdemo.config.errors import UserError
from specdemo.config.strings import strings
from specdemo.session.admission import TIMED
from specdemo.session.door import EngineClient
from specdemo.session.work.proposals import Comparison, Guess, Text
from specdemo.session.work.race import recorded_together
from specdemo.trace.codec import encode
from specdemo.trace.events import NOTHING
from specdemo.trace.replay import RUNS, RecordedRun
from specdemo.ui import words as page
from specdemo.ui.checks import asked_settings, asked_system, asked_text
from specdemo.ui.run_tab import (
    IN_LINE,
    QUICK,
    LatestRun,
    RunTab,
    Shown,
    TabState,
    create_ask,
    create_state,
    current_session_id,
    stream,
)
from specdemo.ui.settings_panel import by_name, create_widget
from specdemo.ui.view import Tab, mounted

words = strings("proposals")

TOKENS, LOOKAHEAD = 64, 6


@dataclass(slots=True)
class ProposalVisitor(TabState):
    """Text of one visitor, the chosen position in it, and the latest task."""

    comparison: Comparison
    text: Text | None = None
    position: int = 0

    def close(self) -> None:
        """Free the caches after the visitor has left."""
        self.task.replace()
        self.comparison.close()


class ProposalHandlers(RunTab[ProposalVisitor]):
    """Handlers of the tab of drafts."""

    words = words
    kind: ClassVar[str | None] = TIMED
    recorded: Sequence[Sequence[RecordedRun]]

    def __init__(self, studio: EngineClient, folder: Path = RUNS) -> None:
        super().__init__(studio)
        together = [runs for runs in recorded_together(folder) if len(runs) > 1]
        self.recorded = sorted(together, key=len, reverse=True)  # the most to compare first

    def title(self, index: int) -> str:
        runs = self.recorded[index]
        methods = {run.method for run in runs}
        return str(words.RECORDED.format(runs=len(methods), prompt=runs[0].prompt))

    def recording(self, index: int) -> str:
        runs = self.recorded[index]
        return self.view("recorded", runs=[run.name for run in runs], prompt=runs[0].prompt)

    def newcomer(self) -> ProposalVisitor:
        return ProposalVisitor(Comparison(self.studio, current_session_id()))

    def opening(self, visitor: ProposalVisitor, waiting: str, *asked: object) -> str:
        visitor.text = None
        return self.view(phase="writing", waiting=waiting)

    def shown(self, visitor: ProposalVisitor) -> _Shown:
        return _Shown(self, visitor, "writing")

    def work(
        self,
        visitor: ProposalVisitor,
        shown: _Shown,
        prompt: str | None,
        system: str | None,
        values: Mapping[str, object],
    ) -> Generator[None, None, None]:
        """Let the target write the text. values: settings by name"""
        settings = asked_settings(values, self.studio.settings)
        prompt, system = asked_text(prompt), asked_system(system)
        text = visitor.comparison.write(prompt, settings, system=system, cancel=shown.task.cancel)
        with closing(text):
            for visitor.text in text:
                yield
        if not (visitor.text and visitor.text.tokens):
            raise UserError("proposals.empty")
        shown.end()
        if not shown.task.cancel.is_set():
            visitor.task = LatestRun(shown.task.visitor)  # next task: the drafters

    def choose(self, visitor: ProposalVisitor | None, sent: str) -> tuple[ProposalVisitor, object]:
        """Handle the choice of a position immediately. sent: {"position": n}. returns: visitor, value of the view"""
        visitor = self.renewed(visitor)
        if not visitor.text:
            return visitor, self.view(error=str(UserError("proposals.no_text")))
        visitor.position = max(0, min(len(visitor.text.tokens), _position(sent)))
        shown = _Shown(self, visitor, "asking", waiting=words.WAIT_TURN)
        return visitor, shown.value()

    def ask(self, visitor: ProposalVisitor, values: Mapping[str, object]) -> Iterator[object]:
        """Run every drafter at the chosen position, and yield the view's value after each. values: settings by name"""
        if not visitor.text or visitor.task.cancel.is_set():
            yield gr.skip()
            return
        shown = _Shown(self, visitor, "asking")
        work = self._ask(shown, visitor.text, values)
        yield from stream(self.studio, work, shown, kind=self.kind, counts=False, seconds=0)

    def _ask(
        self, shown: _Shown, text: Text, values: Mapping[str, object]
    ) -> Generator[None, None, None]:
        """Let each drafter guess; its guess is one more row."""
        titles = {method.name: method.title for method in self.studio.methods()}
        left = [name for name in titles if name != NOTHING]
        settings = asked_settings(values, self.studio.settings)
        shown.asking = titles[left[0]]
        yield
        guesses = shown.visitor.comparison.guesses(
            text, shown.visitor.position, settings, cancel=shown.task.cancel
        )
        with closing(guesses):
            for guess in guesses:
                shown.rows.append(_row(guess, titles))
                left.remove(guess.method)
                if left:
                    shown.asking = titles[left[0]]
                    yield
        shown.asking = ""
        shown.end()

    def view(self, source: str = "live", **shown: object) -> str:
        """Return the value of the view, see proposals.js."""
        methods = [
            {"name": method.name, "title": method.title, "lossy": method.lossy}
            for method in self.studio.methods()
        ]
        return json.dumps(
            {"source": source, "key": uuid.uuid4().hex, "methods": methods, **shown},
            ensure_ascii=False,
        )


class _Shown(Shown):
    """Text and position of a visitor, and one row per drafter.

    asking: title of the drafter that runs now
    """

    def __init__(
        self, handlers: ProposalHandlers, visitor: ProposalVisitor, phase: str, waiting: str = ""
    ) -> None:
        super().__init__(visitor.task)
        self.handlers, self.visitor = handlers, visitor
        self.phase, self.waiting, self.asking = phase, waiting, ""
        self.rows: list[dict[str, object]] = []

    def value(self) -> str:
        text, studio = self.visitor.text, self.handlers.studio
        info = studio.target if studio.ready else None
        return self.handlers.view(
            phase=self.phase if text else "empty",
            prompt=text.prompt if text else "",
            tokens=[node.text for node in text.tokens] if text else [],
            position=self.visitor.position,
            rows=self.rows,
            machine=f"{info.name} {info.precision}" if info else "",
            error=str(self.error or ""),
            waiting=self.waiting,
            asking=self.asking,
        )

    def wait(self, sentence: str) -> None:
        self.waiting = sentence

    def end(self) -> None:
        """Set the final phase: after writing, the position is the text's first quarter; rows remain."""
        if self.phase == "asking":
            self.phase = "stopped" if self.task.cancel.is_set() else "done"
            return
        self.phase, text = "choose", self.visitor.text
        if not self.task.replaced:
            self.visitor.position = len(text.tokens) // 4 if text else 0

    def fail(self, error: UserError) -> None:
        self.end()
        self.error = error


def _position(sent: str) -> int:
    """Return the position that the page has sent. Raises UserError."""
    try:
        position = json.loads(sent)["position"]
    except (ValueError, TypeError, KeyError, RecursionError):
        position = None
    if type(position) is not int:
        raise UserError("proposals.no_position")
    return position


def _row(guess: Guess, titles: dict[str, str]) -> dict[str, object]:
    """Return one method's row: its two events as in a trace, or the reason why there are none."""
    events = [json.loads(encode(event)) for event in (guess.drafted, guess.verified) if event]
    return {
        "method": guess.method,
        "title": titles.get(guess.method, guess.method),
        "events": events,
        "why": guess.why_not,
    }


def create_proposals(studio: EngineClient) -> None:
    """Create the tab's components and their events. Call it inside the tab."""
    handlers = ProposalHandlers(studio)
    visitor = create_state()
    run = ("write", words.WRITE)
    prompt, write, stop, _, recorded = create_ask(handlers, "proposals", run)
    with gr.Accordion(words.SETTINGS, open=False), gr.Row():
        drafting = {
            "policy": create_widget("policy", value="constant"),
            "lookahead": create_widget("lookahead", value=LOOKAHEAD),
        }
        writing = {
            "temperature": create_widget("temperature"),
            "max_new_tokens": create_widget(
                "max_new_tokens", value=TOKENS, minimum=16, maximum=256, label=words.TOKENS
            ),
        }
        drafting["temperature"] = writing["temperature"]
        system = gr.Textbox(label=words.SYSTEM, lines=2)
    view = mounted(
        handlers.recording(0) if handlers.recorded else handlers.view(),
        "proposals/proposals.js",
        "mountProposals",
        "sd-proposals-view",
        own_words={"view": page.VIEW, **words.WORDS},
    )
    pressed = [write.click, prompt.submit]
    written = handlers.connect(pressed, stop, visitor, view, [prompt, system], writing)
    chosen = view.sent(handlers.choose, [visitor, view], [visitor, view], **QUICK)
    for event in (written, chosen):
        event.then(
            by_name(handlers.ask, drafting),
            [visitor, *drafting.values()],
            view,
            **IN_LINE,
        )
    recorded.input(handlers.replay, [visitor, recorded], view, **QUICK)


TAB = Tab(
    3,
    "proposals",
    page.TAB_PROPOSALS,
    create_proposals,
    lambda *site: ProposalHandlers(*site).site(),
)
