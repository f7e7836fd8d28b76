"""Several prompts at once: each in a conversation and a thread of its own, so that their runs share passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from queue import SimpleQueue

from specdemo.config.errors import UserError, decode_error, encode_error
from specdemo.config.settings import RunSettings
from specdemo.config.strings import Json
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.admission import Turn, Waiting
from specdemo.session.conversation import Conversation
from specdemo.session.door import Changed, EngineClient, perform
from specdemo.session.meter import Meter, MeteredRun
from specdemo.session.runs import failure
from specdemo.trace.codec import decode, encode
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
    events: events of its run since the previous answer
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
    events: tuple[Event, ...] = field(default=(), compare=False, repr=False)

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
    """

    studio: EngineClient
    prompts: Sequence[str]
    settings: RunSettings
    at_once: int = CONCURRENT_RUNS
    system: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)
    turn: Callable[[], AbstractContextManager[Turn]] | None = None

    def answers(self) -> Generator[BatchAnswer | BatchTotals, None, None]:
        """Yield a BatchAnswer whenever one has grown, the last one of each prompt `ended`; then BatchTotals.

        A failed prompt stores its error and does not affect the others. If another model was loaded meanwhile, a prompt
        fails with `Changed`. Raises UserError before the first answer.
        """
        if self.at_once < 1:
            raise UserError("batch.concurrent_runs", at_once=self.at_once)
        plain = replace(self, settings=replace(self.settings, baseline=False).checked())
        yield from plain.answer_there() if self.studio.whole else plain.answer_here()

    def answer_here(self) -> Generator[BatchAnswer | BatchTotals, None, None]:
        asked = self.studio.target if self.studio.ready else None
        reported: SimpleQueue[BatchAnswer] = SimpleQueue()
        latest = [BatchAnswer(number, prompt) for number, prompt in enumerate(self.prompts)]

        def work(answer: BatchAnswer) -> None:
            try:
                with self.turn() if self.turn else nullcontext() as mine:
                    for waiting in mine or ():
                        reported.put(replace(answer, waiting=waiting))
                    begun.append(time.perf_counter())
                    for grown in self._answer(answer, asked):
                        reported.put(grown)
            except UserError as error:  # the queue is full
                reported.put(replace(answer, state=State.FAILED, error=error))

        begun: list[float] = []  # times at which runs began
        with ThreadPoolExecutor(self.at_once, "specdemo-batch") as pool:
            try:
                for answer in latest:
                    pool.submit(work, answer)
                left = len(latest)
                while left:
                    answer = reported.get()
                    latest[answer.number] = answer
                    left -= answer.ended
                    yield answer
            except BaseException:  # also GeneratorExit: the consumer has left
                self.cancel.set()
                raise
        ended = time.perf_counter()
        yield _totals(latest, ended - min(begun, default=ended))

    def answer_there(self) -> Generator[BatchAnswer | BatchTotals, None, None]:
        """Answer in one request and one turn, so that all prompts have the same engine."""
        latest = [BatchAnswer(number, prompt) for number, prompt in enumerate(self.prompts)]
        turn = self.turn() if self.turn else nullcontext()
        with turn as mine, closing(_Counted(self.studio.meter)) as counted:
            for waiting in mine or ():
                yield replace(latest[0], waiting=waiting)
            asked = {"prompts": list(self.prompts), "settings": self.settings.to_dict()}
            parts = perform(
                self.studio, answers, self.cancel, at_once=self.at_once, system=self.system, **asked
            )
            with closing(parts):
                for part in parts:
                    if "prompts" in part:
                        yield BatchTotals(**part)
                        return
                    counted.add(part["number"], [decode(line) for line in part.pop("events")])
                    error, state = part.pop("error"), State(part.pop("state"))
                    answer = BatchAnswer(
                        **part, state=state, error=decode_error(error) if error else None
                    )
                    latest[answer.number] = answer
                    yield answer
        for answer in latest:  # it was cancelled
            if not answer.ended:
                latest[answer.number] = replace(answer, state=State.STOPPED, waiting=None)
                yield latest[answer.number]
        yield _totals(latest, max(answer.seconds for answer in latest))

    def _answer(self, answer: BatchAnswer, asked: ModelInfo | None) -> Iterator[BatchAnswer]:
        """Yield a prompt's answer whenever it has grown; the last one has ended, also after an error. asked: the expected target"""
        if self.cancel.is_set():
            yield replace(answer, state=State.STOPPED)
            return
        conversation = self.studio.open()
        last = ""  # the text of the last token
        passed: list[Event] = []
        try:
            running = conversation.run(
                answer.prompt, self.settings, system=self.system, cancel=self.cancel, every=LOOK_SECONDS
            )  # fmt: skip
            with closing(running) as events:
                for event in events:
                    if isinstance(event, RunStarted) and asked not in (None, event.target):
                        raise Changed(event.target)
                    passed.append(event)
                    grown = _after(answer, event, last)
                    if isinstance(event, Verified):
                        last = event.committed[-1].text
                    if grown is not answer:
                        answer = grown
                        yield replace(answer, events=tuple(passed))
                        passed = []
            if not answer.ended:  # cancelled before the header
                yield replace(answer, state=State.STOPPED)
        except UserError as error:
            yield replace(answer, state=State.FAILED, error=error)
        except Exception as error:  # noqa: BLE001 - an error of one prompt must not end the others
            broke = UserError("run.failed", error=error)
            yield replace(answer, state=State.FAILED, error=broke)
        finally:
            conversation.close()


