"""Drafters without a model: plain decoding, and scripts that test the loop and bound the gain of any policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.drafters.base import Method
from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason


class Plain(Drafter):
    """Proposes nothing: plain decoding, the baseline of every other method."""

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        return Proposal(reasons=(Reason("plain"),))


class Scripted(Drafter):
    """Proposes the result of a function of the committed text and the budget."""

    def __init__(self, script: Callable[[Sequence[int], int], Proposal]) -> None:
        self.script = script

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        return self.script(committed, budget)


def always_right(answer_ids: Sequence[int], lookahead: int) -> Scripted:
    """Return a drafter of the true continuation. answer_ids: prompt and answer of plain decoding"""

    def script(committed: Sequence[int], budget: int) -> Proposal:
        ids = answer_ids[len(committed) : len(committed) + min(budget, lookahead)]
        return Proposal.chain(ids, lookahead=lookahead, reasons=(Reason("oracle_right"),))

    return Scripted(script)


PLAIN = Method(
    name="nothing",  # in traces, links and recordings; `plain` is accepted wherever it is given
    title="Plain decoding",
    summary="No drafts: one target pass for each token, the baseline.",
    make=lambda _context: Plain(),
    tokens="none",
)
