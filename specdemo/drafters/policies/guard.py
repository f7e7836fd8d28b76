"""The one rule that decides whether a step drafts, and wrappers of every drafter that apply it and add forecasts.

All costs are in plain steps: steps of plain decoding that follow another one, as this run measures them. A step that gives
`tokens` and costs `spent` gains tokens - spent. A source's gain is the mean of its recent steps in this run, and at first of
earlier runs with the same models and settings. Steps right after a change between drafting and plain decoding are dearer,
because the caches of the processor are cold, so they show no cost of further steps.

All that a source has lost, such changes included, and not regained is its debt. It is kept below a fraction of the run, which
is larger for a source that usually gains. Within that limit a source drafts while it gains, and to find out whether it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from specdemo.drafters.policies.calibration import Calibration
from specdemo.engine.cost import FOLLOW, Costs, expected_tokens
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

EXPLORED = 0.01  # fraction of a run that exploration of a source may cost
TOKENS_AHEAD = 32  # tokens that are still to come and count as a part of the run
PROVEN = 3  # steps before a source needs no exploration
TRIAL_COPIES = 3  # tokens of a copy to find out whether copies gain, at most
TRIAL_TOKENS = 2  # tokens of a model's draft to find out whether it gains, at most: a long one may lose the whole limit
REMEMBER = 0.94  # decay per step of a source's statistics: single steps are noisy
PRIOR_STEPS = 6.0  # weight of earlier runs, in steps of a new one
USUAL = 0.995  # decay per step of the statistics of all runs
DOUBT = 100.0  # steps with which the statistics of all runs begin
HOPE = 0.1  # plain steps that each of these gains where texts may repeat themselves
CREDIT = 0.2  # fraction of a source's usual gain that it may lose besides
HELD_UP = 2.0  # a step counts for at most this many times its forecast
CLOSE_GAIN = 0.2  # plain steps: where a source gains as much, a plain step is measured now and then
PLAIN_EVERY = 24  # steps after which it is; more where the source gains more


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
    """Results of the steps that one source drafted, fading.

    tokens, cost, steps, drafted: sums over these steps: tokens that they gave, plain steps that they cost, or would have cost
        without a pause before, their number, drafted tokens. The mean of earlier runs counts for PRIOR_STEPS
    spent, foreseen: cost of the steps without a pause before, and by their forecasts
    seen: number of steps; together: runs that share passes, for which the costs are valid
    debt: plain steps that this source has lost in this run and not regained; credit: fraction of the run that it may lose because
        it usually gains
    usual: of all runs, if this is the record of one; remember: what a step leaves of the older ones
    """

    tokens: float = 0.0
    cost: float = 0.0
    steps: float = 0.0
    drafted: float = 0.0
    spent: float = 0.0
    foreseen: float = 0.0
    seen: int = 0
    together: int = 1
    debt: float = 0.0
    credit: float = 0.0
    usual: StepRecord | None = None
    remember: float = REMEMBER

    @classmethod
    def unknown(cls, *, repeats: bool = False) -> StepRecord:
        """Return the record of all runs before the first one. repeats: whether texts may repeat themselves"""
        gain = HOPE if repeats else 0.0
        return cls((1 + gain) * DOUBT, DOUBT, DOUBT, remember=USUAL)

    @classmethod
    def after(cls, usual: StepRecord | None = None) -> StepRecord:
        """Return the record of a new run. usual: of all runs, to which it adds its steps"""
        usual = usual or cls.unknown()
        credit = CREDIT * max(0.0, usual.gain)
        record = replace(usual, seen=0, credit=credit, usual=usual, remember=REMEMBER)
        record.fade(PRIOR_STEPS / usual.steps)
        return record

    def fade(self, factor: float) -> None:
        """Forget a part of the older steps."""
        self.tokens *= factor
        self.cost *= factor
        self.steps *= factor
        self.drafted *= factor
        self.spent *= factor
        self.foreseen *= factor

    def add(self, tokens: float, spent: float | None, planned: float, outcome: Outcome) -> None:
        """Count a step. spent, planned: plain steps that it cost, None if further ones will not cost that; and by its forecast"""
        self.fade(self.remember)
        self.tokens += tokens
        self.cost += self.corrected(planned) if spent is None else spent
        self.steps += 1
        self.drafted += len(outcome.proposal)
        self.seen += 1
        if spent is not None:
            self.spent += spent
            self.foreseen += planned
        if self.usual and outcome.sharing.runs == 1:
            self.usual.add(tokens, spent, planned, outcome)

    def lose(self, lost: float) -> None:
        """Count what a step lost, below 0 if it gained."""
        self.debt = max(0.0, self.debt + lost)

    def join(self, costs: Costs) -> None:
        """Convert to the runs that now share passes: then drafted rows cost more, or nothing."""
        if costs.together != self.together:
            before, after = self.together, costs.together
            change = costs.change(self.drafted / self.steps, before, after)
            self.cost *= change / costs.change(0, before, after)
        self.together = costs.together

    def corrected(self, cost: float) -> float:
        """Correct the forecast of a step's cost by the errors of earlier forecasts."""
        return cost * self.spent / self.foreseen if self.foreseen else cost

    @property
    def gain(self) -> float:
        """Mean plain steps that recent steps gained."""
        return (self.tokens - self.cost) / self.steps


