"""What a crowd on the page has seen, what of it falls short, and its figures; see `crowd`."""

from __future__ import annotations

import os
import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

GROWTH = 1.1  # most that memory may grow from the second quarter to the last
GROWTH_SECONDS = 120.0  # of a crowd whose growth says something
POINTS = 60  # of memory and threads over time in the JSON
OUTCOMES = ("finished", "stopped", "dropped", "failed")


@dataclass(slots=True)
class Run:
    """One run of a visitor, seconds counted from the press of Run; None where it was not reached.

    waited: until its first lane began; first: until its first token was on its way
    outcome: one of OUTCOMES; problem: why it failed, in the page's words
    """

    visitor: int
    method: str
    outcome: str = ""
    waited: float | None = None
    first: float | None = None
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The server at a time: seconds since the crowd began, resident memory in MB, threads."""

    seconds: float
    megabytes: float
    threads: int


@dataclass(slots=True)
class Crowd:
    """What a crowd has seen. leaks: (whose word, who saw it); fresh: the run of a visitor who came after all had left"""

    visitors: int
    seconds: float
    runs: list[Run] = field(default_factory=list)
    leaks: list[tuple[int, int]] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    fresh: Run | None = None
    tracebacks: int = 0

    def count(self, outcome: str) -> int:
        """How many runs ended so."""
        return sum(run.outcome == outcome for run in self.runs)

    def grown(self) -> float | None:
        """Memory in the last quarter of the crowd's time over that in its second; None where that says nothing."""
        during = [look for look in self.memory if look.seconds <= self.seconds]
        if self.seconds < GROWTH_SECONDS or len(during) < 8:
            return None
        quarter = len(during) // 4
        sizes = [look.megabytes for look in during]
        return statistics.median(sizes[-quarter:]) / statistics.median(sizes[quarter : 2 * quarter])


def failures(crowd: Crowd) -> list[str]:
    """What falls short of what is asked for, a sentence each."""
    found = [
        f"{number} runs failed: {problem}"
        for problem, number in Counter(
            run.problem for run in crowd.runs if run.outcome == "failed"
        ).most_common()
    ]
    if not crowd.runs:
        found.append("Nobody ran anything.")
    found += [f"Visitor {who} saw a word of visitor {owner}." for owner, who in set(crowd.leaks)]
    if crowd.tracebacks:
        found.append(f"The server wrote {crowd.tracebacks} tracebacks.")
    grown = crowd.grown()
    if grown is not None and grown > GROWTH:
        found.append(f"Memory still grows: {grown:.2f} times from the second quarter to the last.")
    if crowd.fresh is None or crowd.fresh.outcome != "finished":
        found.append("A fresh visitor was not answered afterwards.")
    return found


def rows(crowd: Crowd) -> list[tuple[str, str]]:
    """The figures, a name and a text each."""
    fates = ", ".join(f"{crowd.count(name)} {name}" for name in OUTCOMES)
    found = [
        ("visitors, minutes", f"{crowd.visitors}, {crowd.seconds / 60:.1f}"),
        ("runs", f"{len(crowd.runs)}: {fates}"),
        ("wait for the turn", _spread([run.waited for run in crowd.runs])),
        ("wait for the first token", _spread([run.first for run in crowd.runs])),
        ("words of one visitor seen by another", str(len(set(crowd.leaks)))),
        ("tracebacks of the server", str(crowd.tracebacks)),
    ]
    if crowd.memory:
        sizes, threads = (
            [getattr(look, name) for look in crowd.memory] for name in ("megabytes", "threads")
        )
        found += [
            ("memory before, at most, after all left", f"{sizes[0]:.0f}, {max(sizes):.0f}, {sizes[-1]:.0f} MB"),
            ("threads before, at most, after all left", f"{threads[0]}, {max(threads)}, {threads[-1]}"),
        ]  # fmt: skip
        grown = crowd.grown()
        if grown is not None:
            found.append(("memory in the last quarter over the second", f"{grown:.2f}"))
    if crowd.fresh and crowd.fresh.first is not None:
        found.append(("first token of a fresh visitor afterwards", f"{crowd.fresh.first:.1f} s"))
    return found


def measurement(crowd: Crowd, command: str) -> dict[str, Any]:
    """The figures as a file of docs/measured: a table, and below it all values."""
    thin = max(1, len(crowd.memory) // POINTS)
    values = {**asdict(crowd), "memory": [asdict(look) for look in crowd.memory[::thin]]}
    return {
        "title": f"A crowd of {crowd.visitors}",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} threads",
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "about": "Waits are median, 95th percentile and maximum. The visitors share the machine with the server.",
        "tables": [{"columns": ["what", "measured"], "rows": [list(row) for row in rows(crowd)]}],
        "crowd": values,
    }


def _spread(values: Sequence[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "nobody came that far"
    high = known[min(len(known) - 1, int(0.95 * len(known)))]
    return f"{statistics.median(known):.1f}, {high:.1f}, {known[-1]:.1f} s"
