"""Methods that copy the continuation of an earlier match: in the same text, or in a datastore.

N-gram: prompt lookup decoding (Saxena 2023); retrieval: REST (He 2311.08252).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdemo.config.settings import MAX_LOOKAHEAD
from specdemo.drafters.base import CHAIN_OPTIONS, DraftingContext, Method
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.calibration import Prior, Priors
from specdemo.drafters.policies.lookahead import Lookahead
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore

LONGEST_MATCH = 16  # most tokens of a search in a datastore
SHORTEST_MATCH = 2  # tokens


@dataclass(frozen=True, slots=True)
class Match:
    """Earlier occurrence of the end of a text. copies: pairs of the tokens that followed it and their confidences"""

    copies: Iterable[tuple[int, float]]
    reason: Reason


class Copier(Drafter):
    """Drafts the continuation of a match until the policy or the budget stops it.

    source: name of the method; shortest: tokens of a match
    """

    source: str

    def __init__(self, lookahead: Lookahead, shortest: int) -> None:
        self.lookahead = lookahead
        self.shortest = shortest
        self._nothing = Proposal(reasons=(Reason(f"{self.source}_no_match"),), source=self.source)

    def search(self, committed: Sequence[int], most: int) -> Match | None:
        """Return the match of the end of a text, with at most `most` copies; None if none is long enough."""
        raise NotImplementedError

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        allowed = min(budget, self.lookahead.allowed(committed))
        match = self.search(committed, allowed)
        if match is None:
            if self._nothing.lookahead != allowed:
                self._nothing = replace(self._nothing, lookahead=allowed)
            return self._nothing
        token_ids: list[int] = []
        confidences: list[float] = []
        for token_id, confidence in match.copies:
            token_ids.append(token_id)
            confidences.append(confidence)
            if not self.lookahead.go_on(confidence):
                break
        return Proposal.chain(
            token_ids,
            confidences=tuple(confidences),
            lookahead=allowed,
            reasons=(match.reason, self.lookahead.reason),
            source=self.source,
        )

    def observe(self, outcome: Outcome) -> None:
        self.lookahead.observe(outcome)


class Ngram(Copier):
    """Copies from the longest, and among those the latest, earlier match in the text.

    The automaton may contain earlier texts of the same session; only committed tokens are entered.
    """

    source = "ngram"

    def __init__(self, automaton: SuffixAutomaton, lookahead: Lookahead) -> None:
        super().__init__(lookahead, SHORTEST_MATCH)
        self.automaton = automaton

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Enter the prompt: as a new text, or only its new tokens if it continues the last one."""
        self.automaton.begin(prompt_ids)

    def search(self, committed: Sequence[int], most: int) -> Match | None:
        """Enter the new tokens of the text, and return its match."""
        self.automaton.follow(committed)
        length, position = self.automaton.match()
        if length < self.shortest:
            return None
        followed = self.automaton.following(position, most)
        copies = [
            (token_id, confidence(length + number)) for number, token_id in enumerate(followed, 1)
        ]
        reason = match_reason("ngram", self.automaton, position, matched=length)
        return Match(copies, reason)


class Retrieval(Copier):
    """Copies from a datastore: at each position the most frequent continuation among the remaining matches.

    A token's confidence is the fraction of the matches that continue with it, reduced if there are few:
    count / (matches + 1). One match alone gives 1/2.
    """

    source = "retrieval"

    def __init__(
        self, store: Datastore, lookahead: Lookahead, *, shortest: int = SHORTEST_MATCH
    ) -> None:
        super().__init__(lookahead, shortest)
        self.store = store

    def search(self, committed: Sequence[int], most: int) -> Match | None:
        """Return the match of the longest end of the text that the store contains."""
        end = tuple(committed[-LONGEST_MATCH:])
        length, positions = self.store.lookup(end, longest=LONGEST_MATCH, shortest=self.shortest)
        if not length:
            return None
        continuations = self.store.following(positions, MAX_LOOKAHEAD)
        count = len(continuations)
        numbers: dict[str, float] = {"matched": length, "places": count}
        reason = Reason("retrieval_once" if count == 1 else "retrieval", numbers)
        return Match(itertools.islice(most_frequent(continuations), most), reason)


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
    """Return this session's earlier texts if memory is allowed; else none."""
    return context.memory.texts if context.memory else SuffixAutomaton()


def _retrieval(context: DraftingContext) -> Retrieval:
    assert context.store is not None  # make_drafter has checked it
    return Retrieval(context.store, context.lookahead(0.0))


NGRAM = Method(
    name="ngram",
    make=lambda context: Ngram(known_texts(context), context.lookahead(0.0)),
    paper="Saxena 2023",
    options=(*CHAIN_OPTIONS, "memory", "fallback"),
    prior=Priors(
        Prior(lambda sure: max(0.05, 1.2 * sure - 0.15)),
        # With sampling, the target departs from its own text more often.
        Prior(lambda sure: max(0.05, 1.2 * sure - 0.3)),
    ),
    tokens="copied",
)
RETRIEVAL = Method(
    name="retrieval",
    make=_retrieval,
    paper="He 2311.08252",
    needs=("store",),
    options=(*CHAIN_OPTIONS, "fallback"),
    prior=Priors(  # with few matches, their fraction overestimates the chance
        Prior(lambda sure: 0.05 + 0.8 * sure**2), Prior(lambda sure: 0.05 + 0.55 * sure**2)
    ),
    tokens="copied",
)
