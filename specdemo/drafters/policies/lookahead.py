"""Policies that decide before and while drafting how many tokens to draft.

A policy may use the probabilities of the drafted tokens, but only to stop *after* one: dropping a drawn
token because of its own probability would bias the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from specdemo.config.settings import MAX_LOOKAHEAD
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.engine.cost import Costs
from specdemo.engine.types import Outcome
from specdemo.kernels.plan import StopRule
from specdemo.trace.events import Reason

REFRESH_STEPS = 4  # after which `cost` reads the costs again: they drift slowly


class Lookahead:
    """Decides how far ahead to draft. A subclass overrides what differs from a constant lookahead."""

    def __init__(self, lookahead: int, reason: Reason, rule: StopRule) -> None:
        self.lookahead = lookahead
        self._reason = reason
        self._rule = rule
        self._drafted, self._survival = 0, 1.0

    @property
    def rule(self) -> StopRule:
        """The decisions of the step that has started."""
        return self._rule

    @property
    def reason(self) -> Reason:
        """Why the step has drafted as many tokens."""
        return self._reason

    def allowed(self, committed: Sequence[int]) -> int:
        """Most tokens to draft in the step that starts; called once a step, before `go_on`."""
        self._drafted, self._survival = 0, 1.0
        return self.lookahead

    def go_on(self, confidence: float) -> bool:
        """Return True to draft another token after one of this probability under the drafter; called in order."""
        rule = self.rule
        self.took(self._drafted + 1, self._survival * rule.chance(confidence))
        return rule.goes_on(self._drafted, confidence, self._survival)

    def took(self, drafted: int, survival: float) -> None:
        """Set what the step has drafted. survival: product of the rates of the rule"""
        self._drafted, self._survival = drafted, survival

    def observe(self, outcome: Outcome) -> None:
        """Learn from the outcome of the draft."""


class Constant(Lookahead):
    """Always the same lookahead."""

    def __init__(self, lookahead: int) -> None:
        reason = Reason("constant", {"lookahead": lookahead})
        super().__init__(lookahead, reason, StopRule.never(lookahead))


class Heuristic(Lookahead):
    """Two more after a draft that was accepted completely, one less otherwise, never below one (transformers' `heuristic`)."""

    def __init__(self, lookahead: int) -> None:
        reason = Reason("heuristic", {"lookahead": lookahead})
        super().__init__(lookahead, reason, StopRule.never(MAX_LOOKAHEAD))

    def observe(self, outcome: Outcome) -> None:
        """Grow or shrink. A step without a draft changes nothing."""
        if not len(outcome.proposal):
            return
        whole = len(outcome.verdict.path) == len(outcome.proposal)
        self.lookahead = (
            min(MAX_LOOKAHEAD, self.lookahead + 2) if whole else max(1, self.lookahead - 1)
        )
        self._reason = Reason("heuristic_more" if whole else "heuristic_fewer")


class Confidence(Lookahead):
    """Stop after a drafted token that is unlikely under the drafter itself; the threshold adapts to the acceptances.

    After each step the threshold becomes the one that would have made the fewest weighted mistakes on the
    recent drafted tokens: drafting past a rejected token costs 1, stopping at an accepted one costs 3
    (transformers weighs false positives + 3 x false negatives; Mamou 2405.04304).
    """

    MIN_SAMPLES = 32

    def __init__(self, threshold: float, most: int = 20) -> None:
        reason = Reason("confidence", {"threshold": threshold})
        super().__init__(most, reason, StopRule.never(most, threshold))
        self.threshold = threshold
        self._seen: deque[tuple[float, bool]] = deque(maxlen=256)

    def observe(self, outcome: Outcome) -> None:
        chances = outcome.verdict.accept_probs
        kept = set(outcome.verdict.path)
        tested = [node for node in range(len(outcome.proposal)) if chances[node] is not None]
        for node in tested:
            confidence = outcome.proposal.confidences[node]
            if confidence is not None:
                self._seen.append((confidence, node in kept))
        if tested and len(self._seen) >= self.MIN_SAMPLES:
            self.threshold = self._best_threshold()
            self._rule = StopRule.never(self.lookahead, self.threshold)
        self._reason = Reason("confidence", {"threshold": self.threshold})

    def _best_threshold(self) -> float:
        """The candidate with the least cost: (refused at or above it) + 3 x (accepted below it)."""
        ordered = sorted(self._seen)
        positives = sum(kept for _, kept in ordered)
        above_refused, below_kept = len(ordered) - positives, 0
        best, best_cost = 0.0, above_refused
        for confidence, kept in ordered:
            below_kept += kept
            above_refused -= not kept
            cost = above_refused + 3 * below_kept
            if cost < best_cost:
                best, best_cost = min(1.0, confidence + 1e-6), cost
        return best


class CostAware(Lookahead):
    """Draft one more token while that is expected to give more tokens a second than the run reaches anyway.

    Survival comes from the calibrated confidences of this run, and `StoppingRule` decides.

    token_seconds: duration of drafting one token; None for a step of the draft model
    """

    def __init__(
        self,
        most: int,
        costs: Costs,
        calibration: Calibration,
        token_seconds: float | None = None,
    ) -> None:
        super().__init__(most, Reason("cost"), StopRule.never(most))
        self.costs = costs
        self.stopping = StoppingRule(costs)
        self.calibration = calibration
        self.token_seconds = token_seconds
        self._floors: list[float] = []
        self._known = 0  # last step for which these are valid
        self._steps = self._made = 0  # steps so far, and the one that the rule is of

    def allowed(self, committed: Sequence[int]) -> int:
        self._steps += 1
        return super().allowed(committed)

    @property
    def rule(self) -> StopRule:
        """The rule is computed when it is first read, since a step without a draft does not need it."""
        if self._steps > self._known:
            step = self.costs.draft_step if self.token_seconds is None else self.token_seconds
            self._floors = self.stopping.chain_floors(self.lookahead, self.calibration.mean, step)
            self._known = self._steps + REFRESH_STEPS - 1
        if self._made != self._steps:
            self._made = self._steps
            self._rule = StopRule.of(self._floors, self.calibration.rates)
        return self._rule

    @property
    def reason(self) -> Reason:
        drafted, mean = self._drafted, self.calibration.mean
        if not drafted or self._survival > (floor := self._rule.floor(drafted)):
            return Reason("cost_whole", {"most": self.lookahead})
        values = {"position": drafted + 1, "gain": self._survival * mean, "cost": floor * mean}
        return Reason("cost_stop", values)
