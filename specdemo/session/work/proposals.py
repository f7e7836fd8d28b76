"""Drafts of every method at the same position of the same text, verified by the target."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.session.door import EngineClient, Part
from specdemo.session.runs import failure
from specdemo.session.studio import Conversation
from specdemo.session.text import encode_prompt
from specdemo.trace.events import (
    NOTHING,
    SPECULATIVE,
    Drafted,
    Event,
    ModelInfo,
    Node,
    RunFailed,
    RunStarted,
    Verified,
)

TAKES = 2  # tokens of each step; the first step is a warm-up, the last is reported


@dataclass(frozen=True, slots=True)
class Guess:
    """One method's proposal at a position, before and after verification; or the reason why there is none."""

    method: str
    drafted: Drafted | None = None
    verified: Verified | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and the target's answer, token by token, without the token that ends an answer."""

    prompt: str
    tokens: tuple[Node, ...]
    system: str = ""


class Comparison:
    """A text by the target, and the drafts of each method at a position of it."""

    def __init__(self, studio: EngineClient, visitor: str = "") -> None:
        self._studio = studio
        self._conversation = studio.open(visitor)
        self._written_with: ModelInfo | None = None  # pair that wrote the text

    def close(self) -> None:
        self._conversation.close()

    def write(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
    ) -> Generator[Text, None, None]:
        """Write the target's own answer, without drafts and memory. yields: the text, longer each time

        Raises UserError for a prompt that cannot be answered, and for later errors.
        """
        settings = replace(settings, method=NOTHING, memory=False)
        self._conversation.reset()
        about = self._studio.loaded_about()
        self._written_with, stops = about.target, about.stop_ids
        text = Text(prompt, (), system)
        for event in self._conversation.run(prompt, settings, system=system, cancel=cancel):
            if isinstance(event, RunFailed):
                raise failure(event)
            if isinstance(event, Verified):
                new = tuple(node for node in event.committed if node.token_id not in stops)
                text = replace(text, tokens=(*text.tokens, *new))
                yield text

    def guesses(
        self,
        text: Text,
        position: int,
        settings: RunSettings,
        *,
        cancel: threading.Event | None = None,
    ) -> Generator[Guess, None, None]:
        """Draft with each method after the first `position` tokens of an answer, in the order of the menu.

        Each method runs alone, from scratch and without memory. A method that fails reports it; the others continue.
        cancel: checked between two methods
        Raises UserError for settings out of range, and if another pair was loaded since the text was written.
        """
        if self._written_with is not self._studio.target:
            raise UserError("run.other_model")
        cancel = cancel or threading.Event()
        settings = replace(
            settings, memory=False, fallback=False, detail=0, baseline=False
        ).checked()
        methods = [method for method in self._studio.methods() if method.name != NOTHING]
        asked: dict[str, Any] = {
            "prompt": text.prompt,
            "system": text.system,
            "answer_ids": [node.token_id for node in text.tokens[:position]],
            "settings": settings,
            "methods": [method.name for method in methods if method.available],
        }
        found = self._conversation.perform(steps_of_all, asked, cancel)
        with closing(_guesses(found, asked["methods"])) as judged:
            for method in methods:
                if cancel.is_set():
                    return
                if not method.available:
                    yield Guess(method.name, why_not=method.why_not)
                    continue
                guess = next(judged, None)
                if guess and (guess.verified or guess.why_not):  # else it was cancelled
                    yield guess


def steps_of_all(
    conversation: Conversation,
    cancel: threading.Event,
    *,
    prompt: str,
    system: str,
    answer_ids: Sequence[int],
    settings: RunSettings,
    methods: Sequence[str],
) -> Iterator[Part]:
    """Run one step of each method after the first tokens of an answer, in the process of the models.

    yields: number of the method, with an event or with the error for which there is none
    """

    def second_take(own: RunSettings) -> Generator[Event, None, None]:
        """Yield the events of one step of the loop, after a first take as a warm-up, whose events are dropped."""
        with conversation.using() as caches:
            pair = caches.loaded.pair
            prompt_ids = encode_prompt(pair.tokenizer, prompt, pair.context, system=system)
            header = RunStarted(SPECULATIVE, own.method, prompt, {}, pair.target.info)
            events: list[Event] = []
            for _ in range(TAKES):
                lane = caches.lane(
                    [*prompt_ids, *answer_ids],
                    own,
                    header,
                    together=lambda: conversation.host.together,
                    cancelled=cancel.is_set,
                    known=conversation.host.known,
                )
                events = []
                with closing(lane):
                    for event in lane:
                        events.append(event)
                        if isinstance(event, Verified):
                            break
                if caches.broken:
                    break
        yield from events

    for number, name in enumerate(methods):
        if cancel.is_set():
            return
        try:
            for event in conversation.host.runner.run(second_take(replace(settings, method=name))):
                yield number, event
        except UserError as error:
            yield number, error


def _guesses(found: Iterable[Part], methods: Sequence[str]) -> Generator[Guess, None, None]:
    for number, parts in groupby(found, key=itemgetter(0)):
        guess = Guess(methods[number])
        for _, update in parts:
            match update:
                case Drafted():
                    guess = replace(guess, drafted=update)
                case Verified():
                    guess = replace(guess, verified=update)
                case RunFailed():
                    guess = Guess(guess.method, why_not=str(failure(update)))
                case UserError():
                    guess = Guess(guess.method, why_not=str(update))
        yield guess