def _totals(answers: Sequence[BatchAnswer], seconds: float) -> BatchTotals:
    return BatchTotals(
        len(answers),
        sum(answer.state is State.FAILED for answer in answers),
        sum(answer.new_tokens for answer in answers),
        seconds,
    )


def answers(
    conversation: Conversation,
    cancel: threading.Event,
    *,
    prompts: Sequence[str],
    settings: Mapping[str, object],
    at_once: int,
    system: str,
) -> Iterator[Json]:
    """Answer prompts where the models are. yields: the fields of a BatchAnswer with its events as lines, or those of BatchTotals"""
    run = RunSettings.from_values(settings)
    batch = Batch(conversation.host, prompts, run, at_once, system, cancel)
    with closing(batch.answer_here()) as answered:
        for item in answered:
            if isinstance(item, BatchTotals):
                yield asdict(item)
                continue
            told = item.error and encode_error(item.error)
            lines = [encode(event) for event in item.events]
            yield {**asdict(replace(item, error=None, events=())), "error": told, "events": lines}


class _Counted:
    """Runs elsewhere, counted here as their events come."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._runs: dict[int, MeteredRun] = {}

    def add(self, number: int, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, RunStarted):
                self._runs[number] = self._meter.begin(event.prefill_seconds)
            if number not in self._runs:  # it failed before its header and is not counted
                continue
            self._runs[number].count(event)
            if isinstance(event, RunFinished | RunFailed):
                self._runs.pop(number).end()

    def close(self) -> None:
        """End the runs that are still open as cancelled."""
        for run in self._runs.values():
            run.reason = "abort"
            run.end()
        self._runs = {}


def _after(answer: BatchAnswer, event: Event, last: str) -> BatchAnswer:
    """Return the answer after one more event; the same object if the event adds nothing to it.

    last: text of the last token, which is no part of the answer when it is the one that ends it
    """
    match event:
        case RunStarted():
            return replace(answer, state=State.RUNNING, waiting=None)
        case Verified():
            return replace(
                answer,
                text=answer.text + "".join(node.text for node in event.committed),
                new_tokens=answer.new_tokens + len(event.committed),
                seconds=event.elapsed_seconds,
            )
        case Drafted() if error := dropped([event]):
            return replace(answer, dropped=error)
        case RunFinished(reason=FinishReason.CANCELLED):
            return replace(answer, state=State.STOPPED)
        case RunFinished(reason=FinishReason.STOP):
            return replace(answer, state=State.DONE, text=answer.text.removesuffix(last))
        case RunFinished():
            return replace(answer, state=State.DONE)
        case RunFailed():
            return replace(answer, state=State.FAILED, error=failure(event))
        case _:
            return answer
