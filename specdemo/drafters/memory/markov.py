"""A live Markov model of the target's tokens, mixed into a draft model's distribution (after OSD, Liu 2310.07177)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


ORDER = 3  # longest context, in tokens
MOST_CONTEXTS = 200_000  # then it starts over: a visitor's memory is bounded
CONTEXT_BYTES = 390  # bytes of a context and its counts, measured
MIXTURE_LEARNING_RATE = 0.05  # step size of the mixture weights
EVIDENCE = 3  # contexts seen this often or more share a weight

Key = tuple[int, ...]


class MarkovCounts:
    """Counts of the tokens that followed contexts of one to three tokens, and their weights. Belongs to one session.

    weights: fraction of the Markov model in the mixture, by (context length, times seen, at most 3)
    """

    def __init__(self) -> None:
        self.followers: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self.weights = {
            (size, seen): 0.1 * size
            for size in range(1, ORDER + 1)
            for seen in range(1, EVIDENCE + 1)
        }
        self.text: list[int] = []

    @property
    def memory_bytes(self) -> int:
        return CONTEXT_BYTES * len(self.followers)

    def enter(self, token_ids: Sequence[int]) -> None:
        """Count tokens that follow the text so far."""
        if len(self.followers) > MOST_CONTEXTS:
            self.followers.clear()
        for token_id in token_ids:
            for size in range(1, min(ORDER, len(self.text)) + 1):
                self.followers[tuple(self.text[-size:])][token_id] += 1
            self.text.append(token_id)

    def begin(self, token_ids: Sequence[int]) -> None:
        """Continue a text that starts as the last one did, or start another."""
        same = len(self.text)
        if list(token_ids[:same]) != self.text:
            self.text, same = [], 0
        self.enter(token_ids[same:])

    def find(self, text: Sequence[int]) -> tuple[int, Counter[int]] | None:
        """Return the longest known context that ends a text: its length and the counts of the tokens that followed it."""
        for size in range(min(ORDER, len(text)), 0, -1):
            followers = self.followers.get(tuple(text[-size:]))
            if followers:
                return size, followers
        return None


class MarkovBias:
    """Mixes the counts into a draft's distribution: (1 - w) draft + w counts, w learned per kind of context.

    Drafts are drawn from the mixture itself, so verification stays exact. The weights follow the
    expectation-maximisation of a two-part mixture: after each token of the target, w moves towards
    the fraction of its probability that came from the counts.
    """

    def __init__(self, counts: MarkovCounts) -> None:
        self.counts = counts
        # For each position that was mixed: kind of context, the draft's row and the relative counts.
        self._asked: dict[Key, tuple[tuple[int, int], Tensor, dict[int, float]]] = {}
        self._committed: list[int] = []

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start a run: the tokens of the prompt count too."""
        self._committed = list(prompt_ids)
        self.counts.begin(prompt_ids)
        self._asked.clear()

    def mix(self, row: Tensor, text: Sequence[int]) -> None:
        """Change a distribution (V,) that follows a text, in place."""
        found = self.counts.find(text)
        if found is None:
            return
        size, followers = found
        allowed = {token_id: count for token_id, count in followers.items() if token_id < len(row)}
        total = sum(allowed.values())
        if not total:
            return
        kind = (size, min(total, EVIDENCE))
        shares = {token_id: count / total for token_id, count in allowed.items()}
        self._asked[tuple(text[-ORDER:])] = (kind, row.clone(), shares)
        weight = self.counts.weights[kind]
        row.mul_(1 - weight)
        for token_id, share in shares.items():
            row[token_id] += weight * share

    def follow(self, committed: Sequence[int]) -> None:
        """Learn from every token that has been committed since the last call; may be called twice for a text."""
        for token_id in committed[len(self._committed) :]:
            asked = self._asked.get(tuple(self._committed[-ORDER:]))
            if asked:
                self._learn(token_id, *asked)
            self._committed.append(token_id)
            self.counts.enter([token_id])
        self._asked.clear()

    def _learn(
        self, token_id: int, kind: tuple[int, int], row: Tensor, shares: dict[int, float]
    ) -> None:
        weight = self.counts.weights[kind]
        ours = weight * shares.get(token_id, 0.0)
        theirs = (1 - weight) * float(row[token_id]) if token_id < len(row) else 0.0
        if ours + theirs > 0:
            moved = weight + MIXTURE_LEARNING_RATE * (ours / (ours + theirs) - weight)
            self.counts.weights[kind] = min(0.95, max(0.01, moved))
