"""A small language model drafts a chain (Leviathan 2211.17192, Chen 2302.01318)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.lookahead import Lookahead
from specdemo.engine.types import Outcome, Proposal


class DraftModel:
    """Drafts token by token with a model of its own, shaped exactly as the target is."""

    def __init__(self, draft: DraftReader, lookahead: Lookahead) -> None:
        self.draft = draft
        self.lookahead = lookahead

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Read the prompt but for its last token."""
        self.draft.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Draft a chain until the policy or the budget says stop."""
        self.draft.follow(committed)
        allowed = min(budget, self.lookahead.allowed(committed))
        token_ids: list[int] = []
        rows: list[Tensor] = []
        confidences: list[float] = []
        while len(rows) < allowed:
            probs = self.draft.probs_after(committed, token_ids)
            column = self.draft.pick(probs)
            token_ids.append(self.draft.token(column))
            rows.append(probs)
            confidences.append(float(probs[column]))
            if not self.lookahead.go_on(confidences[-1]):
                break
        return Proposal.chain(
            token_ids,
            draft_probs=self.draft.wide(rows) if rows and not self.draft.greedy else None,
            thoughts=lambda: self.draft.wide(rows),
            confidences=tuple(confidences),
            lookahead=allowed,
            reason=self.lookahead.reason,
        )

    def observe(self, outcome: Outcome) -> None:
        """Tell the policy; the cache catches up at the next proposal."""
        self.lookahead.observe(outcome)
