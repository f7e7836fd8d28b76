"""Several prompts at once: each in a conversation and a thread of its own, so that their runs share passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from queue import SimpleQueue
from typing import Any

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.admission import Turn, Waiting
from specdemo.session.door import Changed, EngineClient, Part, RunUpdate, perform
from specdemo.session.meter import Meter, MeteredRun
from specdemo.session.runs import failure
from specdemo.session.studio import Conversation
from specdemo.trace.events import (
    Drafted,
    Event,
    FinishReason,
    ModelInfo,
    RunFailed,
    RunFinished,
    RunStarted,
    Verified,
)
from specdemo.trace.metrics import dropped

CONCURRENT_RUNS = 8  # runs that share a pass; more rows cost more without filling it better


class State(StrEnum):
    """State of a prompt."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The state of one prompt.

    number: index among the prompts; waiting: position in the queue, if any
    seconds: decoding time of its run, which shared the device with the others
    error: cause of a failure; the text so far stays
    dropped: error for which its drafter was dropped, if it was
    """

    number: int
    prompt: str
    state: State = State.WAITING
    text: str = ""
    new_tokens: int = 0
    seconds: float = 0.0
    error: UserError | None = None
    waiting: Waiting | None = None
    dropped: str = ""

    @property
    def ended(self) -> bool:
        return self.state not in (State.WAITING, State.RUNNING)

    @property
    def tokens_per_second(self) -> float | None:
        return self.new_tokens / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class BatchTotals:
    """Sums over all prompts. seconds: wall clock since the first one left the queue, with prefill"""

    prompts: int
    failed: int
    new_tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        return self.new_tokens / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts to answer, at most `at_once` at the same time, without baselines.

    cancel: stops all runs; also set when the generator of answers is closed, which waits for its threads
    turn: creates a request for a slot, if other users compete
    started: times at which turns came, in seconds of `perf_counter`
    """

    studio: EngineClient
    prompts: Sequence[str]
    settings: RunSettings
    at_once: int = CONCURRENT_RUNS
    system: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)
    turn: Callable[[], AbstractContextManager[Turn]] | None = None
    started: list[float] = field(default_factory=list, init=False)

    def answers(self) -> Generator[BatchAnswer | BatchTotals, None, None]:
        """Yield a BatchAnswer whenever one has grown, the last one of each prompt `ended`; then BatchTotals.

        A failed prompt stores its error and does not affect the others. If another model was loaded meanwhile, a prompt
        fails with `Changed`. Raises UserError before the first answer.
        """
        plain = replace(self, settings=replace(self.settings, baseline=False).checked())
        latest = [BatchAnswer(number, prompt) for number, prompt in enumerate(self.prompts)]
        last = [""] * len(latest)  # text of each one's last token
        parts = plain.in_one_request() if self.studio.whole else plain.in_threads()
        with closing(_counted(parts, self.studio.meter)) as counted:
            for number, update in counted:
                if update is None and not plain.started:  # of an engine elsewhere
                    plain.started.append(time.perf_counter())
                answer = _after(latest[number], update, last[number])
                if isinstance(update, Verified):
                    last[number] = update.committed[-1].text
                if answer is not latest[number]:
                    latest[number] = answer
                    yield answer
        ended = time.perf_counter()
        for answer in latest:  # it was cancelled
            if not answer.ended:
                latest[answer.number] = replace(answer, state=State.STOPPED, waiting=None)
                yield latest[answer.number]
        yield BatchTotals(
            len(latest),
            sum(answer.state is State.FAILED for answer in latest),
            sum(answer.new_tokens for answer in latest),
            ended - min(plain.started, default=ended),
        )

    def in_threads(self) -> Generator[Part, None, None]:
        """Answer each prompt in a thread and a turn of its own."""
        expected = self.studio.target if self.studio.ready else None
        arrived: SimpleQueue[Part | None] = SimpleQueue()

        def work(number: int, prompt: str) -> None:
            try:
                with self.turn() if self.turn else nullcontext() as mine:
                    for waiting in mine or ():
                        arrived.put((number, waiting))
                    for update in self._run(prompt, expected):
                        if update is None:
                            self.started.append(time.perf_counter())  # the consumer reads it later
                        arrived.put((number, update))
            except UserError as error:
                arrived.put((number, error))
            except Exception as error:  # noqa: BLE001 - an error of one prompt must not end the others
                arrived.put((number, UserError("run.failed", error=error)))
            finally:
                arrived.put(None)

        with ThreadPoolExecutor(self.at_once, "specdemo-batch") as pool:
            try:
                for number, prompt in enumerate(self.prompts):
                    pool.submit(work, number, prompt)
                for _ in self.prompts:
                    yield from iter(arrived.get, None)
            except BaseException:  # also GeneratorExit: the consumer has left
                self.cancel.set()
                raise

    def _run(self, prompt: str, expected: ModelInfo | None) -> Iterator[Event | None]:
        """Yield None, then the events of a run. Raises UserError for another target than the expected one."""
        if self.cancel.is_set():
            return
        yield None
        with ExitStack() as ending:
            conversation = ending.enter_context(closing(self.studio.open()))
            events = conversation.events(
                prompt, self.settings, cancel=self.cancel, system=self.system, every=LOOK_SECONDS
            )
            for event in ending.enter_context(closing(events)):
                if isinstance(event, RunStarted) and expected not in (None, event.target):
                    raise Changed(event.target)
                yield event

    def in_one_request(self) -> Generator[Part, None, None]:
        """Answer all prompts in one request and one turn, so that they have the same engine."""
        with self.turn() if self.turn else nullcontext() as mine:
            for waiting in mine or ():
                yield 0, waiting
            asked: dict[str, Any] = {"prompts": list(self.prompts), "settings": self.settings}
            asked |= {"at_once": self.at_once, "system": self.system}
            yield from perform(self.studio, answers, self.cancel, **asked)