class Ledger:
    """Decides for the sources of one run; see the module.

    elapsed: plain steps that the run so far would have needed
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.elapsed = 0
        self._pace = 1.0  # seconds of a plain step over those in the profile
        self._measured = 0  # plain steps that followed another one
        self._since = PLAIN_EVERY  # steps since the last such step
        self._last: StepRecord | None = None  # source of the last step

    @property
    def plain_seconds(self) -> float:
        """A plain step after another one."""
        if self.costs.together > 1:
            return self.costs.verify_seconds(0)
        return self._pace * self.costs.profile.verify_seconds(1, self.costs.cached)

    def rate(self, record: StepRecord) -> float:
        """Tokens a second of a source."""
        return record.tokens / (record.cost * self.plain_seconds)

    def reading(self, missed: int) -> float:
        """Plain steps in whose time the draft model reads tokens that were decoded without it, in a run that is alone."""
        if self.costs.together > 1:
            return 0.0
        profile = self.costs.profile
        seconds = profile.draft_reading(missed) - (profile.draft_step or 0.0)
        return max(0.0, seconds) / profile.verify_seconds(1, self.costs.cached)

    def decide(
        self, record: StepRecord, gain: float, budget: int, reading: float = 0.0
    ) -> Decision:
        """Decide on a step of a source.

        gain: plain steps that it is expected to gain; budget: tokens that are still to come
        reading: plain steps that it needs before, once
        """
        limit = (EXPLORED + record.credit) * (self.elapsed + min(budget, TOKENS_AHEAD))
        left = limit - record.debt
        if left < 0:
            return Decision.PLAIN
        repaid = left + gain * budget / 2 >= reading  # by half of what the rest of the answer gains
        if record.seen >= PROVEN and gain >= 0 and repaid:
            rare = max(1.0, gain / CLOSE_GAIN)
            due = self.costs.together == 1 and self._since >= PLAIN_EVERY * rare
            return Decision.PROBE if due else Decision.DRAFT
        tried = gain >= reading or left >= reading + max(0.0, -gain)
        return Decision.TRIAL if tried else Decision.PLAIN

    def plain_step(self, outcome: Outcome) -> None:
        """Count a step without a draft.

        After a drafted step the caches are cold, and that source pays for it. Only a step after another plain one shows
        what plain decoding costs.
        """
        spent = self._spent(outcome)
        if self._last is not None:
            self._last.lose(spent - 1)
            self._since += 1
        elif outcome.sharing.runs == 1 and spent > 0:
            self._measured += 1
            weight = max(FOLLOW, 1 / self._measured)
            self._pace *= 1 + weight * (min(spent, HELD_UP) - 1)
            self._since = 0
        self._last = None
        self.elapsed += 1

    def drafted_step(self, outcome: Outcome, record: StepRecord, *, back: bool = False) -> None:
        """Count a step that a source drafted.

        back: the source had paused, so it read what it had missed, with cold caches: the cost says nothing about further steps
        """
        if not self._measured and outcome.sharing.runs == 1:
            # The machine may be slower than when the profile was measured; plain steps are then likely as much slower.
            rows = 1 + len(outcome.proposal)
            foreseen = self.costs.profile.verify_seconds(rows, self.costs.cached)
            self._pace = outcome.verify_seconds / foreseen or self._pace
        spent = self._spent(outcome)
        # The probabilities of the tested tokens sum to the mean accepted number, with less variance.
        chances = outcome.verdict.accept_probs
        tokens = 1 + sum(chance for chance in chances if chance is not None)
        seconds = outcome.proposal.expected_seconds
        planned = seconds / self.plain_seconds if seconds else spent
        record.add(tokens, None if back else spent, planned, outcome)
        record.lose(spent - len(outcome.new_ids))
        self.elapsed += len(outcome.new_ids)
        self._last = record
        self._since += 1

    def _spent(self, outcome: Outcome) -> float:
        """Cost of a step; of a shared one, as if all runs did the same. A step that was held up counts in part."""
        planned = outcome.proposal.expected_seconds
        seconds = outcome.draft_seconds + outcome.verify_seconds
        if outcome.sharing.runs > 1:
            verifying = self.costs.verify_seconds(len(outcome.proposal))
            seconds = planned or outcome.draft_seconds + verifying
        elif planned:
            seconds = min(seconds, HELD_UP * planned)
        return seconds / self.plain_seconds


class Wrapper(Drafter):
    """Passes everything on to another drafter."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter

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


