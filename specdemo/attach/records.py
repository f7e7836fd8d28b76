"""Draft statistics of one request or interval, however much its source names, with a Markdown table and AIPerf's record.

A value that the source does not name is None, never a guess; `approximate` marks rounds that were computed from other numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from specdemo.attach.servers import Generation
from specdemo.config.strings import Json

MOST_ROUNDS = 200_000  # rounds and records that are read from one file, at most
MOST_PROBLEMS = 8  # problems of a file that are listed with their line
MOST_ROWS = 200  # rows of a table; further records are only in the sum
LONGEST_CELL = 80  # characters of a cell
MOST_DRAFTED = 1024  # tokens of one draft, at most
COLUMNS = ("request", "tokens", "rounds", "drafted", "accepted", "rate", "tokens/round", "tokens/s", "by position")  # fmt: skip
SUMMED = ("tokens", "drafted", "accepted", "rounds", "seconds")
Steps = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Statistics of one request, or of one interval of a server's log.

    tokens: of the answers, with the first one; rounds: verifications of a draft, steps without one left out
    positions: fraction of all rounds in which the draft token at each position was accepted, the first position first
    steps: (accepted, drafted) of each round with a draft, in order; histogram: rounds by number of accepted tokens
    mean: tokens a round as the source gives it, the target's own included
    seconds: duration of decoding; rate: tokens a second as the source gives them
    """

    name: str
    engine: str = ""
    tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    mean: float | None = None
    positions: tuple[float, ...] = ()
    steps: Steps = ()
    histogram: tuple[int, ...] = ()
    seconds: float | None = None
    rate: float | None = None
    approximate: bool = False
    generation: Generation | None = None

    @property
    def acceptance(self) -> float | None:
        """Accepted draft tokens / draft tokens."""
        return None if self.accepted is None or not self.drafted else self.accepted / self.drafted

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens that a verification of a draft gives, the target's own included."""
        if self.rounds and self.accepted is not None:
            return 1 + self.accepted / self.rounds
        return self.mean

    @property
    def tokens_per_second(self) -> float | None:
        """Speed of decoding."""
        if self.rate is None and self.tokens and self.seconds:
            return self.tokens / self.seconds
        return self.rate

    @property
    def reached(self) -> tuple[int, ...]:
        """Rounds that accepted the draft token at each position."""
        return tuple(accumulate(reversed(self.histogram)))[::-1][1:]

    @property
    def by_position(self) -> tuple[tuple[int, int, int], ...]:
        """Drafts with a token at each position, those in which it was tested, and accepted; empty if draft lengths are unknown.

        A histogram has an entry for each possible length, so it tells the lengths if all drafts have the largest one. SGLang's
        ends at the most accepted tokens, but counts the same number of drafted tokens for each round.
        """
        counts = Counter(self.steps)
        length, rest = divmod(self.drafted or 0, self.rounds or 1)
        spare = length + 1 - len(self.histogram)
        fits = spare == 0 or (spare > 0 and self.engine == "sglang")
        if not counts and self.histogram and not rest and fits:
            counts = Counter({(kept, length): count for kept, count in enumerate(self.histogram)})
        longest = max((drafted for _, drafted in counts), default=0)
        return tuple(
            (
                sum(count for (_, drafted), count in counts.items() if drafted > n),
                sum(count for (kept, drafted), count in counts.items() if drafted > n <= kept),
                sum(count for (kept, _), count in counts.items() if kept > n),
            )
            for n in range(longest)
        )

    def counted(self) -> Record:
        """Return the record with all numbers that follow exactly from those that it has."""
        found = self
        if self.steps:
            kept = [accepted for accepted, _ in self.steps]
            drafted = sum(drafted for _, drafted in self.steps)
            histogram = tuple(map(kept.count, range(max(kept) + 1)))
            found = replace(self, histogram=histogram, drafted=drafted, accepted=sum(kept))
        if found.histogram:
            rounds = sum(found.histogram)
            positions = tuple(number / rounds for number in found.reached) if rounds else ()
            return replace(found, rounds=rounds, positions=found.positions or positions)
        if self.rounds is None and self.mean and self.mean > 1 and self.accepted is not None:
            return replace(self, rounds=round(self.accepted / (self.mean - 1)), approximate=True)
        return self

    def aiperf(self) -> Json | None:
        """Return AIPerf's SpecDecodeAcceptanceRecord, or None if the source does not tell how long each draft was accepted."""
        rounds, rate = self.rounds, self.acceptance
        if not self.histogram or not rounds or rate is None:
            return None
        weighted = sum(number * count for number, count in enumerate(self.histogram))
        return {
            "engine": self.engine,
            "mean_acceptance_length": 1 + weighted / rounds,
            "draft_acceptance_rate": rate,
            "acceptance_histogram": {str(n): count for n, count in enumerate(self.histogram) if count},
            "num_accepted_draft_tokens": weighted,
            "num_draft_tokens": self.drafted,
            "num_spec_steps": rounds,
            "num_spec_tokens": max((drafted for _, drafted in self.steps), default=None),
            "completion_tokens": self.tokens,
            "per_step_accepted": [accepted for accepted, _ in self.steps] or None,
            "per_step_drafted": [drafted for _, drafted in self.steps] or None,
        }  # fmt: skip

    def cells(self) -> list[str]:
        """Return the row of a table; a dash is unknown."""
        rounds = _shown(self.rounds)
        return [
            self.name,
            _shown(self.tokens),
            f"~{rounds}" if self.approximate and self.rounds else rounds,
            _shown(self.drafted),
            _shown(self.accepted),
            _shown(self.acceptance, ".1%"),
            _shown(self.tokens_per_round, ".2f"),
            _shown(self.tokens_per_second, ".1f"),
            " ".join(f"{part:.0%}" for part in self.positions[:16]) or "-",
        ]


