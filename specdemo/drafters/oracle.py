"""Drafters that know or follow a script: they prove the plumbing and bound what a policy can reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason


class Scripted(Drafter):
    """Proposes whatever a function of the committed text says: the common part of all oracles."""

    def __init__(self, script: Callable[[Sequence[int], int], Proposal]) -> None:
        self.script = script

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """What the script says."""
        return self.script(committed, budget)


def always_right(answer_ids: Sequence[int], lookahead: int) -> Scripted:
    """Drafts the true continuation. answer_ids: prompt and answer, as plain decoding gave them."""

    def script(committed: Sequence[int], budget: int) -> Proposal:
        ids = answer_ids[len(committed) : len(committed) + min(budget, lookahead)]
        return Proposal.chain(ids, lookahead=lookahead, reasons=(Reason("oracle_right"),))

    return Scripted(script)


def always_wrong(answer_ids: Sequence[int], lookahead: int, vocabulary_size: int) -> Scripted:
    """Drafts tokens that are never the true continuation."""

    def script(committed: Sequence[int], budget: int) -> Proposal:
        right = list(answer_ids[len(committed) : len(committed) + min(budget, lookahead)])
        ids = [(token_id + 1) % vocabulary_size for token_id in right]
        return Proposal.chain(ids, lookahead=lookahead, reasons=(Reason("oracle_wrong"),))

    return Scripted(script)
