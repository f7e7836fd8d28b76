"""Finds the last tokens in a datastore and drafts their most frequent continuation (REST, He 2311.08252)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdemo.config.settings import MAX_LOOKAHEAD
from specdemo.drafters.base import CHAIN_OPTIONS, CHAIN_POLICIES, DraftingContext, Method
from specdemo.drafters.policies.calibration import Priors
from specdemo.drafters.policies.lookahead import Lookahead
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore

LONGEST_MATCH = 16  # most tokens of a search


@dataclass(frozen=True, slots=True)
class Found:
    """A match: its length, and the continuation of each of its occurrences."""

    length: int = 0
    continuations: Sequence[Sequence[int]] = ()


class Retrieval(Drafter):
    """Drafts a chain: at each position the most frequent continuation among the remaining matches.

    A token's confidence is the fraction of the matches that continue with it, reduced if there are few:
    count / (matches + 1). One match alone gives 1/2.
    """

    def __init__(self, store: Datastore, lookahead: Lookahead, *, shortest: int = 2) -> None:
        self.store = store
        self.lookahead = lookahead
        self.shortest = shortest
        self._seen: tuple[tuple[int, ...], Found] = ((), Found())

    def match(self, committed: Sequence[int]) -> tuple[int, list[int]]:
        """Length of the match, and the tokens that followed it most often; (0, []) without one."""
        found = self._find(committed)
        return found.length, [token_id for token_id, _ in most_frequent(found.continuations)]

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Follow the matches until the policy or the budget stops it."""
        allowed = min(budget, self.lookahead.allowed(committed))
        reason = self.lookahead.reason
        found = self._find(committed)
        if not found.length:
            return Proposal(
                lookahead=allowed, reasons=(Reason("retrieval_no_match"),), source="retrieval"
            )
        token_ids: list[int] = []
        confidences: list[float] = []
        for token_id, confidence in itertools.islice(most_frequent(found.continuations), allowed):
            token_ids.append(token_id)
            confidences.append(confidence)
            if not self.lookahead.go_on(confidence):
                break
        count = len(found.continuations)
        matched: dict[str, float] = {"matched": found.length, "places": count}
        return Proposal.chain(
            token_ids,
            confidences=tuple(confidences),
            lookahead=allowed,
            reasons=(Reason("retrieval_once" if count == 1 else "retrieval", matched), reason),
            source="retrieval",
        )

    def observe(self, outcome: Outcome) -> None:
        """Update the policy."""
        self.lookahead.observe(outcome)

    def _find(self, committed: Sequence[int]) -> Found:
        """Find the end of the text in the store, once for any number of callers."""
        end = tuple(committed[-LONGEST_MATCH:])
        if self._seen[0] != end:
            length, positions = self.store.lookup(
                end, longest=LONGEST_MATCH, shortest=self.shortest
            )
            continuations = self.store.following(positions, MAX_LOOKAHEAD) if length else []
            self._seen = end, Found(length, continuations)
        return self._seen[1]


def most_frequent(continuations: Sequence[Sequence[int]]) -> Iterator[tuple[int, float]]:
    """Follow the most frequent token from position to position: (token, confidence) pairs.

        continuations   a b c      a b c has 2 of 3 at the first position, then 1 of 2, then 1 of 1:
                        a d        a 2/4, b 1/3, c 1/2
                        e

    A text that ended is included in the counting until then.
    """
    left = continuations
    for place in itertools.count():
        counts = Counter(row[place] for row in left if len(row) > place)
        if not counts:
            return
        token_id, count = counts.most_common(1)[0]
        yield token_id, count / (len(left) + 1)
        left = [row for row in left if len(row) > place and row[place] == token_id]


def copied(confidence: float) -> float:
    """A copy of another text: with few matches the fraction overestimates the acceptance."""
    return 0.05 + 0.8 * confidence**2


def copied_sampled(confidence: float) -> float:
    """The same where the target draws."""
    return 0.05 + 0.55 * confidence**2


def _make(context: DraftingContext) -> Retrieval:
    assert context.store is not None  # make_drafter has checked it
    return Retrieval(context.store, context.lookahead(0.0))


RETRIEVAL = Method(
    name="retrieval",
    title="Retrieval",
    summary="Copies what mostly followed the same words in a datastore of earlier answers.",
    make=_make,
    paper="He 2311.08252",
    needs=("store",),
    options=(*CHAIN_OPTIONS, "fallback"),
    policies=CHAIN_POLICIES,
    prior=Priors(copied, copied_sampled),
    tokens="copied",
)
