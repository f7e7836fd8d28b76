"""Cost of a pass on this machine, and the stopping rule: does one more draft token pay?

Costs, and the rows up to which a pass is exact, are measured when a pair is loaded, and corrected during a run.

A run repeats steps of random length. Its tokens per second are the expected tokens of a step over its expected
seconds (renewal-reward theorem), so one more draft token, or a group of them, makes the run faster exactly if

    gain > rate * seconds

    gain     expected accepted tokens that it adds: for one token, the chance that it and all before it are accepted
    seconds  duration that it adds to the step: drafting, and its row of the target's pass
    rate     tokens per second that are reached without it

Everything that decides on the length of a draft uses `pays` and `best_rate`, or the same inequality:
`drafters.policies.rule` with the costs of a run, `models.outlook` with the costs of a pair.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from statistics import median
from typing import TYPE_CHECKING

from specdemo.engine.types import Outcome, Proposal

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.target import CachedModel


# 4-bit kernels work by blocks of four rows: both sides of the steps
MEASURED_ROWS = (1, 2, 4, 5, 8, 9, 12, 13, 16, 32)
# on a GPU: its kernels and recordings have their limits at different rows
LADDER = (*range(1, 18), 32)
# tokens that the measured passes attend to: for every count of rows, and for the slope
CONTEXT, FAR_CONTEXT = 128, 640
FEW_ROWS, MANY_ROWS = 1, 8  # rows between which the slope by context is measured
DRAFTING = (4, 8, 16, 32)  # rows of a draft's pass, each of a conversation
REPEATS = 3
MEASURE_SECONDS = 4.0  # seconds of measuring; a big model on a slow machine is measured fewer times
ANY_ROWS = 1 << 30
MOST_CHECKED_ROWS = 8  # rows to check, see `exact_rows`
CHECKED_TOKENS = 24  # tokens after a text: whole passes of 2, 3, 4, 6 and 8 rows
FOLLOW = 0.1  # weight of the newest step in the running corrections
STALLED = 4.0  # a pass counts for at most this many times its forecast
SLOWER = 1.4  # the same for the first pass of a run: the profile has the fastest ones, and those of a run take up to a third more


Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Measured costs in seconds; shared by all runs of a pair.

    verify: (rows, seconds) of a target pass over CONTEXT cached tokens, by ascending rows, never falling
    draft_step: one step of the draft model; None without one
    per_cached: seconds that each further cached token adds to a pass of one row; per_cached_row: to each further row
    draft_rows: (rows, seconds) of a step of several conversations' drafts; empty where that was not measured
    exact_rows: rows up to which a pass gives the bits of passes of one row; 0 where that was not measured, ANY_ROWS where
        neither their number nor other rows matter, those of trees and of other runs included
    """

    verify: Points = ((1, 1.0),)
    draft_step: float | None = None
    per_cached: float = 0.0
    per_cached_row: float = 0.0
    draft_rows: Points = ()
    exact_rows: int = 0

    def verify_seconds(self, rows: float, cached: int = CONTEXT, runs: int = 1) -> float:
        """A target pass over this many rows of so many runs: between measured points a straight line, past the last one its slope."""
        further = max(0, cached - CONTEXT)
        per_token = runs * self.per_cached + (rows - runs) * self.per_cached_row
        return _between(self.verify, rows) + further * per_token

    def draft_growth(self, runs: int) -> float:
        """A step of so many runs' drafts, times one run's; as if each took its own where that was not measured."""
        if not self.draft_step or not self.draft_rows or runs <= 1:
            return float(runs)
        return max(1.0, _between(((1, self.draft_step), *self.draft_rows), runs) / self.draft_step)

    def draft_reading(self, rows: int) -> float:
        """Seconds in which the draft reads so many tokens; 0 where that was not measured."""
        if not self.draft_step or not self.draft_rows:
            return 0.0
        return _between(((1, self.draft_step), *self.draft_rows), rows)

    def at_best(self, other: CostProfile) -> CostProfile:
        """The faster of two measurements of the same passes, point by point: noise only adds."""
        verify = _fastest(self.verify, other.verify)
        steps = [step for step in (self.draft_step, other.draft_step) if step]
        # Times, not slopes: of a difference, noise takes away as much as it adds.
        near = CostProfile(verify)
        few, many = (
            min(one.verify_seconds(rows, FAR_CONTEXT) for one in (self, other))
            - near.verify_seconds(rows)
            for rows in (FEW_ROWS, MANY_ROWS)
        )
        drafting = _fastest(self.draft_rows, other.draft_rows)
        exact = self.exact_rows or other.exact_rows
        return CostProfile(verify, min(steps, default=None), *_slopes(few, many), drafting, exact)


