"""What the page does: each handler takes the values of components and returns new ones."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import gradio as gr

from specdemo.errors import UserError
from specdemo.scenarios.batch import Answer, Totals, answer_all, new_texts
from specdemo.session.conversation import Conversation
from specdemo.session.menu import MethodInfo
from specdemo.session.studio import Studio
from specdemo.settings import RunSettings, Sampling
from specdemo.trace.codec import encode
from specdemo.trace.events import FinishReason, RunFinished, RunStarted, Verified
from specdemo.ui import present, words
from specdemo.ui.panels import OPTIONS, shown
from specdemo.ui.runs import recorded_runs

DETAIL = 5  # alternatives of both models that the inspector shows
MOST_PROMPTS = 16  # of one batch
BATCH_SECONDS = 1 / 10  # between two looks at a batch
LOADING_SECONDS = 0.5  # between two looks at whether the model is there
# Appends are joined: browsers lag on one update a token, and each takes a core from the pass.
YIELD_SECONDS = 1 / 8


@dataclass(slots=True)
class Visitor:
    """One visitor's conversation, its earlier turns, and the switches that stop what is in progress."""

    conversation: Conversation
    turns: list[tuple[str, str]] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=threading.Event)
    stream: str = ""
    cancel_batch: threading.Event = field(default_factory=threading.Event)

    def give_way(self) -> None:
        """A run that is still going on ends within a step, and shows nothing more."""
        self.cancel.set()
        self.cancel = threading.Event()

    def close(self) -> None:
        """Stop what runs, and free the caches."""
        self.cancel.set()
        self.cancel_batch.set()
        self.conversation.close()


