"""Proposes nothing: plain decoding, the baseline that every other method is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.drafters.base import Method
from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason


class Nothing(Drafter):
    """A drafter without drafts."""

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Nothing."""
        return Proposal(reasons=(Reason("plain"),))


NOTHING = Method(
    name="nothing",
    title="Plain decoding",
    summary="No drafts: one target pass for each token, the baseline.",
    make=lambda _context: Nothing(),
    tokens="none",
)