def from_rounds(name: str, generation: Generation) -> Record:
    """Return the record of a generation whose rounds are known."""
    steps = [(one.accepted or 0, one.drafted) for one in generation.rounds if one.drafted]
    record = Record(name, generation.server, generation.tokens, 0, 0, 0, steps=tuple(steps))
    seconds = generation.decode_seconds or _sum(one.seconds for one in generation.rounds)
    return replace(record.counted(), seconds=seconds, generation=generation)


def total(records: Sequence[Record]) -> Record:
    """Return the sum of records; a number that one of them lacks is unknown."""
    sums: Json = {name: _sum(getattr(one, name) for one in records) for name in SUMMED}
    approximate = any(one.approximate for one in records)
    merged = Record("all", records[0].engine, approximate=approximate, **sums)
    steps = tuple(step for one in records for step in one.steps)
    return replace(merged, steps=steps).counted() if all(one.steps for one in records) else merged


def table(records: Sequence[Record]) -> list[list[str]]:
    """Return the rows of the first records, and of their sum. Columns: see `COLUMNS`"""
    sums = [total(records)] if len(records) > 1 else []
    return [one.cells() for one in (*records[:MOST_ROWS], *sums)]


def markdown(records: Sequence[Record]) -> str:
    """Return the records as a Markdown table for an issue, with their sum."""
    return markdown_table(COLUMNS, table(records))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are numbers."""
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_CELL])
    return shown.replace("|", "\\|")


def _shown(value: float | None, form: str = "d") -> str:
    return "-" if value is None else format(value, form)


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    present = [value for value in known if value is not None]
    return sum(present[1:], present[0]) if present and len(present) == len(known) else None


@dataclass(slots=True)
class Problems:
    """Lines of a file that could not be read: their number, and the first of them with the kind of each."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, kind: str) -> None:
        """Count one. line: its number, 0 for the whole file; kind: a key of `import_problems` in the strings"""
        self.count += 1
        if len(self.first) < MOST_PROBLEMS:
            self.first.append((line, kind))
