"""A small language model drafts a chain (Leviathan 2211.17192, Chen 2302.01318)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdemo.drafters.base import POLICY, Method, TrainedDrafter
from specdemo.engine.types import Drafter, Outcome, Proposal

if TYPE_CHECKING:
    from specdemo.drafters.draft_reader import DraftReader
    from specdemo.drafters.policies.lookahead import Lookahead


class DraftModel(Drafter):
    """Drafts token by token with a model of its own, shaped exactly as the target is."""

    def __init__(self, draft: DraftReader, lookahead: Lookahead) -> None:
        self.draft = draft
        self.lookahead = lookahead

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Read the prompt but for its last token."""
        return self.draft.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Draft a chain until the policy or the budget says stop."""
        self.draft.follow(committed)
        allowed = min(budget, self.lookahead.allowed(committed))
        chain = self.draft.chain(committed, allowed, self.lookahead)
        return Proposal.chain(
            [self.draft.token(column) for column in chain.columns],
            draft_probs=chain.rows,
            words=self.draft.words,
            chosen=self.draft.greedy,
            confidences=tuple(chain.confidences),
            lookahead=allowed,
            reasons=(self.lookahead.reason,),
        )

    def observe(self, outcome: Outcome) -> None:
        """Tell the policy; the cache catches up at the next proposal."""
        self.lookahead.observe(outcome)


DRAFT_MODEL = Method(
    name="draft_model",
    title="Draft model",
    summary="A small language model guesses the next tokens one by one.",
    make=lambda context: DraftModel(context.draft_model(), context.lookahead()),
    paper="Leviathan 2211.17192",
    needs=("draft",),
    options=(*POLICY, "fallback"),
    trained=TrainedDrafter(
        "draft",
        "a draft model",
        "a small language model that reads the text alone",
        "A small language model that drafts for `{target}`: {layers} and an output head over the "
        "{words:,} words that the target says most. It reads the text alone.",
    ),
)
