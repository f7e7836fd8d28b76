"""The one thread that computes: runs take their steps in it and share their passes."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from math import log2
from queue import SimpleQueue
from typing import Any, TypeVar

from specdemo.engine.clock import Cancelled
from specdemo.engine.passes import ForwardRequest, RunStack, run_together
from specdemo.trace.events import Event

Result = TypeVar("Result")

LOOK_SECONDS = 1 / 20  # polling interval for readers that may receive events in batches
STOP_SECONDS = 5.0  # time for a pass that is under way when the interpreter ends
RECENT_PASSES = 6  # passes over which the strain is averaged
# assumed time of one thread, until it is measured: times the fastest pass of all threads
CROWDED = 2.0
MOST_STRAIN = 2 * CROWDED  # limit for a single pass that was interrupted for long
RETRY = 32  # passes alone before all threads are tried again
SOME, NEAR = 8, 256  # rows, and tokens of context, from which on passes differ
FINE = 3  # kinds for each further doubling: thirty concurrent runs must not create a kind for each pass


@dataclass(eq=False)
class _Run:
    """A run and its viewer.

    outbox: its events, then None or the error that ended it; over: set then
    closed: set when the viewer has left
    stack: made in the compute thread; turn: number of the pass in which it last read a chunk of a long text
    """

    events: Generator[Event, None, object]
    outbox: SimpleQueue[Event | BaseException | None] = field(default_factory=SimpleQueue)
    closed: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    stack: RunStack | None = None
    error: BaseException | None = None
    turn: int = 0

    @property
    def request(self) -> ForwardRequest | None:
        return self.stack.request if self.stack else None

    @property
    def waits(self) -> bool:
        return self.request is not None and not self.request.done and not self.closed.is_set()

    def advance(self) -> bool:
        """Run to the next pass. Returns whether the run continues after it."""
        if self.stack is None:
            self.stack = RunStack(self._work)
        if self.closed.is_set():
            self.stack.close()
        else:
            self.stack.resume()
        if not self.stack.dead:
            return True
        self.stack = None
        self.outbox.put(self.error)
        self.over.set()
        return False

    def _work(self) -> None:
        try:
            with closing(self.events):
                for event in self.events:
                    self.outbox.put(event)
                    if self.closed.is_set():
                        return
        except Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - raised where the events are read
            self.error = error


class Runner:
    """Advances any number of runs in turn, each to its next request, and runs requests of one kind as one pass.

    Requests of drafters come first: a run that waits for the target's pass waits until all others do, so that
    this pass, the most expensive by far, is shared by all of them. Pieces of long texts, of the target or of a draft, hold
    nobody up: they join that pass, a few at a time and in turn, so that each run takes a step between two of them
    (chunked prefill, Agrawal 2308.16369).

    Torch keeps a team of threads for every thread that computes. Two teams on the same cores put each
    other to sleep between any two products, which made a pass two and a half times as long here; so all
    that belongs to runs is computed in this thread, whichever threads the viewers have.
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[_Run | tuple[Callable[[], Any], Future[Any]] | None] = (
            SimpleQueue()
        )
        self._governor = ThreadGovernor()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._runs: list[_Run] = []
        self._turns = 0
        self._stopped = False

    @property
    def going_on(self) -> int:
        """Number of runs that have started and not ended."""
        return len(self._runs)

    def call(self, work: Callable[[], Result]) -> Result:
        """Call a function in the thread, between two steps of the runs; returns its result or raises its error."""
        if threading.current_thread() is self._thread:
            return work()
        result: Future[Result] = Future()
        self._start()
        self._inbox.put((work, result))
        return result.result()

    def run(
        self, events: Generator[Event, None, object], every: float = 0.0
    ) -> Generator[Event, None, None]:
        """Yield the events of a run, which does not wait for their reader. Closing ends the run.

        every: polling interval in seconds. A thread that wakes for each event takes a core
            from the pass each time, and the pass's other threads wait for that one.
        """
        run = _Run(events)
        self._start()
        self._inbox.put(run)
        ended = begun = False
        try:
            while not ended:
                if every and begun and run.outbox.empty():
                    run.over.wait(every)
                item, begun = run.outbox.get(), True
                ended = item is None or isinstance(item, BaseException)
                if isinstance(item, BaseException):
                    raise item
                if item is not None:
                    yield item
        finally:
            if not ended:
                run.closed.set()
                self._inbox.put(None)  # wakes the thread, should it wait
                while not isinstance(item := run.outbox.get(), BaseException) and item is not None:
                    pass

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="specdemo-engine", daemon=True
                )
                self._thread.start()
                atexit.register(self._stop)

    def _stop(self) -> None:
        """End the runs within a step, and the thread: the interpreter's end in the middle of a pass would abort the process."""
        self._stopped = True
        self._inbox.put(None)
        if self._thread:
            self._thread.join(STOP_SECONDS)

    def _work(self) -> None:
        while self._runs or not self._stopped:
            try:
                self._take()
                for run in self._runs if self._stopped else ():
                    run.closed.set()
                self._runs = [run for run in self._runs if run.waits or run.advance()]
                self._run_passes()
            except BaseException as error:  # noqa: BLE001 - nobody else computes: the thread outlives what breaks in it
                self._break(error)

    def _break(self, error: BaseException) -> None:
        """End all runs that wait for a pass with an error of the thread; later runs are not affected."""
        for run in self._runs:
            if run.request and not run.request.done:
                run.request.error = RuntimeError(f"the engine stopped: {error!r}")

    def _run_passes(self) -> None:
        """Run the requested passes: drafts if there are any, else the target's and the next chunks."""
        waiting = [run.request for run in self._runs if run.request]
        steps = [request for request in waiting if not request.is_chunk]
        drafting = [request for request in steps if request.drafting]
        for _, group in groupby(sorted(drafting or steps + self._chunks(), key=_kind), key=_kind):
            together = list(group)
            begun = time.perf_counter()
            run_together(together)
            if not together[0].drafting:
                self._governor.observe(together, time.perf_counter() - begun)

    def _chunks(self) -> list[ForwardRequest]:
        """Return the next chunks, those that wait longest first, while all fit into one chunk."""
        self._turns += 1
        readers = [run for run in self._runs if run.request and run.request.is_chunk]
        chunks: list[ForwardRequest] = []
        rows = 0
        for run in sorted(readers, key=lambda run: run.turn):
            assert run.request is not None
            rows += len(run.request.input.token_ids)
            if chunks and rows > chunks[0].decoder.chunk:
                break
            chunks.append(run.request)
            run.turn = self._turns
        return chunks

    def _take(self) -> None:
        """Process the inbox; wait for an item if there is no run."""
        while not self._inbox.empty() if self._runs else not self._stopped:
            item = self._inbox.get()
            if isinstance(item, _Run):
                item.turn = self._turns
                self._runs.append(item)
            elif item is not None:
                _do(*item)
            del item  # this thread must not reference a pair while it waits