class WithForecast(Wrapper):
    """Adds the cost model's prediction to proposals, and updates the run's costs and calibration.

    token_seconds: initial duration of drafting one token in a run that is alone; then as measured in this run
    together: returns how many runs are likely to share passes, once the target has read the prompt
    most: tokens of a draft, at most; None for no limit
    """

    def __init__(
        self,
        drafter: Drafter,
        costs: Costs,
        calibration: Calibration,
        token_seconds: float,
        together: Callable[[], int] = lambda: 1,
        most: int | None = None,
    ) -> None:
        super().__init__(drafter)
        self.costs = costs
        self.calibration = calibration
        self.token_seconds = token_seconds
        self.together = together
        self.most = most

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
        """Let the drafter learn first: it may read the costs as they were."""
        self.drafter.observe(outcome)
        drafted = len(outcome.proposal)
        if drafted:
            seconds = self.costs.alone(outcome) / drafted
            self.token_seconds += FOLLOW * (seconds - self.token_seconds)
        self.calibration.observe(outcome)
        self.costs.observe(outcome)


def with_forecast(
    proposal: Proposal,
    costs: Costs,
    calibration: Calibration,
    token_seconds: float,
    source: str = "",
) -> Proposal:
    """Return the proposal with the expected tokens and seconds of its step; survivals that it contains stay.

    token_seconds: duration of drafting one token in a run that is alone; source: see `Proposal`
    """
    kept = proposal.survivals or tuple(survivals(proposal, calibration))
    drafting = len(proposal) * costs.growth(costs.together) * token_seconds
    return replace(
        proposal,
        source=source or proposal.source,
        survivals=kept,
        expected_tokens=expected_tokens(kept),
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

    def __init__(self, drafter: Drafter, costs: Costs, record: StepRecord | None = None) -> None:
        super().__init__(drafter)
        self.costs = costs
        self.ledger, self.record = Ledger(costs), record or StepRecord.after()
        self._decision, self._back = Decision.PLAIN, True

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        ledger, record = self.ledger, self.record
        record.join(self.costs)
        self._back = not self._decision.drafts
        self._decision = ledger.decide(record, record.gain, budget)
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
            self.ledger.drafted_step(outcome, self.record, back=self._back)
        else:
            self.ledger.plain_step(outcome)