def _fastest(points: Points, others: Points) -> Points:
    known = dict(others)
    return tuple((rows, min(spent, known.get(rows, spent))) for rows, spent in points)


def _between(points: Points, rows: float) -> float:
    """Seconds of so many rows: between two points a straight line, past the last one its slope."""
    if len(points) == 1 or rows <= points[0][0]:
        return points[0][1]
    place = min(bisect_left(points, (rows,)), len(points) - 1)
    (rows_a, time_a), (rows_b, time_b) = points[place - 1 : place + 1]
    return time_a + (time_b - time_a) * (rows - rows_a) / (rows_b - rows_a)


def measure_costs(
    target: CachedModel,
    draft: CachedModel | None,
    repeats: int = REPEATS,
    steps: Sequence[int] = MEASURED_ROWS,
) -> CostProfile:
    """Time passes by rows and by context, and draft steps, on caches that are given back empty: a second or two.

    A first round warms up and is never counted: a pass may be recorded or compiled in it. Of the others, one at least, the
    fastest stands: noise only adds.

    steps: rows of the passes
    """
    begun = time.perf_counter()
    steps = [rows for rows in steps if fitting(target, rows, 1) == rows]
    context = fitting(target, CONTEXT, max(steps))
    target.read([0] * context)
    near: dict[int, list[float]] = {rows: [] for rows in steps}
    for rows in steps:
        _pass(target, rows)
    # Few rows first: on a slow machine their time decides on the length of drafts, and one pass may be held up.
    few = [rows for rows in steps if rows <= MANY_ROWS]
    for group, most in ((few, 1.5 * MEASURE_SECONDS), (steps[len(few) :], MEASURE_SECONDS)):
        for _ in range(repeats):
            for rows in group:
                near[rows].append(_pass(target, rows))
            if time.perf_counter() - begun > most:
                break
    verify, slowest = [], 0.0
    for rows, times in near.items():
        slowest = max(slowest, min(times))
        verify.append((rows, slowest))
    per_cached = per_cached_row = 0.0
    further = fitting(target, FAR_CONTEXT, MANY_ROWS) - context
    if further >= CONTEXT and time.perf_counter() - begun < MEASURE_SECONDS:
        # Compare the same passes, one after the other, over both lengths.
        near_few, near_many = _fastest_passes(target, repeats + 1)
        target.read([0] * further)
        far_few, far_many = _fastest_passes(target, repeats + 1)
        per_cached, per_cached_row = _slopes(far_few - near_few, far_many - near_many, further)
    target.rollback(0)
    step, drafting = None, Points()
    if draft is not None:
        draft.read([0] * fitting(draft, CONTEXT, 6 * repeats + max(DRAFTING)))
        spent = [_timed(lambda: draft.read([0])) for _ in range(6 * repeats)]
        step = median(spent[repeats:])
        if time.perf_counter() - begun < 2 * MEASURE_SECONDS:
            drafting = _drafting(draft, step, repeats)
        draft.rollback(0)
    return CostProfile(tuple(verify), step, per_cached, per_cached_row, drafting)


def _fastest_passes(target: CachedModel, repeats: int) -> list[float]:
    """Return the fastest seconds of a pass of FEW_ROWS and of MANY_ROWS."""
    return [min(_pass(target, rows) for _ in range(repeats)) for rows in (FEW_ROWS, MANY_ROWS)]


def fitting(model: CachedModel, length: int, more: int) -> int:
    """Return a length at which so many more tokens fit into a model's context: the given one, or a shorter one."""
    return length if model.context is None else max(1, min(length, model.context - more))


def glance(target: CachedModel, draft: CachedModel | None) -> CostProfile:
    """Measure only passes of FEW_ROWS and MANY_ROWS and a draft step: a fast replacement for `measure_costs`."""
    target.read([0] * fitting(target, CONTEXT, MANY_ROWS))
    verify = tuple(zip((FEW_ROWS, MANY_ROWS), _fastest_passes(target, REPEATS), strict=True))
    target.rollback(0)
    if draft is None:
        return CostProfile(verify)
    draft.read([0] * fitting(draft, CONTEXT, 2 * REPEATS))
    step = min(_timed(lambda: draft.read([0])) for _ in range(2 * REPEATS))
    draft.rollback(0)
    return CostProfile(verify, step)


