"""Drafters that know or follow a script: they prove the plumbing and bound what a policy can reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.lookahead import Oracle
from specdemo.engine.types import Outcome, Proposal
from specdemo.errors import UserError


class Scripted:
    """Proposes whatever a function of the committed text says: the common part of all oracles."""

    def __init__(self, script: Callable[[Sequence[int], int], Proposal]) -> None:
        self.script = script

    def start(self, prompt_ids: Sequence[int]) -> None:
        """There is nothing to prepare."""

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """What the script says."""
        return self.script(committed, budget)

    def observe(self, outcome: Outcome) -> None:
        """There is nothing to learn."""


def always_right(answer_ids: Sequence[int], lookahead: int) -> Scripted:
    """Drafts the true continuation. answer_ids: prompt and answer, as plain decoding gave them."""

    def script(committed: Sequence[int], budget: int) -> Proposal:
        ids = answer_ids[len(committed) : len(committed) + min(budget, lookahead)]
        return Proposal.chain(ids, lookahead=lookahead, reason="oracle: always right")

    return Scripted(script)


def always_wrong(answer_ids: Sequence[int], lookahead: int, vocabulary_size: int) -> Scripted:
    """Drafts tokens that are never the true continuation."""

    def script(committed: Sequence[int], budget: int) -> Proposal:
        right = list(answer_ids[len(committed) : len(committed) + min(budget, lookahead)])
        ids = [(token_id + 1) % vocabulary_size for token_id in right]
        return Proposal.chain(ids, lookahead=lookahead, reason="oracle: always wrong")

    return Scripted(script)


def oracle_lookahead(draft: DraftReader, answer_ids: Sequence[int]) -> Oracle:
    """The policy that knows how many of the draft's greedy guesses the target would keep, at every place.

    answer_ids: prompt and answer, as plain greedy decoding gave them. The draft reads the whole answer here,
    outside the clock of any step.
    """
    if not answer_ids:
        raise UserError(
            "The oracle must be told the answer.",
            advice="It is a bound for reports: python -m specdemo bench --lanes policies.",
        )
    right = [
        int(draft.probs_after(answer_ids[:place]).argmax()) == answer_ids[place]
        for place in range(1, len(answer_ids))
    ]
    kept: dict[int, int] = {}
    run = 0
    for place in range(len(right), 0, -1):
        run = run + 1 if right[place - 1] else 0
        kept[place] = run
    return Oracle(kept)
