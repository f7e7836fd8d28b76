"""Proposes nothing: plain decoding, the baseline that every other method is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.drafters.base import Method
from specdemo.engine.types import Outcome, Proposal


class Nothing:
    """A drafter without drafts."""

    def start(self, prompt_ids: Sequence[int]) -> None:
        """There is nothing to prepare."""

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Nothing."""
        return Proposal(reason="plain decoding")

    def observe(self, outcome: Outcome) -> None:
        """There is nothing to learn."""


NOTHING = Method(
    name="nothing",
    title="Plain decoding",
    summary="No drafts: one target pass for each token, the baseline.",
    make=lambda _context: Nothing(),
)