def _drafting(draft: CachedModel, step: float, repeats: int) -> Points:
    """Measure `draft_rows` with rows of one conversation in place of several. step: seconds of one row"""
    length = draft.length

    def seconds(rows: int) -> float:
        spent = []
        for _ in range(repeats + 1):
            spent.append(_timed(lambda: draft.grow([0] * rows, [-1] * rows)))
            draft.rollback(length)
        return min(spent)

    single = seconds(1)
    slowest, points = step, []
    for rows in DRAFTING:
        if fitting(draft, length, rows) < length:
            break
        slowest = max(slowest, step * seconds(rows) / single)
        points.append((rows, slowest))
    return tuple(points)


def _slopes(few: float, many: float, further: int = FAR_CONTEXT - CONTEXT) -> tuple[float, float]:
    """Return `per_cached` and `per_cached_row`, from the added seconds of passes of both numbers of rows over further tokens."""
    per_cached = max(0.0, few / further)
    return per_cached, max(0.0, (many / further - per_cached) / (MANY_ROWS - FEW_ROWS))


def _pass(target: CachedModel, rows: int) -> float:
    guess = Proposal.chain([0] * (rows - 1))
    return _timed(lambda: target.forward(0, guess))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Costs:
    """One run's view of the costs: the profile, scaled to the duration of this run's own passes.

    A busy machine and the work around a pass end up in the scale. While runs share passes, the cost of a step assumes
    that all of them do the same: a pass over the rows of all, and shared drafts. So the best choice for one run is the
    best for all. When the number of runs changes, the learned rate is scaled to the new number.

    cached: tokens that the next pass attends to; together: runs that shared the last one, or may share the first
    """

    def __init__(self, profile: CostProfile, together: int = 1) -> None:
        self.profile = profile
        self.scale = 1.0
        self._passes = 0  # that the scale has learned from
        self.cached = CONTEXT
        self.together = together
        self._draft_step = profile.draft_step or 0.0
        self.tokens_per_second: float | None = None
        self._recent = [0.0, 0.0]  # tokens and seconds, fading
        self._near: list[float] = []  # passes over few cached tokens, by drafted tokens

    def verify_seconds(self, drafted: int) -> float:
        """A target pass over the pending token and so many drafted ones."""
        return self._verify_seconds(drafted, self.together)

    def _verify_seconds(self, drafted: float, runs: int) -> float:
        return self.scale * self.profile.verify_seconds(runs * (1 + drafted), self.cached, runs)

    @property
    def draft_step(self) -> float:
        """Another step of the draft model."""
        return self.profile.draft_growth(self.together) * self._draft_step

    def token_seconds(self, known: float, outcome: Outcome) -> float:
        """Return the drafting time of a token in seconds, had the run been alone, with one more step's draft counted in.

        known: the estimate before this step
        """
        drafted = len(outcome.proposal)
        if not drafted:
            return known
        alone = outcome.draft_seconds / self.profile.draft_growth(outcome.sharing.runs)
        return known + FOLLOW * (alone / drafted - known)

    def change(self, drafted: float, before: int, after: int) -> float:
        """A step with so many drafted tokens in one company, times the same step in another."""

        def seconds(runs: int) -> float:
            drafting = drafted * self.profile.draft_growth(runs) * self._draft_step
            return self._verify_seconds(drafted, runs) + drafting

        return seconds(after) / seconds(before)

    def row_seconds(self, drafted: int, more: int = 1) -> float:
        """Return the seconds by which `more` tokens lengthen a pass over `drafted` tokens."""
        return self.verify_seconds(drafted + more) - self.verify_seconds(drafted)

    def rows_seconds(self, most: int, together: int) -> list[list[float]]:
        """`row_seconds` of 1 to `most` drafted tokens and, in each, 1 to `together` more."""
        near, runs = self._near, self.together
        while len(near) <= most + together:
            near.append(self.profile.verify_seconds(runs * (1 + len(near))))
        further = max(0, self.cached - CONTEXT) * self.profile.per_cached_row * runs
        return [
            [
                self.scale * (near[drafted + more] - near[drafted] + further * more)
                for more in range(1, together + 1)
            ]
            for drafted in range(1, most + 1)
        ]

    def plain_rate(self) -> float:
        """Tokens a second without drafts."""
        return 1 / self.verify_seconds(0)

    def rate(self) -> float:
        """Tokens a second that a step must beat: the rate of this run, at least that of plain decoding."""
        return max(self.plain_rate(), self.tokens_per_second or 0.0)

    def join(self, runs: int) -> None:
        """So many runs share passes from now on."""
        if runs != self.together:
            self._recent[1] *= self.change(0, self.together, runs)
            self.together, self._near = runs, []

    def observe(self, outcome: Outcome) -> None:
        """Learn from a step's laps."""
        sharing = outcome.sharing
        self.join(sharing.runs)
        rows = sharing.rows or 1 + len(outcome.proposal)
        foreseen = self.profile.verify_seconds(rows, self.cached, min(rows, sharing.runs))
        measured = outcome.verify_seconds / max(1e-9, foreseen)
        if outcome.verify_seconds > 0:
            self._passes += 1
            most = STALLED * self.scale if self._passes > 1 else SLOWER
            weight = max(FOLLOW, 1 / self._passes)
            self.scale += weight * (min(measured, most) - self.scale)
        seconds = outcome.draft_seconds + outcome.verify_seconds
        self._recent = [
            (1 - FOLLOW / 2) * old + new
            for old, new in zip(self._recent, (len(outcome.new_ids), seconds), strict=True)
        ]
        if self._recent[1] > 0:
            self.tokens_per_second = self._recent[0] / self._recent[1]

    def observe_draft(self, seconds: float, runs: int = 1, weight: float = FOLLOW / 4) -> None:
        """Learn the measured duration of one more step of the draft model. seconds: per run; runs: that shared it"""
        step, seconds = self._draft_step, seconds * runs / self.profile.draft_growth(runs)
        self._draft_step += weight * (min(seconds, STALLED * step or seconds) - step)


