"""The one rule that decides whether a step drafts, by what was accepted in this run and by what its steps really cost.

All costs are in passes of plain decoding, as the cost model of the run has them now, so that a busy machine and a
longer text change all of them alike. A step that gives `tokens` and costs `passes` gains

    tokens * plain - passes        plain: a measured plain step

against plain decoding. What the steps of a run have lost and later ones have not regained is its debt, which is kept
below a fraction of the run. Within that limit a source drafts while its recent steps gained, and also to find out
whether it gains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.types import Outcome, Proposal

EXPLORED = 0.02  # fraction of a run that exploration may cost
TOKENS_AHEAD = 32  # tokens that are still to come and count as a part of the run
PROVEN = 3  # steps before a source needs no exploration
TRIAL_COPIES = 3  # tokens of a copy to find out whether copies gain, at most
TRIAL_TOKENS = 2  # tokens of a model's draft to find out whether it gains, at most: a long one may lose the whole limit
REMEMBER = 0.94  # decay per step of a source's statistics: single steps are noisy
PLAIN_FADE = 0.99  # the same for a step of plain decoding
PRIOR_STEPS = 3.0  # weight of the first forecast
HELD_UP = 2.0  # a step counts for at most this many times its forecast
CLOSE_GAIN = 0.2  # passes: below this gain, a plain step is measured from time to time
PLAIN_EVERY = 24  # steps after which it is
MOVED = 0.15  # relative change of the cost model's scale after which one is measured, see `Ledger._moved`
MOVED_EVERY = 4  # drafted steps before that


class Decision(StrEnum):
    """A step's kind."""

    DRAFT = "draft"  # drafting gains
    TRIAL = "trial"  # it may gain
    PLAIN = "plain"  # it loses
    PROBE = "probe"  # a plain step, to measure it

    @property
    def drafts(self) -> bool:
        return self in (Decision.DRAFT, Decision.TRIAL)

    def tokens(self, budget: int) -> int:
        """Tokens that a model may draft, at most `budget`."""
        return min(budget, TRIAL_TOKENS) if self is Decision.TRIAL else budget


@dataclass(slots=True)
class StepRecord:
    """Results of the steps that one source drafted in this run, fading.

    tokens, passes, steps, drafted: sums over these steps, the first forecast among them; planned: passes by the forecasts
    foreseen, kept: drafted tokens that were expected to be accepted, and those that were
    seen: number of steps; together: runs that share passes, for which the passes are valid
    """

    tokens: float = 0.0
    passes: float = 0.0
    planned: float = 0.0
    steps: float = 0.0
    drafted: float = 0.0
    foreseen: float = 3.0
    kept: float = 3.0
    seen: int = 0
    together: int = 1

    def fade(self, factor: float) -> None:
        """Forget a part of the older steps."""
        self.tokens *= factor
        self.passes *= factor
        self.planned *= factor
        self.steps *= factor
        self.drafted *= factor

    def add(self, tokens: float, passes: float, planned: float, outcome: Outcome) -> None:
        """Count a step. planned: passes by its forecast"""
        expected, drafted = outcome.proposal.expected_tokens or tokens, len(outcome.proposal)
        if not self.seen:
            self.tokens, self.passes = PRIOR_STEPS * expected, PRIOR_STEPS * planned
            self.planned, self.steps = self.passes, PRIOR_STEPS
            self.drafted = PRIOR_STEPS * drafted
        self.fade(REMEMBER)
        self.tokens += tokens
        self.passes += passes
        self.planned += planned
        self.steps += 1
        self.drafted += drafted
        self.foreseen = REMEMBER * self.foreseen + expected - 1
        self.kept = REMEMBER * self.kept + tokens - 1
        self.seen += 1

    def join(self, costs: Costs) -> None:
        """Convert to the runs that now share passes: then drafted rows cost more, or nothing."""
        if self.steps and costs.together != self.together:
            before, after = self.together, costs.together
            change = costs.change(self.drafted / self.steps, before, after)
            self.passes *= change / costs.change(0, before, after)
        self.together = costs.together

    def promise(self, proposal: Proposal) -> tuple[float, float]:
        """Return tokens and seconds of a proposal's step, corrected by the accuracy of earlier forecasts."""
        assert proposal.expected_tokens is not None
        assert proposal.expected_seconds is not None
        tokens = 1 + (proposal.expected_tokens - 1) * min(1.2, self.kept / self.foreseen)
        return tokens, proposal.expected_seconds * (
            self.passes / self.planned if self.planned else 1.0
        )


