"""How many tokens to draft: policies that decide before and while drafting.

A policy may look at how likely the drafted tokens are, but only to stop *after* one: dropping a drawn
token because of its own probability would bias what is left.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from specdemo.engine.types import Outcome
from specdemo.errors import UserError
from specdemo.settings import MAX_LOOKAHEAD, RunSettings


class Lookahead(Protocol):
    """Decides how far ahead to draft."""

    reason: str

    def allowed(self) -> int:
        """Most tokens to draft in the step that begins."""

    def go_on(self, confidence: float) -> bool:
        """Whether to draft another token after one of this probability under the drafter."""

    def observe(self, outcome: Outcome) -> None:
        """Learn what became of the draft."""


class Constant:
    """Always the same lookahead."""

    def __init__(self, lookahead: int) -> None:
        self.lookahead = lookahead
        self.reason = f"constant: always {lookahead}"

    def allowed(self) -> int:
        """The constant."""
        return self.lookahead

    def go_on(self, confidence: float) -> bool:
        """Always."""
        return True

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn."""


class Heuristic:
    """Two more after a draft that was kept whole, one less otherwise, never below one (transformers' `heuristic`)."""

    def __init__(self, lookahead: int) -> None:
        self.lookahead = lookahead
        self.reason = f"heuristic: starts at {lookahead}"

    def allowed(self) -> int:
        """What the last outcomes left."""
        return self.lookahead

    def go_on(self, confidence: float) -> bool:
        """Always."""
        return True

    def observe(self, outcome: Outcome) -> None:
        """Grow or shrink. A step that drafted nothing says nothing."""
        if not len(outcome.proposal):
            return
        whole = len(outcome.verdict.path) == len(outcome.proposal)
        self.lookahead = (
            min(MAX_LOOKAHEAD, self.lookahead + 2) if whole else max(1, self.lookahead - 1)
        )
        self.reason = "heuristic: all kept, +2" if whole else "heuristic: some refused, -1"


class Confidence:
    """Stop after a drafted token that the drafter itself holds unlikely; the threshold adapts to what was accepted.

    After each step the threshold becomes the one that would have made the fewest weighted mistakes on the
    recent drafted tokens: drafting on past a refused token costs 1, stopping at an accepted one costs 1/3
    of it the other way round (transformers weighs false positives + 3 x false negatives; Mamou 2405.04304).
    """

    MIN_SAMPLES = 32

    def __init__(self, threshold: float, most: int = 20) -> None:
        self.threshold = threshold
        self.most = most
        self.reason = f"confidence: stops below {threshold:.2f}"
        self._seen: deque[tuple[float, bool]] = deque(maxlen=256)

    def allowed(self) -> int:
        """At most this many, however sure the drafter is."""
        return self.most

    def go_on(self, confidence: float) -> bool:
        """While the drafter is sure enough."""
        return confidence >= self.threshold

    def observe(self, outcome: Outcome) -> None:
        """Learn from every tested token of the draft."""
        chances = outcome.verdict.accept_probs
        kept = set(outcome.verdict.path)
        tested = [node for node in range(len(outcome.proposal)) if chances[node] is not None]
        for node in tested:
            confidence = outcome.proposal.confidences[node]
            if confidence is not None:
                self._seen.append((confidence, node in kept))
        if tested and len(self._seen) >= self.MIN_SAMPLES:
            self.threshold = self._best_threshold()
        self.reason = f"confidence: stops below {self.threshold:.2f}"

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


def make_lookahead(settings: RunSettings) -> Lookahead:
    """The policy that the settings name."""
    match settings.policy:
        case "constant":
            return Constant(settings.lookahead)
        case "heuristic":
            return Heuristic(settings.lookahead)
        case "confidence":
            return Confidence(settings.threshold, settings.lookahead)
    raise UserError(f"There is no lookahead policy {settings.policy!r}.")