def exact_rows(target: CachedModel, most: int = MOST_CHECKED_ROWS) -> int:
    """Return the rows up to which a pass gives the bits of passes of one row, over a short and a longer text; 1 for none.

    Up to there a greedy text cannot depend on drafts. A sample, no proof. Rows of a tree are not among it, nor passes that runs share. The cache is given back empty.
    """
    import torch

    found = most
    for context in (fitting(target, one, CHECKED_TOKENS) for one in (CONTEXT, FAR_CONTEXT)):
        text = [
            7919 * place % target.decoder.config.vocab_size
            for place in range(context + CHECKED_TOKENS)
        ]
        prompt, token_ids = text[:context], text[context:]
        alone = read_in_passes(target, prompt, token_ids, 1)
        for rows in range(2, found + 1):
            together = read_in_passes(target, prompt, token_ids, rows)
            if not torch.equal(alone[: len(together)], together):
                found = rows - 1
                break
    target.rollback(0)
    return found


def read_in_passes(
    target: CachedModel, prompt: Sequence[int], token_ids: Sequence[int], rows: int
) -> Tensor:
    """Logits of tokens behind a prompt, read in passes of so many rows with the cache that such passes have written.

    returns: (tokens, V); those of the last tokens are left out where they do not fill a pass
    """
    import torch

    target.rollback(0)
    target.read(prompt)
    answers = []
    for begin in range(0, len(token_ids) - rows + 1, rows):
        first, *others = token_ids[begin : begin + rows]
        answers.append(target.forward(first, Proposal.chain(others)).logits)
        target.keep(range(len(others)))
    return torch.cat(answers)


def pays(gain: float, seconds: float, rate: float) -> bool:
    """Return whether an addition to a draft makes the run faster; see above."""
    return gain > rate * seconds


def best_rate(
    chances: Sequence[float], seconds: Callable[[int], float], lengths: Sequence[int]
) -> float:
    """Return the tokens per second of the best of some chain lengths.

    chances: by position, chance that a token is accepted once all before it are
    seconds(n): duration of a step with n draft tokens
    """
    survivals = list(accumulate(chances, mul))
    return max(float(1 + sum(survivals[:length])) / seconds(length) for length in lengths)
