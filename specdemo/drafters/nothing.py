"""Proposes nothing: plain decoding, the baseline that every other method is measured against."""

from __future__ import annotations

from collections.abc import Sequence

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
