"""A queue in front of an engine that serves users in turn."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter

from specdemo.config.errors import UserError

TIMED = "timed"  # work that runs alone, because other runs would disturb its measurement
MOST_WAITING_USERS = 128  # users in the queue
RECENT_DURATIONS = 32  # recent durations per kind of work, from which the next one is estimated
UPDATE_SECONDS = 1.0  # polling interval of waiting requests


@dataclass(frozen=True, slots=True)
class Waiting:
    """A position in the queue. seconds: expected wait, from recent runs; None before any run has ended"""

    place: int
    of: int
    seconds: float | None


class Cancel(threading.Event):
    """An event that also wakes threads that wait for another one."""

    def __init__(self) -> None:
        super().__init__()
        self._wakes: list[Callable[[], None]] = []

    def set(self) -> None:
        """End the work, or the wait for it."""
        super().set()
        for wake in tuple(self._wakes):
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` when the event is set within the block, immediately if it was set before."""
        self._wakes.append(wake)
        if self.is_set():
            wake()
        try:
            yield
        finally:
            self._wakes.remove(wake)


@dataclass(eq=False)
class Turn:
    """One request to run: in the queue, or in a slot of the engine. Made by `Admission.turn`.

    Iteration ends when the request is admitted or cancelled. A cancelled request leaves the queue immediately.
    changed: set when its position may have changed; joined, begun: clock times when it joined the queue and was admitted
    """

    admission: Admission
    visitor: Hashable
    kind: str
    cancel: Cancel
    changed: threading.Event = field(default_factory=threading.Event)
    joined: float = 0.0
    begun: float | None = None

    @property
    def admitted(self) -> bool:
        return self.begun is not None

    def __iter__(self) -> Iterator[Waiting]:
        """Yield the position in the queue whenever it may have changed, at least once a second."""
        with self.cancel.waking(self.changed.set):
            while True:
                self.changed.clear()  # before checking, so that a change after this line wakes the waiter
                waiting = self.admission.foresee(self)
                if waiting is None:
                    return
                if self.cancel.is_set():
                    self.admission.leave(self)
                    return
                yield waiting
                self.changed.wait(UPDATE_SECONDS)


