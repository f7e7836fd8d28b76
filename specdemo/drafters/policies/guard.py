"""The one rule that decides whether a step drafts, and wrappers of every drafter that apply it and add forecasts.

The rule uses the acceptances of this run and the measured costs of its steps. All costs are in passes of plain decoding,
as the cost model of the run has them now, so that a busy machine and a longer text change all of them alike. A step that
gives `tokens` and costs `passes` gains

    tokens * plain - passes        plain: a measured plain step

against plain decoding. A source drafts while its recent steps gained, and until what it has lost in the run exceeds what
it has won by a fraction of the run. Steps that are expected to lose find out whether that is still so; what these alone
lose is kept below the same fraction, so that they do not spend what others have won.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from specdemo.drafters.policies.calibration import Calibration
from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

EXPLORED = 0.02  # fraction of a run that exploration may cost
TOKENS_AHEAD = 48  # tokens that are still to come and count as a part of the run
PROVEN = 3  # steps before a source needs no exploration
TRIAL_COPIES = 3  # tokens of a copy to find out whether copies gain, at most
TRIAL_TOKENS = 2  # tokens of a model's draft to find out whether it gains, at most: a long one may lose the whole limit
REMEMBER = 0.94  # decay per step of a source's statistics: single steps are noisy
PLAIN_FADE = 0.99  # the same for a step of plain decoding
PRIOR_STEPS = 6.0  # weight of the first forecast of tokens: costs vary less and need no forecast
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
    """Sums over the steps that one source drafted in this run; older steps fade.

    tokens, passes, steps, drafted: sums over these steps; planned: passes by the forecasts. The first step counts PRIOR_STEPS
        times more, with the tokens of its forecast and the passes that it took
    seen: number of steps; together: runs that share passes, for which the passes are valid
    lost: passes that this source has lost in the run, less those that it has won
    hoped: passes that its next step is expected to gain
    """

    tokens: float = 0.0
    passes: float = 0.0
    planned: float = 0.0
    steps: float = 0.0
    drafted: float = 0.0
    seen: int = 0
    together: int = 1
    lost: float = 0.0
    hoped: float = 0.0

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
            self.tokens, self.passes = PRIOR_STEPS * expected, PRIOR_STEPS * passes
            self.planned, self.steps = PRIOR_STEPS * planned, PRIOR_STEPS
            self.drafted = PRIOR_STEPS * drafted
        self.fade(REMEMBER)
        self.tokens += tokens
        self.passes += passes
        self.planned += planned
        self.steps += 1
        self.drafted += drafted
        self.seen += 1

    def join(self, costs: Costs) -> None:
        """Convert to the runs that now share passes: then drafted rows cost more, or nothing."""
        if self.steps and costs.together != self.together:
            before, after = self.together, costs.together
            change = costs.change(self.drafted / self.steps, before, after)
            self.passes *= change / costs.change(0, before, after)
        self.together = costs.together

    def corrected(self, seconds: float) -> float:
        """Correct the forecast of a step's duration, in any unit, by the errors of earlier forecasts."""
        return seconds * self.passes / self.planned if self.planned else seconds