class Handlers:
    """Handlers bound to one studio; they hold nothing of a visitor, that is what `Visitor` is for."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

    def arrive(self) -> tuple[Visitor, str]:
        """Page load. returns: visitor, status"""
        self.studio.start()
        return Visitor(self.studio.open()), self._status()

    def play(self, visitor: Visitor | None, name: str) -> str:
        """A recorded run was chosen; a live one that still goes on gives way to it. returns: stream"""
        if visitor is not None:
            visitor.give_way()
        run = next(run for run in recorded_runs() if run.name == name)
        return present.recorded_line(run, uuid.uuid4().hex)

    def menu(self, name: str) -> tuple[object, ...]:
        """What depends on the method and on the loaded pair. returns: updates of `panels.Controls.menu`, then the card"""
        methods = self.studio.methods()
        chosen = next((method for method in methods if method.name == name), methods[0])
        return (
            gr.update(choices=present.method_choices(methods)),
            present.method_note(chosen),
            *(gr.update(visible=shown(chosen, option)) for option in OPTIONS),
            self._card(chosen),
        )

    def audit(self) -> str:
        """Value of the view of the last audit."""
        return json.dumps(self.studio.last_audit())

    def tick(self, name: str) -> tuple[object, ...]:
        """returns: status, the timer and the menu; the last two change once there is nothing more to tell"""
        loading = self.studio.progress() is not None
        menu = [gr.skip()] * (3 + len(OPTIONS)) if loading else self.menu(name)
        return self._status(), gr.Timer(active=loading), *menu

    def begin(self, visitor: Visitor | None) -> tuple[Visitor, str]:
        """Run was pressed; answered at once, before the run has its turn. returns: visitor, stream"""
        visitor = visitor or Visitor(self.studio.open())
        visitor.give_way()
        if self.studio.replay_only:
            gr.Info(str(self.studio.replay_only), duration=None)
            return visitor, gr.skip()
        key = uuid.uuid4().hex
        waiting = words.WAIT_TURN if self.studio.ready else words.WAIT_LOADING
        first = present.open_line("live", key, waiting=waiting)
        visitor.stream = first + present.earlier_lines(visitor.turns)
        return visitor, visitor.stream

    def run(
        self, visitor: Visitor, prompt: str | None, system: str | None, *controls: object
    ) -> Iterator[str]:
        """The run itself. yields: the stream, longer each time, until something else takes its place

        prompt, system: None where the browser has never sent a box's text
        """
        if self.studio.replay_only:  # `begin` has said why
            yield gr.skip()
            return
        cancel = visitor.cancel
        with closing(self._streams(visitor, prompt or "", system or "", controls)) as streams:
            for stream in streams:
                if visitor.cancel is cancel:
                    yield stream

    def _streams(
        self, visitor: Visitor, prompt: str, system: str, controls: tuple[object, ...]
    ) -> Iterator[str]:
        cancel, stream = visitor.cancel, visitor.stream
        answer: list[str] = []
        while not (self.studio.ready or self.studio.error or cancel.wait(LOADING_SECONDS)):
            yield stream  # a closed browser is noticed here
        shown = time.monotonic()
        if cancel.is_set():
            yield present.open_line("live", uuid.uuid4().hex) + present.earlier_lines(visitor.turns)
            return
        try:
            settings = replace(read_controls(controls), detail=DETAIL)
            for event in visitor.conversation.run(
                prompt, settings, system=system, cancel=cancel, every=YIELD_SECONDS
            ):
                stream += encode(event) + "\n"
                if isinstance(event, RunStarted):
                    answer.clear()
                elif isinstance(event, Verified):
                    answer += new_texts(event)
                elif isinstance(event, RunFinished) and event.reason is FinishReason.STOP:
                    answer = answer[:-1]  # the token that ends an answer is no part of it
                if time.monotonic() - shown >= YIELD_SECONDS:
                    yield stream
                    shown = time.monotonic()
            visitor.turns.append((prompt, "".join(answer)))
        except UserError as error:
            stream += present.notice_line(error)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            stream += present.notice_line(_unexpected(error))
        finally:
            cancel.set()  # also when the browser has gone: whatever still runs must end
        yield stream

    def stop(self, visitor: Visitor | None) -> None:
        """Stop was pressed: the run ends within one step and keeps what there is."""
        if visitor is not None:
            visitor.cancel.set()

    def begin_batch(self, visitor: Visitor | None, text: str | None) -> tuple[Visitor, str]:
        """Run all was pressed; answered at once. returns: visitor, the prompts without answers"""
        visitor = visitor or Visitor(self.studio.open())
        visitor.cancel_batch.set()  # an earlier batch of this visitor ends within a step
        visitor.cancel_batch = threading.Event()
        waiting = words.BATCH_TURN if self.studio.ready else words.WAIT_LOADING
        return visitor, present.batch(_rows(prompt_lines(text)), waiting=waiting)

    def run_batch(
        self, visitor: Visitor, text: str | None, system: str | None, *controls: object
    ) -> Iterator[str]:
        """All prompts together. yields: value of the batch view, at most ten a second"""
        cancel, prompts, rows = visitor.cancel_batch, prompt_lines(text), []
        while not (self.studio.ready or self.studio.error or cancel.wait(LOADING_SECONDS)):
            yield present.batch(_rows(prompts), waiting=words.WAIT_LOADING)
        try:
            rows = _rows(_checked(prompts))
            totals, shown = None, time.monotonic()
            settings = read_controls(controls)
            batch = answer_all(self.studio, prompts, settings, system=system or "", cancel=cancel)
            with closing(batch):
                for told in batch:
                    if isinstance(told, Totals):
                        totals = told
                    else:
                        rows[told.place] = told
                    if time.monotonic() - shown >= BATCH_SECONDS:
                        yield present.batch(rows)
                        shown = time.monotonic()
            yield present.batch(rows, totals=totals)
        except UserError as error:
            yield present.batch(rows, error=error)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            yield present.batch(rows, error=_unexpected(error))
        finally:
            cancel.set()  # also when the browser has gone: whatever still runs must end

    def stop_batch(self, visitor: Visitor | None) -> None:
        """Stop all was pressed: each run ends within one step and keeps what there is."""
        if visitor is not None:
            visitor.cancel_batch.set()

    def new(self, visitor: Visitor | None) -> tuple[Visitor, str, str]:
        """New was pressed. returns: visitor, empty stream, empty prompt"""
        visitor = visitor or Visitor(self.studio.open())
        visitor.cancel.set()
        visitor.conversation.reset()
        visitor.turns.clear()
        return visitor, present.open_line("live", uuid.uuid4().hex), ""

    def forget(self, visitor: Visitor | None) -> None:
        """Forget was pressed: what earlier runs of this visit taught is dropped."""
        if visitor is not None:
            visitor.conversation.forget()
        gr.Info(words.FORGOTTEN)

    def switch(self, target: str, precision: str) -> Iterator[tuple[str, gr.Button]]:
        """Load another pair. yields: status, and the button, disabled meanwhile"""
        busy, free = gr.Button(interactive=False), gr.Button(interactive=True)
        drafts = {pair.target: pair.draft for pair in self.studio.pairs()}
        draft = drafts.get(target.strip(), "auto")
        try:
            for progress in self.studio.switch(target.strip(), draft, precision):
                yield self._loading(progress.stage, progress.detail, progress.done), busy
        except UserError as error:
            yield present.status("failed", str(error)), free
            return
        yield self._status(), free

    def _card(self, method: MethodInfo) -> str:
        """Value of the view of a method's training card."""
        if not self.studio.ready:
            return json.dumps({"none": words.CARD_LOADING})
        return present.training_card(method, self.studio.card(method.name))

    def _status(self) -> str:
        if self.studio.replay_only:
            return present.status("replay", words.REPLAY_ONLY)
        if self.studio.error and not self.studio.ready:
            return present.status("failed", words.FAILED.format(message=self.studio.error))
        if self.studio.ready:
            info = self.studio.pair.target.info
            return present.status(
                "ready", words.READY.format(target=info.name, precision=info.precision)
            )
        progress = self.studio.progress()
        if progress is None:
            return self._loading("start", "", None)
        return self._loading(progress.stage, progress.detail, progress.done)

    def _loading(self, stage: str, detail: str, done: float | None) -> str:
        return present.status(
            "loading", f"{words.LOADING.get(stage, stage)} {detail}".strip(), done
        )


