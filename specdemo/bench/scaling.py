"""How many engines a class needs: students who ask, wait and read, simulated on the measured costs of a machine. Modelled.

    python -m specdemo.bench.scaling --students 30,300,3000

A saved run tells what its machine needs for a token of a prompt and for a step of each lane. How much faster an
engine answers eight runs together than in turn is measured by `bench --concurrent 8`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from specdemo.bench.report import aligned
from specdemo.config.errors import UserError
from specdemo.config.paths import ASSETS
from specdemo.trace.events import PLAIN, SPECULATIVE, RunStarted
from specdemo.trace.metrics import measure
from specdemo.trace.replay import read

RECORDED = ASSETS / "runs" / "01-guess-and-check.jsonl"
TOGETHER = (
    2.7,
    1.2,
)  # measured beside the recorded runs: eight plain runs and eight of auto, over one after the other
PROMPT_TOKENS = 60
ANSWER_TOKENS = (48, 128)
PAUSE_SECONDS = 60.0  # that a student reads and thinks between two runs, in the mean
SLOTS = 8  # runs that an engine takes at once
FALLBACKS = 2  # engines that a run may go to when the student's own is full
WARM_UP, HORIZON = 300.0, 1200.0  # seconds: what is counted, and when it ends
MOMENT = 1e-8  # seconds that count as none
PATIENCE = 5.0  # seconds to the first token that 95 of 100 runs keep below


@dataclass(frozen=True, slots=True)
class Speed:
    """One lane of a run that is alone. seconds, tokens: of a step; together: tokens a second of SLOTS runs over one's"""

    seconds: float
    tokens: float
    together: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What an engine can do on a machine. read_seconds: of a token of a prompt"""

    name: str
    read_seconds: float
    plain: Speed
    drafted: Speed


# Nobody has measured it: steps that wait for the card to be told what to do, whatever their rows.
ASSUMED_GPU = Machine(
    "a graphics card, assumed", 0.00005, Speed(0.004, 1.0, 6.0), Speed(0.007, 3.0, 4.0)
)


def recorded_machine(path: Path, together: tuple[float, float] = TOGETHER) -> Machine:
    """The machine of a saved run. Raises UserError where it has not both lanes.

    together: of SLOTS plain runs and of SLOTS drafted ones, see `Speed`
    """
    trace = read(path).trace
    lanes = [trace.lane(name) for name in (PLAIN, SPECULATIVE)]
    runs = [measure(lane) for lane in lanes]
    header = next((event for event in trace.events if isinstance(event, RunStarted)), None)
    if header is None or not all(run.steps for run in runs):
        raise UserError("bench.lane_missing", path=path)
    plain, drafted = (
        Speed(run.elapsed_seconds / run.steps, run.new_tokens / run.steps, gain)
        for run, gain in zip(runs, together, strict=True)
    )
    read_tokens = max(1, header.prompt_tokens - header.cached_tokens)
    return Machine(header.machine, header.prefill_seconds / read_tokens, plain, drafted)


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps of one kind in a row. seconds: of one step of a run that is alone; together: see `Speed`"""

    steps: float
    seconds: float
    together: float


def phases(machine: Machine, prompt_tokens: int, answer_tokens: int) -> tuple[Phase, ...]:
    """A run: the prompt is read, plain decoding answers for comparison, then drafting does."""
    answers = (
        Phase(answer_tokens / lane.tokens, lane.seconds, lane.together)
        for lane in (machine.plain, machine.drafted)
    )
    return Phase(1, prompt_tokens * machine.read_seconds, 1.0), *answers


@dataclass(slots=True)
class Run:
    """A run that goes on. left: steps of its phase"""

    student: int
    asked: float
    phases: Iterator[Phase]
    phase: Phase
    left: float
    first_token: float | None = None