class Ledger:
    """Decides for the sources of one run; see the module.

    elapsed: passes of the run so far; explored: passes that steps without a hope of gain have lost and not regained
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._plain_alone = 1.0
        self.elapsed = self.explored = 0.0
        self._plain_steps = 1
        self._since_plain = 0
        # When a plain step was measured last; after the first step if none was.
        self._scale = costs.scale
        self._stale = False  # whether passes cost more or less since then, see `_moved`
        self._planned_unit = self._unit  # when the last step was planned

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

    def reading(self, missed: int) -> float:
        """Passes in which the draft model reads tokens that were decoded without it, in a run that is alone."""
        if self.costs.together > 1:
            return 0.0
        profile = self.costs.profile
        seconds = profile.draft_reading(missed) - (profile.draft_step or 0.0)
        return max(0.0, seconds) / profile.verify_seconds(1, self.costs.cached)

    def decide(
        self, record: StepRecord, gain: float, budget: int, reading: float = 0.0
    ) -> Decision:
        """Decide on a step of a source.

        gain: passes that it is expected to gain; budget: tokens that are still to come
        reading: passes that it needs before, once
        """
        self._planned_unit, self._stale, record.hoped = self._unit, self._moved, gain
        limit = EXPLORED * (self.elapsed + min(budget, TOKENS_AHEAD))
        left = limit - record.lost
        repaid = left + gain * budget / 2 >= reading  # by half of what the rest of the answer gains
        gains = gain >= 0 and left >= 0 and repaid
        if not gains and min(left, limit - self.explored) < reading + max(0.0, -gain):
            return Decision.PLAIN
        if record.seen < PROVEN:
            return Decision.TRIAL
        close = abs(gain) < CLOSE_GAIN and self._since_plain >= PLAIN_EVERY
        if close or self._stale:
            return Decision.PROBE
        return Decision.DRAFT if gains else Decision.TRIAL

    def plain_step(self, outcome: Outcome, *records: StepRecord) -> None:
        """Measure a step without a draft; call it once the costs have learned from the step. records: of all sources, which fade a little"""
        passes = self._passes(outcome)
        self.elapsed += passes
        if outcome.sharing.runs == 1 and passes > 0:
            self._plain_steps += 1
            weight = 1.0 if self._stale else max(FOLLOW, 1 / self._plain_steps)
            known = self._plain_alone
            self._plain_alone += weight * (min(passes, HELD_UP * known) - known)
        self._since_plain, self._scale = 0, self.costs.scale
        for record in records:
            record.fade(PLAIN_FADE)

    def drafted_step(self, outcome: Outcome, record: StepRecord, missed: int = 0) -> None:
        """Measure a step that a source drafted; call it once the costs have learned from the step.

        missed: tokens decoded without the source since its last draft. It read them first, which says nothing about the
            steps that follow: so the forecast counts in place of what the step took
        """
        passes = self._passes(outcome, self.reading(missed))
        # The probabilities of the tested tokens sum to the mean accepted number, with less variance.
        chances = outcome.verdict.accept_probs
        tokens = 1 + sum(chance for chance in chances if chance is not None)
        if not self.elapsed:
            self._scale = self.costs.scale
        self.elapsed += passes
        self._since_plain += 1
        planned = (outcome.proposal.expected_seconds or 0.0) / self._planned_unit or passes
        step = min(passes, record.corrected(planned)) if missed else passes
        record.add(tokens, step, planned, outcome)
        lost = passes - len(outcome.new_ids) * self.plain
        record.lost += lost
        if record.hoped < 0:
            self.explored = max(0.0, self.explored + lost)

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

    def _passes(self, outcome: Outcome, reading: float = 0.0) -> float:
        """Cost of a step; of a shared one, as if all runs did the same. A step that was held up counts in part."""
        planned = outcome.proposal.expected_seconds
        seconds = outcome.draft_seconds + outcome.verify_seconds
        if outcome.sharing.runs > 1:
            verifying = self.costs.verify_seconds(len(outcome.proposal))
            seconds = planned or outcome.draft_seconds + verifying
        elif planned:
            seconds = min(seconds, HELD_UP * planned + reading * self._unit)
        return seconds / self._unit


@dataclass(eq=False)
class Wrapper(Drafter):
    """Passes everything on to another drafter."""

    drafter: Drafter

    def start(self, prompt_ids: Sequence[int]) -> None:
        self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        return self.drafter.propose(committed, budget)

    def verifying(self, proposal: Proposal) -> None:
        self.drafter.verifying(proposal)

    def observe(self, outcome: Outcome) -> None:
        self.drafter.observe(outcome)

    def close(self) -> None:
        self.drafter.close()


@dataclass(eq=False)
class WithForecast(Wrapper):
    """Adds the cost model's prediction to proposals, and updates the run's costs and calibration.

    token_seconds: initial duration of drafting one token in a run that is alone; then as measured in this run
    together: returns how many runs are likely to share passes, once the target has read the prompt
    most: tokens of a draft, at most; None for no limit
    """

    costs: Costs
    calibration: Calibration
    token_seconds: float
    together: Callable[[], int] = lambda: 1
    most: int | None = None

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start the drafter; other runs may have started while the target read the prompt."""
        self.costs.join(self.together())
        self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        self.costs.cached = len(committed)
        budget = budget if self.most is None else min(budget, self.most)
        proposal = self.drafter.propose(committed, budget)
        if proposal.expected_tokens is not None:
            return proposal
        return with_forecast(proposal, self.costs, self.calibration, self.token_seconds)

    def observe(self, outcome: Outcome) -> None:
        """Let the costs learn first: the drafter counts the step in passes as long as those of this run."""
        self.token_seconds = self.costs.token_seconds(self.token_seconds, outcome)
        self.calibration.observe(outcome)
        self.costs.observe(outcome)
        self.drafter.observe(outcome)