def answers(
    conversation: Conversation,
    cancel: threading.Event,
    *,
    prompts: Sequence[str],
    settings: RunSettings,
    at_once: int,
    system: str,
) -> Iterator[Part]:
    """Answer prompts where the models are. yields: the number of a prompt, with an event, its error, or None when it starts"""
    batch = Batch(conversation.host, prompts, settings, at_once, system, cancel)
    with closing(batch.in_threads()) as parts:
        yield from parts


def _counted(parts: Generator[Part, None, None], meter: Meter) -> Generator[Part, None, None]:
    """Yield the parts unchanged, and count their runs in the meter."""
    runs: dict[int, MeteredRun] = {}
    try:
        with closing(parts):
            for number, update in parts:
                if update is None:
                    runs[number] = meter.begin()
                if isinstance(update, Event):
                    runs[number].count(update)
                if isinstance(update, RunFinished | RunFailed | UserError) and number in runs:
                    runs.pop(number).end()
                yield number, update
    finally:
        for run in runs.values():
            run.reason = "abort"
            run.end()


def _after(answer: BatchAnswer, update: RunUpdate, last: str) -> BatchAnswer:
    """Return the answer after an update of its run; the same object if the update does not change it.

    last: text of the last token, which is no part of the answer when it is the one that ends it
    """
    match update:
        case Waiting():
            return replace(answer, waiting=update)
        case UserError():
            return replace(answer, state=State.FAILED, error=update, waiting=None)
        case RunStarted():
            return replace(answer, state=State.RUNNING, waiting=None)
        case Verified():
            return replace(
                answer,
                text=answer.text + "".join(node.text for node in update.committed),
                new_tokens=answer.new_tokens + len(update.committed),
                seconds=update.elapsed_seconds,
            )
        case Drafted() if error := dropped([update]):
            return replace(answer, dropped=error)
        case RunFinished(reason=FinishReason.CANCELLED):
            return replace(answer, state=State.STOPPED)
        case RunFinished(reason=FinishReason.STOP):
            return replace(answer, state=State.DONE, text=answer.text.removesuffix(last))
        case RunFinished():
            return replace(answer, state=State.DONE)
        case RunFailed():
            return replace(answer, state=State.FAILED, error=failure(update))
        case _:
            return answer