@dataclass(slots=True)
class Engine:
    """The runs of one engine. at: when they were last brought up to date; version: of the event that is planned"""

    runs: list[Run] = field(default_factory=list)
    at: float = 0.0
    busy: float = 0.0
    version: int = 0

    def round_seconds(self) -> float:
        """In which every run takes a step. Between one run and SLOTS of them what they gain grows in a straight line."""
        full = (len(self.runs) - 1) / (SLOTS - 1)
        return sum(run.phase.seconds / (1 + full * (run.phase.together - 1)) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What students of a class saw.

    first_token: seconds from asking to the first token, of the median run and of the slowest of 95 in 100
    whole: seconds from asking to the end of the median run; busy: share of the time that an engine computes
    """

    students: int
    replicas: int
    runs: int
    first_token: tuple[float, float]
    whole: float
    busy: float


class Class:
    """A class on a number of engines, event by event. A student stays with one engine, or goes to the next when it is full."""

    def __init__(self, machine: Machine, students: int, replicas: int, seed: int = 0) -> None:
        self.machine, self.students, self.replicas = machine, students, replicas
        self._random = random.Random(seed)
        self._engines = [Engine() for _ in range(replicas)]
        near = min(replicas, 1 + FALLBACKS)
        self._homes = [self._random.sample(range(replicas), near) for _ in range(students)]
        self._line: list[tuple[float, int]] = []  # (asked, student)
        self._events: list[
            tuple[float, int, int, int]
        ] = []  # (when, number, engine or -1, student or version)
        self._numbers = count()
        self._waits: list[float] = []
        self._wholes: list[float] = []

    def play(self) -> Outcome:
        """The lesson."""
        for student in range(self.students):
            self._plan(self._pause(), -1, student)
        while self._events:
            now, _, place, which = heappop(self._events)
            if now > HORIZON:
                break
            if place < 0:
                self._ask(now, which)
            elif which == self._engines[place].version:
                self._advance(now, place)
        waits, wholes = sorted(self._waits), sorted(self._wholes)
        busy = sum(engine.busy for engine in self._engines) / (HORIZON * self.replicas)
        return Outcome(
            self.students, self.replicas, len(wholes), (_part(waits, 0.5), _part(waits, 0.95)),
            _part(wholes, 0.5), busy,
        )  # fmt: skip

    def _pause(self) -> float:
        return self._random.expovariate(1 / PAUSE_SECONDS)

    def _plan(self, when: float, place: int, which: int) -> None:
        heappush(self._events, (when, next(self._numbers), place, which))

    def _ask(self, now: float, student: int) -> None:
        for place in self._homes[student]:
            if len(self._engines[place].runs) < SLOTS:
                self._begin(now, place, now, student)
                return
        self._line.append((now, student))

    def _begin(self, now: float, place: int, asked: float, student: int) -> None:
        self._bring(now, self._engines[place])
        parts = iter(phases(self.machine, PROMPT_TOKENS, self._random.randint(*ANSWER_TOKENS)))
        first = next(parts)
        self._engines[place].runs.append(Run(student, asked, parts, first, first.steps))
        self._foresee(now, place)

    def _bring(self, now: float, engine: Engine) -> None:
        """Count the steps since the last look."""
        if engine.runs:
            steps = (now - engine.at) / engine.round_seconds()
            for run in engine.runs:
                run.left -= steps
            engine.busy += now - engine.at
        engine.at = now

    def _foresee(self, now: float, place: int) -> None:
        """Plan the end of the phase that ends first."""
        engine = self._engines[place]
        engine.version += 1
        if engine.runs:
            left = max(0.0, min(run.left for run in engine.runs))
            when = now + left * engine.round_seconds()
            self._plan(when, place, engine.version)

    def _advance(self, now: float, place: int) -> None:
        """A phase of some run has ended, or the run."""
        engine = self._engines[place]
        self._bring(now, engine)
        rest = max(
            1e-6, MOMENT / engine.round_seconds()
        )  # of a step: too short for the clock to move
        for run in [run for run in engine.runs if run.left < rest]:
            if run.first_token is None:
                run.first_token = now
            phase = next(run.phases, None)
            if phase:
                run.phase, run.left = phase, phase.steps
            else:
                self._end(now, engine, run)
        while self._line and len(engine.runs) < SLOTS and self._let_in(now, place):
            pass
        self._foresee(now, place)

    def _end(self, now: float, engine: Engine, run: Run) -> None:
        engine.runs.remove(run)
        if run.asked >= WARM_UP:
            self._waits.append((run.first_token or now) - run.asked)
            self._wholes.append(now - run.asked)
        self._plan(now + self._pause(), -1, run.student)

    def _let_in(self, now: float, place: int) -> bool:
        """The first in the line who may use this engine. returns: whether there is one"""
        for index, (asked, student) in enumerate(self._line):
            if place in self._homes[student]:
                del self._line[index]
                self._begin(now, place, asked, student)
                return True
        return False


def _part(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.inf


def needed(machine: Machine, students: int, patience: float = PATIENCE) -> Outcome:
    """The class on the fewest engines with which 95 of 100 runs show their first token in time."""
    least, most = 0, 1
    found = Class(machine, students, most).play()
    while found.first_token[1] > patience:
        least, most = most, 2 * most
        found = Class(machine, students, most).play()
    while most - least > 1:
        middle = (least + most) // 2
        outcome = Class(machine, students, middle).play()
        if outcome.first_token[1] > patience:
            least = middle
        else:
            most, found = middle, outcome
    return found


HEADS = ("engine", "students", "replicas", "first token, median", "first token, 95 of 100", "whole run, median", "computing")  # fmt: skip


def table(outcomes: Sequence[tuple[str, Outcome]]) -> dict[str, Any]:
    """The outcomes as a table of a measured file."""
    rows = [
        [
            name, f"{one.students:,}", str(one.replicas), f"{one.first_token[0]:.1f} s",
            f"{one.first_token[1]:.1f} s", f"{one.whole:.1f} s", f"{100 * one.busy:.0f} %",
        ]
        for name, one in outcomes
    ]  # fmt: skip
    return {"columns": list(HEADS), "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m specdemo.bench.scaling", description=__doc__)
    parser.add_argument("--students", default="30,300,3000", metavar="N,N", help="sizes of classes")
    parser.add_argument(
        "--trace", type=Path, default=RECORDED, help="a saved run on the machine that is to serve"
    )
    parser.add_argument(
        "--together", default=",".join(map(str, TOGETHER)), metavar="X,Y",
        help="speed of eight plain runs together over in turn, and of eight drafted ones, as bench --concurrent 8 measures it",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="write the table there, as the documents read it")
    options = parser.parse_args(arguments)
    try:
        plain, drafted = map(float, options.together.split(","))
        machine = recorded_machine(options.trace, (plain, drafted))
    except UserError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    outcomes = [
        (one.name, needed(one, int(students)))
        for one in (machine, ASSUMED_GPU)
        for students in options.students.split(",")
    ]
    found = table(outcomes)
    if options.json:
        about = (
            f"Modelled. {machine.name}: a plain step takes {1000 * machine.plain.seconds:.1f} ms, a drafted one "
            f"{1000 * machine.drafted.seconds:.1f} ms and gives {machine.drafted.tokens:.1f} tokens; eight runs together are "
            f"{plain:g}× (plain) and {drafted:g}× (drafted) as fast as in turn. Students pause {PAUSE_SECONDS:.0f} s in the mean. "
            f"Answers have {ANSWER_TOKENS[0]} to {ANSWER_TOKENS[1]} tokens, once plain and once drafted. The graphics card is assumed, not measured."
        )
        date = datetime.now(UTC).date().isoformat()
        text = json.dumps(
            {"modelled": True, "date": date, "about": about, "tables": [found]}, indent=1
        )
        options.json.write_text(text + "\n", encoding="utf-8")
    print(aligned(list(HEADS), found["rows"]))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
