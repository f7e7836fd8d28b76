"""Wrappers of every drafter: forecasts of each step, and plain steps while drafting loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.ledger import Decision, Ledger, StepRecord
from specdemo.engine.cost import FOLLOW, Costs, expected_tokens
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason


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
    proposal: Proposal, costs: Costs, calibration: Calibration, token_seconds: float
) -> Proposal:
    """Return the proposal with the expected tokens and seconds of its step; survivals that it contains stay.

    token_seconds: duration of drafting one token in a run that is alone
    """
    kept = proposal.survivals or tuple(survivals(proposal, calibration))
    drafting = len(proposal) * costs.growth(costs.together) * token_seconds
    return replace(
        proposal,
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

    def __init__(self, drafter: Drafter, costs: Costs) -> None:
        super().__init__(drafter)
        self.costs = costs
        self._reset()

    def _reset(self) -> None:
        self.ledger, self.record = Ledger(self.costs), StepRecord()
        self._decision = Decision.TRIAL

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
            self.ledger.drafted_step(outcome, self.record)
        else:
            self.ledger.plain_step(outcome, self.record)
