"""Foresees what each step will give and take, and keeps the run's costs and calibration up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from specdemo.drafters.policies.calibration import Calibration
from specdemo.engine.cost import FOLLOW, Costs, expected_tokens
from specdemo.engine.types import Drafter, Outcome, Proposal


class Forecast(Drafter):
    """Wraps a drafter: its proposals carry the cost model's prediction, to be shown beside what was measured.

    token_seconds: what drafting one token takes a run that is alone, at first; then what it took in this run
    together: says how many runs are likely to share passes, when the target has read the prompt
    most: tokens of a draft, at most; None for as many as the drafter likes
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
        self.drafter = drafter
        self.costs = costs
        self.calibration = calibration
        self.token_seconds = token_seconds
        self.together = together
        self.most = most

    def start(self, prompt_ids: Sequence[int]) -> None:
        """The drafter's own start; others may have come while the target has read."""
        self.costs.join(self.together())
        return self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """The drafter's proposal with its expected tokens and seconds."""
        self.costs.cached = len(committed)
        budget = budget if self.most is None else min(budget, self.most)
        proposal = self.drafter.propose(committed, budget)
        if proposal.expected_tokens is not None:
            return proposal
        return foreseen(proposal, self.costs, self.calibration, self.token_seconds)

    def verifying(self, proposal: Proposal) -> None:
        """The drafter may work beside the target."""
        self.drafter.verifying(proposal)

    def close(self) -> None:
        """End the drafter's run."""
        self.drafter.close()

    def observe(self, outcome: Outcome) -> None:
        """The drafter learns first: it may ask the costs as they were."""
        self.drafter.observe(outcome)
        drafted = len(outcome.proposal)
        if drafted:
            seconds = self.costs.alone(outcome) / drafted
            self.token_seconds += FOLLOW * (seconds - self.token_seconds)
        self.calibration.observe(outcome)
        self.costs.observe(outcome)


def foreseen(
    proposal: Proposal, costs: Costs, calibration: Calibration, token_seconds: float
) -> Proposal:
    """The proposal with what its step is expected to give and take. What a drafter itself foresees stands.

    token_seconds: what drafting one token takes a run that is alone
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
    """Chance, for each node, that the target keeps its whole path; siblings share what is left by those before."""
    confidences = proposal.confidences or (None,) * len(proposal)
    kept: list[float] = []
    left: dict[int, float] = {}  # chance to come to a parent's next child
    for node, parent in enumerate(proposal.parents):
        reached = left.get(parent, kept[parent] if parent >= 0 else 1.0)
        chance = calibration.chance(confidences[node], sibling=parent in left)
        kept.append(reached * chance)
        left[parent] = reached * (1 - chance)
    return kept
