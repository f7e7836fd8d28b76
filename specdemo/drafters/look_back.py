"""Drops drawn tokens because they look unlikely: lossy on purpose, the warning beside every lookahead policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdemo.drafters.base import POLICY, DraftingContext, Method
from specdemo.drafters.draft_model import DraftModel
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason


class LookBack(Drafter):
    """Wraps a drafter of chains and drops its trailing tokens below a threshold, where `Confidence` stops after one.

    A scheduler that looks back like this (DSpark's counter-example) chooses by what was drawn which draws
    the target gets to see, so the tokens that are kept come too often: `specdemo.session.work.two_words`.
    Chosen tokens are judged one by one whatever else was proposed, so greedy decoding stays what it is.
    """

    def __init__(self, drafter: Drafter, threshold: float) -> None:
        self.drafter = drafter
        self.threshold = threshold

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begin a run of the drafter inside."""
        return self.drafter.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """The drafter's chain without its unlikely end."""
        proposal = self.drafter.propose(committed, budget)
        kept = len(proposal)
        while kept and self._unlikely(proposal.confidences[kept - 1]):
            kept -= 1
        code = "look_back" if proposal.drawn_from is None else "look_back_lossy"
        values = {"dropped": len(proposal) - kept, "threshold": self.threshold}
        return replace(
            proposal,
            token_ids=proposal.token_ids[:kept],
            parents=proposal.parents[:kept],
            draft_probs=None if proposal.draft_probs is None else proposal.draft_probs[:kept],
            confidences=proposal.confidences[:kept],
            reasons=(Reason(code, values),),
        )

    def observe(self, outcome: Outcome) -> None:
        """The drafter inside learns what became of the rest."""
        self.drafter.observe(outcome)

    def verifying(self, proposal: Proposal) -> None:
        """The drafter inside may work beside the target."""
        self.drafter.verifying(proposal)

    def close(self) -> None:
        """End the run of the drafter inside."""
        self.drafter.close()

    def _unlikely(self, confidence: float | None) -> bool:
        return confidence is not None and confidence < self.threshold


def _make(context: DraftingContext) -> LookBack:
    chain = DraftModel(context.draft_model(), context.lookahead())
    return LookBack(chain, context.settings.threshold)


LOOK_BACK = Method(
    name="look_back",
    title="Look back",
    summary="Drops drafted tokens that look unlikely, after drawing them: the mistake that changes the output, to be seen.",
    make=_make,
    label="looking back",
    needs=("draft",),
    options=POLICY,
    lossy=True,
)