def read_controls(values: tuple[object, ...]) -> RunSettings:
    """Run settings from the values of the controls, in the order of `panels.Controls.inputs`."""
    method, policy, lookahead, threshold, nodes, memory, fallback, baseline, *rest = values
    tokens, temperature, top_k, top_p, penalty, seed = rest
    try:
        return RunSettings(
            method=str(method),
            policy=str(policy),
            lookahead=int(lookahead),
            threshold=float(threshold),
            nodes=int(nodes),
            memory=bool(memory),
            fallback=bool(fallback),
            baseline=bool(baseline),
            max_new_tokens=int(tokens),
            sampling=Sampling(
                float(temperature), int(top_k), float(top_p), float(penalty), int(seed)
            ),
        ).checked()
    except (TypeError, ValueError) as error:
        raise UserError(
            "A setting is empty or not a number.",
            unharmed="Nothing was run.",
            advice="Fill in every setting, or reload the page for the defaults.",
        ) from error


def prompt_lines(text: str | None) -> list[str]:
    """The prompts of the batch box: its lines that are not empty."""
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def _checked(prompts: list[str]) -> list[str]:
    """The prompts; raises UserError for none and for too many."""
    if not prompts:
        raise UserError(words.BATCH_EMPTY, advice=words.BATCH_EMPTY_ADVICE)
    if len(prompts) > MOST_PROMPTS:
        message = words.BATCH_MANY.format(count=len(prompts), most=MOST_PROMPTS)
        raise UserError(message, advice=words.BATCH_MANY_ADVICE)
    return prompts


def _rows(prompts: Sequence[str]) -> list[Answer]:
    return [Answer(place, prompt) for place, prompt in enumerate(prompts)]


def _unexpected(error: Exception) -> UserError:
    return UserError(
        words.UNEXPECTED.format(error=error),
        unharmed=words.UNEXPECTED_UNHARMED,
        advice=words.UNEXPECTED_ADVICE,
    )
