"""Who may run now: a line in front of any engine that takes visitors in turn."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from types import TracebackType

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.session.meter import Meter

TIMED = "timed"  # the kind of work that takes turns, because others would disturb what it measures
MOST_WAITING = 128  # visitors in the line
RECENT = 32  # runs of a kind whose durations say how long one is expected to take
UPDATE_SECONDS = 1.0  # between two looks of who waits, where nothing else wakes them


@dataclass(frozen=True, slots=True)
class Waiting:
    """A place in the line. seconds: expected until its turn, from recent runs; None before any has ended"""

    place: int
    of: int
    seconds: float | None


class Full(UserError):
    """Nobody else can wait."""

    def __init__(self) -> None:
        super().__init__("run.queue_full")


class Cancel(threading.Event):
    """An event that also wakes those who wait for something else."""

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
        """Call `wake` when the event is set within the block."""
        self._wakes.append(wake)
        try:
            yield
        finally:
            self._wakes.remove(wake)


class Turn:
    """One visitor's wish to run. In its block it waits in the line or holds a place of the engine.

        with admission.turn(visitor, cancel=cancel) as turn:
            for waiting in turn:  # at once over where there is room
                show(waiting)
            if turn.admitted:
                run()

    Iterating ends when the turn has come or the wish was cancelled, which leaves the line at once.
    joined, begun: when it joined the line, and when it was admitted
    """

    def __init__(self, admission: Admission, visitor: Hashable, kind: str, cancel: Cancel) -> None:
        self.visitor, self.kind = visitor, kind
        self.joined = 0.0
        self.begun: float | None = None
        self.changed = threading.Event()
        self._admission, self._cancel = admission, cancel

    @property
    def admitted(self) -> bool:
        """Whether it may run."""
        return self.begun is not None

    @property
    def others_wait(self) -> bool:
        """Whether anybody else is in the line now."""
        return self._admission.waits_beside(self.visitor)

    def __enter__(self) -> Turn:
        """Join the line. Raises Full."""
        self._admission.join(self)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        """Leave the line, or give the place back."""
        self._admission.leave(self)

    def __iter__(self) -> Iterator[Waiting]:
        """The place in the line, whenever it may have changed and at least once a second."""
        with self._cancel.waking(self.changed.set):
            while True:
                self.changed.clear()  # before looking: what changes from here on wakes
                waiting = self._admission.foresee(self)
                if waiting is None:
                    return
                if self._cancel.is_set():
                    self._admission.leave(self)
                    return
                yield waiting
                self.changed.wait(UPDATE_SECONDS)


@dataclass(slots=True)
class _Held:
    """Places of the engine that are taken, by visitor and by kind."""

    visitors: Counter[Hashable] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    total: int = 0

    def add(self, turn: Turn, count: int = 1) -> None:
        """A place is taken, or given back with -1."""
        self.visitors[turn.visitor] += count
        self.kinds[turn.kind] += count
        self.total += count


def page_line(settings: AppSettings, meter: Meter, engines: Callable[[], int]) -> Admission:
    """The line of a page as its settings want it, with its figures. engines: how many answer now"""
    line = Admission(
        lambda: settings.runs_at_once * engines(),
        settings.runs_per_visitor,
        limits={TIMED: settings.races_at_once},
        most_waiting=settings.waiting_visitors,
        waited=meter.waited,
    )
    meter.waiting = lambda: line.waiting
    return line


class Admission:
    """A line of visitors, served turn by turn over visitors and not over their wishes. Safe to use from several threads.

    capacity: places of the engine now; it may change, see `look`. Called with the line locked
    per_visitor: places that a visitor may hold while others wait. Beyond them he gets what nobody else
        could take, but for one place, which stays free for who comes next
    limits: places that each kind of work may hold, for kinds that have a limit of their own
    most_waiting: visitors in the line
    waited: told how many seconds each turn has waited
    clock: seconds
    """

    def __init__(
        self,
        capacity: Callable[[], int],
        per_visitor: int = 1,
        *,
        limits: Mapping[str, int] | None = None,
        most_waiting: int = MOST_WAITING,
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
        """Wishes in the line."""
        with self._lock:
            return sum(len(turns) for turns in self._line.values())

    @property
    def running(self) -> int:
        """Places that are held."""
        return len(self._running)

    def turn(self, visitor: Hashable, *, kind: str = "run", cancel: Cancel | None = None) -> Turn:
        """A wish to run, which joins the line when its block is entered."""
        return Turn(self, visitor, kind, cancel or Cancel())

    def look(self) -> None:
        """The capacity has changed. Without this call it is noticed within a second."""
        with self._lock:
            self._admit()

    def waits_beside(self, visitor: Hashable) -> bool:
        """Whether anybody but this visitor is in the line."""
        with self._lock:
            return any(other != visitor for other in self._line)

    def waited_by(self, visitor: Hashable) -> float:
        """Seconds that a visitor's newest turn has waited, of those that go on; 0 without one."""
        with self._lock:
            waits = [
                (turn.begun or turn.joined) - turn.joined
                for turn in self._running
                if turn.visitor == visitor
            ]
        return waits[-1] if waits else 0.0

    def join(self, turn: Turn) -> None:
        """Take a place in the line, and in the engine where there is room. Raises Full."""
        with self._lock:
            turn.joined = self._clock()
            self._line.setdefault(turn.visitor, []).append(turn)
            self._admit()
            if turn.admitted or len(self._line) <= self._most_waiting:
                return
            del self._line[turn.visitor]  # it is the newest, and its only wish
            self._foreseen = {}
            raise Full

    def leave(self, turn: Turn) -> None:
        """Out of the line or the engine; nothing the second time."""
        with self._lock:
            if turn in self._running:
                self._running.remove(turn)
                recent = self._durations.setdefault(turn.kind, deque(maxlen=RECENT))
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
        """The place of a wish; None when it is not in the line."""
        with self._lock:
            self._admit(changed=False)
            if turn not in self._line.get(turn.visitor, ()):
                return None
            now = self._clock()
            if turn not in self._foreseen or now - self._foreseen_at >= UPDATE_SECONDS / 2:
                self._foreseen, self._foreseen_at = self._order(now), now
            return self._foreseen[turn]

    def _admit(self, *, changed: bool = True) -> None:
        """Let in whoever can be. changed: whether places may have, so that those who wait look"""
        held, capacity = self._held(), self._capacity()
        while turn := self._next(self._line, held, capacity):
            _take(self._line, turn)
            turn.begun, changed = self._clock(), True
            self._running.append(turn)
            held.add(turn)
            turn.changed.set()
            self._waited(turn.begun - turn.joined)
        if changed:
            self._foreseen = {}
            for turn in (turn for turns in self._line.values() for turn in turns):
                turn.changed.set()

    def _held(self) -> _Held:
        held = _Held()
        for turn in self._running:
            held.add(turn)
        return held

    def _next(self, line: Mapping[Hashable, list[Turn]], held: _Held, capacity: int) -> Turn | None:
        """Whose turn is next; None where nobody's can be. Those below their share come before the others."""
        for beyond in (False, True):
            if held.total + beyond >= capacity:
                return None
            for visitor, turns in line.items():
                if (held.visitors[visitor] >= self._per_visitor) == beyond:
                    for turn in turns:
                        if held.kinds[turn.kind] < self._limits.get(turn.kind, capacity):
                            return turn
        return None

    def _order(self, now: float) -> dict[Turn, Waiting]:
        """Everybody's place, by letting the line go on in thought: each run takes as long as recent ones did.

        A place is counted among all who wait, or among those of the same kind where its limit is the narrower one.
        """
        capacity, held = self._capacity(), self._held()
        line = {visitor: list(turns) for visitor, turns in self._line.items()}
        numbers = count()
        ends = [(self._left(turn, now), next(numbers), turn) for turn in self._running]
        heapify(ends)
        seconds: dict[Turn, float | None] = {}
        at: float | None = 0.0 if capacity and self._durations else None
        while line:
            turn = self._next(line, held, max(1, capacity))
            if turn is None and ends:
                end, _, ended = heappop(ends)
                held.add(ended, -1)
                _put_last(line, ended.visitor)
                at = None if at is None else max(at, end)
                continue
            turn = turn or next(iter(line.values()))[0]  # nobody can run now
            _take(line, turn)
            seconds[turn] = at
            held.add(turn)
            heappush(ends, ((at or 0.0) + self._usual(turn.kind), next(numbers), turn))
        return self._placed(seconds, capacity)

    def _placed(self, seconds: Mapping[Turn, float | None], capacity: int) -> dict[Turn, Waiting]:
        """The places of wishes that stand in the order of their turns."""
        lines = {
            turn: turn.kind if self._limits.get(turn.kind, capacity) < capacity else None
            for turn in seconds
        }
        everybody = Counter(turn.kind for turn in seconds)
        before: Counter[str | None] = Counter()
        placed = {}
        for turn, line in lines.items():
            before[None] += 1
            before[turn.kind] += 1
            of = len(seconds) if line is None else everybody[line]
            placed[turn] = Waiting(before[line], of, seconds[turn])
        return placed

    def _usual(self, kind: str) -> float:
        """Mean seconds of recent runs of a kind, of any kind before one of it has ended; 1 before any has."""
        every = [one for durations in self._durations.values() for one in durations]
        recent = self._durations.get(kind) or every
        return sum(recent) / len(recent) if recent else 1.0

    def _left(self, turn: Turn, now: float) -> float:
        """Seconds that a run is expected to go on: what recent ones had left when they were as old."""
        age = now - (turn.begun or 0.0)
        left = [one - age for one in self._durations.get(turn.kind, ()) if one > age]
        return sum(left) / len(left) if left else max(0.0, self._usual(turn.kind) - age)


def _take(line: dict[Hashable, list[Turn]], turn: Turn) -> None:
    """Out of the line because its turn has come."""
    turns = line[turn.visitor]
    turns.remove(turn)
    if turns:
        _put_last(line, turn.visitor)
    else:
        del line[turn.visitor]


def _put_last(line: dict[Hashable, list[Turn]], visitor: Hashable) -> None:
    """Who has had a turn waits behind all who wait now, however early he asked for the next."""
    if visitor in line:
        line[visitor] = line.pop(visitor)
