"""Copies the continuation of the same tokens earlier in the text (prompt lookup decoding, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.config.settings import MAX_LOOKAHEAD
from specdemo.drafters.base import CHAIN_OPTIONS, CHAIN_POLICIES, DraftingContext, Method
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.calibration import Priors
from specdemo.drafters.policies.lookahead import Lookahead
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason


class Ngram(Drafter):
    """Drafts the continuation of the longest, and among those the latest, earlier match of the text's end.

    The automaton may contain earlier texts of the same session; only committed tokens are entered.
    """

    def __init__(
        self, automaton: SuffixAutomaton, lookahead: Lookahead, *, shortest: int = 2
    ) -> None:
        self.automaton = automaton
        self.lookahead = lookahead
        self.shortest = shortest

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Enter the prompt: as a new text, or only its new tokens if it continues the last one."""
        self.automaton.begin(prompt_ids)

    def match(self, committed: Sequence[int]) -> tuple[int, list[int]]:
        """Length of the match, and the tokens that followed it; (0, []) without one."""
        length, position = self._find(committed)
        return length, self.automaton.following(position, MAX_LOOKAHEAD) if length else []

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Copy the match's continuation until the policy or the budget stops it."""
        allowed = min(budget, self.lookahead.allowed(committed))
        reason = self.lookahead.reason
        length, position = self._find(committed)
        if not length:
            return Proposal(lookahead=allowed, reasons=(Reason("ngram_no_match"),), source="ngram")
        token_ids: list[int] = []
        confidences: list[float] = []
        for token_id in self.automaton.following(position, allowed):
            token_ids.append(token_id)
            confidences.append(confidence(length + len(token_ids)))
            if not self.lookahead.go_on(confidences[-1]):
                break
        return Proposal.chain(
            token_ids,
            confidences=tuple(confidences),
            lookahead=allowed,
            reasons=(match_reason("ngram", self.automaton, position, matched=length), reason),
            source="ngram",
        )

    def observe(self, outcome: Outcome) -> None:
        """Update the policy; the text is entered at the next proposal."""
        self.lookahead.observe(outcome)

    def _find(self, committed: Sequence[int]) -> tuple[int, int]:
        """Length of the match and the position after it; (0, 0) for none that is long enough."""
        self.automaton.follow(committed)
        length, position = self.automaton.match()
        return (length, position) if length >= self.shortest else (0, 0)


def confidence(match: int) -> float:
    """An estimate for policies and pictures: with a match of 3 tokens the first copy has 4 / 6, the second 5 / 7.

    match: tokens of the match, and of the copy down to the token itself
    """
    return match / (match + 2)


def match_reason(code: str, automaton: SuffixAutomaton, position: int, **values: float) -> Reason:
    """Return the reason of a copy: `code`, or its `_earlier` form for a match in an earlier text. position: after it"""
    if position <= automaton.begun:
        return Reason(f"{code}_earlier", values)
    return Reason(code, {**values, "distance": len(automaton.text) - position})


def known_texts(context: DraftingContext) -> SuffixAutomaton:
    """This visitor's earlier texts, where they may be remembered; else none."""
    return context.memory.texts if context.memory else SuffixAutomaton()


def copied(confidence: float) -> float:
    """A copy of the same text."""
    return max(0.05, 1.2 * confidence - 0.15)


def copied_sampled(confidence: float) -> float:
    """The same where the target draws: it leaves its own words more often."""
    return max(0.05, 1.2 * confidence - 0.3)


NGRAM = Method(
    name="ngram",
    title="N-gram (prompt lookup)",
    summary="Copies what followed the same words earlier in the text or this visit; costs next to nothing.",
    make=lambda context: Ngram(known_texts(context), context.lookahead(0.0)),
    label="n-gram",
    paper="Saxena 2023",
    options=(*CHAIN_OPTIONS, "memory", "fallback"),
    policies=CHAIN_POLICIES,
    prior=Priors(copied, copied_sampled),
    tokens="copied",
)