def _do(work: Callable[[], Result], result: Future[Result]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where the call was made
        result.set_exception(error)


def _kind(request: ForwardRequest) -> tuple[int, int, bool, int]:
    """Requests of one kind can be one pass."""
    rows, own = request.input, id(request) if request.alone else 0
    return id(request.decoder), rows.depth or 0, rows.plan is not None, own


class ThreadGovernor:
    """Sets the number of torch's threads for the calling thread.

    Threads wait for each other some hundred times in a pass. If one of them has lost its core to
    another program, all others wait each time, and one thread alone is faster. If other programs only use the
    memory, all threads stay faster: so the two are compared.
    """

    def __init__(self) -> None:
        self._fastest: dict[tuple[int, ...], float] = {}
        # Time of recent passes over the fastest of their kind, by whether one thread was alone.
        self._strain = {False: 1.0, True: CROWDED}
        self._passes = 0  # since the number was changed
        self._all = 1

    def observe(self, requests: Sequence[ForwardRequest], seconds: float) -> None:
        """Learn from a pass, and set the number for the next one."""
        import torch

        threads = torch.get_num_threads()
        self._all, alone = max(self._all, threads), threads == 1
        if self._all == 1:
            return
        kind = _group(requests)
        fastest = self._fastest[kind] = min(seconds, self._fastest.get(kind, seconds))
        self._strain[alone] += (
            min(seconds / fastest, MOST_STRAIN) - self._strain[alone]
        ) / RECENT_PASSES
        self._passes += 1
        worse = self._strain[alone] > self._strain[not alone]
        if not alone and worse:
            self._change(1)
        elif alone and (self._passes >= RETRY or (worse and self._passes >= RECENT_PASSES)):
            # The measurement of all threads is old. Two slow passes end the trial.
            self._strain[False] = (1 + self._strain[True]) / 2
            self._change(self._all)

    def _change(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._passes = 0


def _group(requests: Sequence[ForwardRequest]) -> tuple[int, ...]:
    """Return the kind of a pass; only passes of one kind are compared."""
    passes = [request.input for request in requests]
    return (
        id(requests[0].decoder),
        passes[0].depth or 0,
        _size((sum(len(rows.token_ids) for rows in passes) - 1) / SOME),
        _size(sum(rows.positions[-1] for rows in passes) / NEAR),
    )


def _size(times: float) -> int:
    """0 below 1, 1 from there on, and so on by ever larger steps."""
    return int(times) if times < FINE else FINE + int(FINE * log2(times / FINE))