class Ledger:
    """Decides for the sources of one run; see the module.

    elapsed: passes of the run so far; debt: passes that drafting has lost and not regained
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._plain_alone = 1.0
        self.elapsed = self.debt = 0.0
        self._plain_steps = 1
        self._since_plain = 0
        self._scale = costs.scale  # when a plain step was measured last

    @property
    def plain(self) -> float:
        """Passes of a plain step, as measured in this run while it was alone."""
        return self._plain_alone if self.costs.together == 1 else 1.0

    @property
    def plain_seconds(self) -> float:
        """A plain step now."""
        return self.plain * self.costs.verify_seconds(0)

    def gain(self, record: StepRecord) -> float:
        """Mean passes that a source's recent steps gained; 0 while nothing is known."""
        return (record.tokens * self.plain - record.passes) / record.steps if record.steps else 0.0

    def rate(self, record: StepRecord) -> float:
        """Tokens a second of a source; 0 while nothing is known."""
        return record.tokens / record.passes / self.costs.verify_seconds(0) if record.steps else 0.0

    def decide(self, record: StepRecord, gain: float, budget: int) -> Decision:
        """Decide on a step of a source. gain: passes that it is expected to gain; budget: tokens that are still to come"""
        left = EXPLORED * (self.elapsed + min(budget, TOKENS_AHEAD)) - self.debt
        if record.seen >= PROVEN and gain >= 0 and left >= 0:
            close = gain < CLOSE_GAIN and gain <= left and self._since_plain >= PLAIN_EVERY
            return Decision.PROBE if close or self._moved else Decision.DRAFT
        # The first step of a source does not pay for another one's debt.
        tried = left >= max(0.0, -gain) or (not record.seen and gain >= 0)
        return Decision.TRIAL if tried else Decision.PLAIN

    def plain_step(self, outcome: Outcome, *records: StepRecord) -> None:
        """Measure a step without a draft, before the costs learn of it. records: of the sources, which it makes older"""
        passes = self._passes(outcome)
        self.elapsed += passes
        if outcome.sharing.runs == 1 and passes > 0:
            self._plain_steps += 1
            weight = 1.0 if self._moved else max(FOLLOW, 1 / self._plain_steps)
            known = self._plain_alone
            self._plain_alone += weight * (min(passes, HELD_UP * known) - known)
        self._since_plain, self._scale = 0, self.costs.scale
        for record in records:
            record.fade(PLAIN_FADE)

    def drafted_step(self, outcome: Outcome, record: StepRecord) -> None:
        """Measure a step that a source drafted, before the costs learn of it."""
        passes = self._passes(outcome)
        # The probabilities of the tested tokens sum to the mean accepted number, with less variance.
        chances = outcome.verdict.accept_probs
        tokens = 1 + sum(chance for chance in chances if chance is not None)
        self.elapsed += passes
        self._since_plain += 1
        planned = outcome.proposal.expected_seconds
        record.add(tokens, passes, planned / self._unit if planned else passes, outcome)
        self.debt = max(0.0, self.debt + passes - len(outcome.new_ids) * self.plain)

    @property
    def _moved(self) -> bool:
        """Whether passes cost more or less than at the last plain step: all of them, or those with drafts alone?"""
        if self._since_plain < MOVED_EVERY or self.costs.together > 1:
            return False
        return abs(math.log(self.costs.scale / self._scale)) > MOVED

    @property
    def _unit(self) -> float:
        """Seconds of a plain pass by the cost model, which follows this run."""
        return max(1e-9, self.costs.verify_seconds(0))

    def _passes(self, outcome: Outcome) -> float:
        """Cost of a step; of a shared one, as if all runs did the same. A step that was held up counts in part."""
        planned = outcome.proposal.expected_seconds
        seconds = outcome.draft_seconds + outcome.verify_seconds
        if outcome.sharing.runs > 1:
            verifying = self.costs.verify_seconds(len(outcome.proposal))
            seconds = planned or outcome.draft_seconds + verifying
        elif planned:
            seconds = min(seconds, HELD_UP * planned)
        return seconds / self._unit
