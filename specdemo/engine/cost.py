"""What a pass costs on this machine: measured once when a pair is loaded, corrected while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from specdemo.engine.types import LanguageModel, Outcome, Proposal

if TYPE_CHECKING:
    from specdemo.engine.target import CachedModel

ROWS = (
    1,
    2,
    4,
    5,
    8,
    9,
    12,
    13,
    16,
    32,
)  # 4-bit kernels work by blocks of four rows: both sides of the steps
CONTEXT = 128  # tokens that the measured passes attend to
REPEATS = 3
PATIENCE = 4.0  # seconds of measuring; a big model on a slow machine is measured fewer times
FOLLOW = 0.1  # weight of the newest step in the running corrections


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Measured costs in seconds; shared by all runs of a pair.

    verify: (rows, seconds) of a target pass, by ascending rows, never falling
    draft_step: one step of the draft model; None without one
    """

    verify: tuple[tuple[int, float], ...] = ((1, 1.0),)
    draft_step: float | None = None

    def verify_seconds(self, rows: int) -> float:
        """A target pass over this many rows: between measured points a straight line, past the last one its slope."""
        points = self.verify
        if len(points) == 1 or rows <= points[0][0]:
            return points[0][1]
        (rows_a, time_a), (rows_b, time_b) = next(
            ((a, b) for a, b in pairwise(points) if rows <= b[0]), points[-2:]
        )
        return time_a + (time_b - time_a) * (rows - rows_a) / (rows_b - rows_a)


def measure_costs(target: CachedModel, draft: LanguageModel | None) -> CostProfile:
    """Time passes by rows and draft steps on caches that are given back empty: about a second on a laptop.

    The first round warms up and is not counted, unless it is the only one; of the others the fastest stands: noise only adds.
    """
    begun = time.perf_counter()
    text = [0] * CONTEXT
    target.read(text)
    seconds: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(REPEATS + 1):
        for rows in ROWS:
            guess = Proposal.chain([0] * (rows - 1))
            seconds[rows].append(_timed(lambda guess=guess: target.forward(0, guess)))
        if time.perf_counter() - begun > PATIENCE:
            break
    target.rollback(0)
    verify, slowest = [], 0.0
    for rows, spent_list in seconds.items():
        slowest = max(slowest, min(spent_list[1:] or spent_list))
        verify.append((rows, slowest))
    if draft is None:
        return CostProfile(tuple(verify))
    draft.read(text)
    steps = [_timed(lambda: draft.read([0])) for _ in range(6 * REPEATS)]
    draft.rollback(0)
    return CostProfile(tuple(verify), median(steps[REPEATS:]))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Costs:
    """One run's view of the costs: the profile, scaled to what this run's own passes take.

    A longer context, a busy machine and the work around a pass all end up in the scale.
    """

    def __init__(self, profile: CostProfile) -> None:
        self.profile = profile
        self.scale = 1.0
        self.draft_step = profile.draft_step or 0.0
        self.tokens_per_second: float | None = None
        self._recent = [0.0, 0.0]  # tokens and seconds, fading

    def verify_seconds(self, drafted: int) -> float:
        """A target pass over the pending token and so many drafted ones."""
        return self.scale * self.profile.verify_seconds(1 + drafted)

    def row_seconds(self, drafted: int, more: int = 1) -> float:
        """What more drafted tokens add to the pass over so many."""
        return self.verify_seconds(drafted + more) - self.verify_seconds(drafted)

    def plain_rate(self) -> float:
        """Tokens a second without drafts."""
        return 1 / self.verify_seconds(0)

    def rate(self) -> float:
        """Tokens a second that a step must beat: what this run reaches, at least plain decoding's."""
        return max(self.plain_rate(), self.tokens_per_second or 0.0)

    def observe(self, outcome: Outcome) -> None:
        """Learn from a step's laps."""
        drafted = len(outcome.proposal)
        measured = outcome.verify_seconds / max(1e-9, self.profile.verify_seconds(1 + drafted))
        if outcome.verify_seconds > 0:
            self.scale += FOLLOW * (min(measured, 4 * self.scale) - self.scale)
        seconds = outcome.draft_seconds + outcome.verify_seconds
        self._recent = [
            (1 - FOLLOW / 2) * old + new
            for old, new in zip(self._recent, (len(outcome.new_ids), seconds), strict=True)
        ]
        if self._recent[1] > 0:
            self.tokens_per_second = self._recent[0] / self._recent[1]

    def observe_draft(self, seconds: float) -> None:
        """Learn what one more step of the draft model really took."""
        self.draft_step += (
            FOLLOW / 4 * (min(seconds, 4 * self.draft_step or seconds) - self.draft_step)
        )


def expected_tokens(survivals: Sequence[float]) -> float:
    """Tokens a step is expected to give: the target's own and each drafted one that survives (a tree's likewise)."""
    return 1.0 + sum(survivals)