class Admission:
    """A queue that serves users in turn, however many requests each has. Thread-safe.

    capacity: slots of the engine now; a change is noticed within a second. Called while the queue is locked
    per_visitor: slots that a user may occupy while others wait. Above that limit a user may use idle slots,
        except one reserved for the next arrival
    limits: slots per kind of work, for kinds that have their own limit
    most_waiting: users in the queue
    waited: called with the seconds that each request waited
    clock: seconds
    """

    def __init__(
        self,
        capacity: Callable[[], int],
        per_visitor: int = 1,
        *,
        limits: Mapping[str, int] | None = None,
        most_waiting: int = MOST_WAITING_USERS,
        waited: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waited = waited
        self._capacity, self._per_visitor = capacity, per_visitor
        self._limits, self._most_waiting, self._clock = dict(limits or {}), most_waiting, clock
        self._lock = threading.Lock()
        self._line: dict[Hashable, list[Turn]] = {}  # the first visitor is served next
        self._running: list[Turn] = []
        self._durations: dict[str, deque[float]] = {}
        self._foreseen: dict[Turn, Waiting] = {}
        self._foreseen_at = float("-inf")

    @property
    def waiting(self) -> int:
        with self._lock:
            return sum(len(turns) for turns in self._line.values())

    @property
    def running(self) -> int:
        return len(self._running)

    @contextmanager
    def turn(
        self, visitor: Hashable, *, kind: str = "run", cancel: Cancel | None = None
    ) -> Iterator[Turn]:
        """Make a request, which waits in the queue or occupies a slot until the block ends. Raises UserError if the queue is full.

        with admission.turn(visitor, cancel=cancel) as turn:
            for waiting in turn:  # ends immediately if a slot is free
                show(waiting)
            if turn.admitted:
                run()
        """
        turn = Turn(self, visitor, kind, cancel or Cancel())
        self.join(turn)
        try:
            yield turn
        finally:
            self.leave(turn)

    def waited_by(self, visitor: Hashable) -> float:
        """Seconds that a user's newest running request has waited; 0 without one."""
        with self._lock:
            waits = [
                (turn.begun or turn.joined) - turn.joined
                for turn in self._running
                if turn.visitor == visitor
            ]
        return waits[-1] if waits else 0.0

    def join(self, turn: Turn) -> None:
        """Join the queue, and start if a slot is free. Raises UserError if the queue is full."""
        with self._lock:
            turn.joined = self._clock()
            self._line.setdefault(turn.visitor, []).append(turn)
            self._admit()
            if turn.admitted or len(self._line) <= self._most_waiting:
                return
            del self._line[turn.visitor]  # the newest user, with this request alone
            self._foreseen = {}
            raise UserError("run.queue_full")

    def leave(self, turn: Turn) -> None:
        """Leave the queue or free the slot; a second call has no effect."""
        with self._lock:
            if turn in self._running:
                self._running.remove(turn)
                recent = self._durations.setdefault(turn.kind, deque(maxlen=RECENT_DURATIONS))
                recent.append(self._clock() - (turn.begun or 0.0))
                _put_last(self._line, turn.visitor)
            elif turn in (turns := self._line.get(turn.visitor, [])):
                turns.remove(turn)
                if not turns:
                    del self._line[turn.visitor]
            else:
                return
            self._admit()

    def foresee(self, turn: Turn) -> Waiting | None:
        """Return the position of a request; None if it is not in the queue."""
        with self._lock:
            self._admit(changed=False)
            if turn not in self._line.get(turn.visitor, ()):
                return None
            now = self._clock()
            if turn not in self._foreseen or now - self._foreseen_at >= UPDATE_SECONDS / 2:
                self._foreseen, self._foreseen_at = self._order(now), now
            return self._foreseen[turn]

    def _admit(self, *, changed: bool = True) -> None:
        """Admit every request that can start. changed: whether positions may have changed, so that waiting requests are woken"""
        capacity = self._capacity()
        while turn := self._next(self._line, self._running, capacity):
            _take(self._line, turn)
            turn.begun, changed = self._clock(), True
            self._running.append(turn)
            turn.changed.set()
            self._waited(turn.begun - turn.joined)
        if changed:
            self._foreseen = {}
            for turn in (turn for turns in self._line.values() for turn in turns):
                turn.changed.set()

    def _next(
        self, line: Mapping[Hashable, list[Turn]], running: Sequence[Turn], capacity: int
    ) -> Turn | None:
        """Return the next request to admit; None if there is none. Users below their limit come first."""
        visitors, kinds = (Counter(map(attrgetter(name), running)) for name in ("visitor", "kind"))
        for beyond in (False, True):
            if len(running) + beyond >= capacity:
                return None
            for visitor, turns in line.items():
                if (visitors[visitor] >= self._per_visitor) == beyond:
                    for turn in turns:
                        if kinds[turn.kind] < self._limits.get(turn.kind, capacity):
                            return turn
        return None

    def _order(self, now: float) -> dict[Turn, Waiting]:
        """Predict every position by simulating the queue: each run lasts as long as recent ones did.

        A position counts all waiting requests, or only those of the same kind if the limit of that kind is the narrower one.
        """
        capacity, running = self._capacity(), list(self._running)
        line = {visitor: list(turns) for visitor, turns in self._line.items()}
        ends = {turn: self._left(turn, now) for turn in self._running}
        seconds: dict[Turn, float | None] = {}
        at: float | None = 0.0 if capacity and self._durations else None
        while line:
            turn = self._next(line, running, max(1, capacity))
            if turn is None and ends:
                ended = min(ends, key=ends.__getitem__)
                end = ends.pop(ended)
                running.remove(ended)
                _put_last(line, ended.visitor)
                at = None if at is None else max(at, end)
                continue
            turn = turn or next(iter(line.values()))[0]  # no request can start now
            _take(line, turn)
            seconds[turn] = at
            running.append(turn)
            ends[turn] = (at or 0.0) + self._usual(turn.kind)
        return self._placed(seconds, capacity)

    def _placed(self, seconds: Mapping[Turn, float | None], capacity: int) -> dict[Turn, Waiting]:
        """Return the positions of requests that are sorted by their predicted start."""
        kinds, before, placed = Counter(turn.kind for turn in seconds), Counter[str](), {}
        for place, (turn, wait) in enumerate(seconds.items(), start=1):
            before[turn.kind] += 1
            if self._limits.get(turn.kind, capacity) < capacity:
                placed[turn] = Waiting(before[turn.kind], kinds[turn.kind], wait)
            else:
                placed[turn] = Waiting(place, len(seconds), wait)
        return placed

    def _usual(self, kind: str) -> float:
        """Return the mean seconds of recent runs of a kind; of any kind before one of it has ended, and 1 before any has."""
        every = [one for durations in self._durations.values() for one in durations]
        recent = self._durations.get(kind) or every
        return sum(recent) / len(recent) if recent else 1.0

    def _left(self, turn: Turn, now: float) -> float:
        """Return the expected remaining seconds of a run: the mean that recent runs had left at the same age."""
        age = now - (turn.begun or 0.0)
        left = [one - age for one in self._durations.get(turn.kind, ()) if one > age]
        return sum(left) / len(left) if left else max(0.0, self._usual(turn.kind) - age)


def _take(line: dict[Hashable, list[Turn]], turn: Turn) -> None:
    turns = line[turn.visitor]
    turns.remove(turn)
    if turns:
        _put_last(line, turn.visitor)
    else:
        del line[turn.visitor]


def _put_last(line: dict[Hashable, list[Turn]], visitor: Hashable) -> None:
    """Move a user who has been served behind all others."""
    if visitor in line:
        line[visitor] = line.pop(visitor)
