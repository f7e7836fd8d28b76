"""Copies what followed the same words earlier in the text (prompt lookup decoding, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.engine.types import Outcome, Proposal


class Ngram:
    """Drafts the continuation of the longest, and among those the latest, earlier match of the text's end.

    The index holds, for every n-gram of prompt and output, where it last ended, so a step looks up at
    most `longest` keys however long the text is.
    """

    def __init__(self, lookahead: int, *, longest: int = 4, shortest: int = 2) -> None:
        self.lookahead = lookahead
        self.longest = longest
        self.shortest = shortest
        self._latest: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Forget earlier texts and index the prompt."""
        self._latest.clear()
        self._indexed = 0
        self._index(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Copy what followed the match."""
        self._index(committed)
        allowed = min(budget, self.lookahead)
        for size in range(min(self.longest, len(committed) - 1), self.shortest - 1, -1):
            end = self._latest.get(tuple(committed[-size:]))
            if end is not None:
                copied = committed[end : end + allowed]
                reason = f"n-gram: the last {size} tokens stood at {end - size} before"
                return Proposal.chain(
                    copied, confidences=(None,) * len(copied), lookahead=allowed, reason=reason
                )
        return Proposal(lookahead=allowed, reason="n-gram: no earlier match")

    def observe(self, outcome: Outcome) -> None:
        """The text is indexed at the next proposal."""

    def _index(self, committed: Sequence[int]) -> None:
        """Enter every n-gram that ends before the last token; the text's end must not match itself."""
        for end in range(self._indexed, len(committed)):
            for size in range(self.shortest, min(self.longest, end) + 1):
                self._latest[tuple(committed[end - size : end])] = end
        self._indexed = len(committed)