def with_forecast(
    proposal: Proposal,
    costs: Costs,
    calibration: Calibration,
    token_seconds: float,
    source: str = "",
    reasons: tuple[Reason, ...] = (),
) -> Proposal:
    """Return the proposal with the expected tokens and seconds of its step; survivals that it contains stay.

    token_seconds: duration of drafting one token in a run that is alone; source: see `Proposal`
    reasons: put before the proposal's own
    """
    kept = proposal.survivals or tuple(survivals(proposal, calibration))
    drafting = len(proposal) * costs.profile.draft_growth(costs.together) * token_seconds
    return replace(
        proposal,
        source=source or proposal.source,
        reasons=(*reasons, *proposal.reasons),
        survivals=kept,
        expected_tokens=1.0 + sum(kept),  # the target's own, and each drafted one that survives
        expected_seconds=costs.verify_seconds(len(proposal)) + drafting,
    )


def survivals(proposal: Proposal, calibration: Calibration) -> list[float]:
    """Return, for each node, the chance that the target accepts its whole path, older siblings being refused first."""
    confidences = proposal.confidences or (None,) * len(proposal)
    kept: list[float] = []
    left: dict[int, float] = {}  # chance that a parent's next child is tested
    for node, parent in enumerate(proposal.parents):
        reached = left.get(parent, kept[parent] if parent >= 0 else 1.0)
        chance = calibration.chance(confidences[node], sibling=parent in left)
        kept.append(reached * chance)
        left[parent] = reached * (1 - chance)
    return kept


class Fallback(Wrapper):
    """Decodes plainly in steps in which a drafter is expected to lose, see `ledger`.

    Steps in which the drafter proposes nothing count as plain.
    """

    def __init__(self, drafter: Drafter, costs: Costs) -> None:
        super().__init__(drafter)
        self.costs = costs
        self._reset()

    def _reset(self) -> None:
        self.ledger, self.record = Ledger(self.costs), StepRecord()
        self._decision = Decision.TRIAL
        self._missed = 0  # tokens decoded plainly since the last draft

    def start(self, prompt_ids: Sequence[int]) -> None:
        self._reset()
        self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        ledger, record = self.ledger, self.record
        record.join(self.costs)
        self._decision = ledger.decide(record, ledger.gain(record), budget)
        if self._decision.drafts:
            return self.drafter.propose(committed, self._decision.tokens(budget))
        if self._decision is Decision.PROBE:
            return Proposal(reasons=(Reason("fallback_probe"),))
        numbers = {
            "drafting_seconds": 1 / ledger.rate(record),
            "plain_seconds": ledger.plain_seconds,
        }
        return Proposal(reasons=(Reason("fallback_rest", numbers),))

    def verifying(self, proposal: Proposal) -> None:
        if self._decision.drafts:
            self.drafter.verifying(proposal)

    def observe(self, outcome: Outcome) -> None:
        self.drafter.observe(outcome)
        if len(outcome.proposal):
            self.ledger.drafted_step(outcome, self.record, self._missed)
            self._missed = 0
        else:
            self.ledger.plain_step(outcome, self.record)
            self._missed += len(outcome.new_ids)
