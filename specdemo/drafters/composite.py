"""Copies where a copy is likely to be right, and asks a model everywhere else."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.drafters.arms import Arm, OneOfArms, copiers, model_arm
from specdemo.drafters.base import POLICY, DraftingContext, Method
from specdemo.drafters.ngram import known_texts
from specdemo.engine.cost import Costs
from specdemo.engine.types import Proposal


class Composite(OneOfArms):
    """Copies when a copy is likelier to be right than the model's drafts have been; else the model drafts."""

    def __init__(self, copiers: Sequence[Arm], model: Arm, costs: Costs) -> None:
        self.copiers = copiers
        self.model = model
        self.costs = costs
        self._chosen = model

    @property
    def arms(self) -> list[Arm]:
        """All of them."""
        return [*self.copiers, self.model]

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start every drafter."""
        for arm in self.arms:
            arm.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """The first copy that is good enough, or the model's draft."""
        for arm in self.copiers:
            proposal = arm.propose(committed, budget, self.costs)
            if len(proposal):
                chance = arm.calibration.chance(proposal.confidences[0])
                if chance >= self.model.calibration.mean:
                    self._chosen = arm
                    return proposal
        self._chosen = self.model
        return self.model.propose(committed, budget, self.costs)


def _composite(context: DraftingContext) -> Composite:
    model = model_arm(context, lambda calibration: context.lookahead(calibration=calibration))
    return Composite(copiers(context, known_texts(context)), model, context.costs)


COMPOSITE = Method(
    name="composite",
    title="Composite",
    summary="Copies where the text repeats itself, and asks the draft model everywhere else.",
    make=_composite,
    needs=("draft",),
    takes=("store",),
    options=(*POLICY, "memory", "fallback"),
    tokens="mixed",
)
