"""The values that pass between drafters, target and verifiers.

S committed tokens, N drafted nodes, V vocabulary, H hidden size. There is no batch axis here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from specdemo.engine.clock import ALONE, Sharing
from specdemo.trace.events import FinishReason, Reason, Status

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.sampling import ReducedVocabulary


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens. A chain is a tree of width one; empty is legal.

    token_ids: drafted tokens, parents before children
    parents: index of each node's parent, -1 = follows the pending token; siblings are tested in index order
    draft_probs: N rows (W,) float32 on the CPU, or None — row i is the distribution that node i was really drawn
        from (after removing siblings drawn before it), or only chosen from when `chosen`; a row is None where
        the token was copied beside others that were not
    words: the tokens of the columns of those rows; None if they are all V tokens
    chosen: nothing was drawn by chance; the rows, if any, are for pictures only
    chained: it would be a chain with any drawn tokens, and may be checked as a block; a tree may be one by chance
    confidences: each node's own probability under the drafter, for policies and pictures only
    lookahead, reasons: number of tokens that the lookahead policy allowed for this step, and why
    dropped: error of the drafter that was dropped in this step
    source: the drafter it came from, where a method chooses among several
    survivals: chance of each node to be kept with all before it, as foreseen; empty where nothing is foreseen
    expected_tokens, expected_seconds: forecast of the cost model for this step, target's own token included
    hit, saved_seconds: whether it was prepared while the target was busy, and the drafting time so hidden
    """

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    draft_probs: Sequence[Tensor | None] | Tensor | None = None
    words: ReducedVocabulary | None = None
    chosen: bool = False
    chained: bool = False
    confidences: tuple[float | None, ...] = ()
    lookahead: int = 0
    reasons: tuple[Reason, ...] = ()
    dropped: str = ""
    source: str = ""
    survivals: tuple[float, ...] = ()
    expected_tokens: float | None = None
    expected_seconds: float | None = None
    hit: bool | None = None
    saved_seconds: float | None = None

    @classmethod
    def chain(cls, token_ids: Sequence[int], **fields: object) -> Proposal:
        """A proposal in which each token follows the one before."""
        parents = tuple(range(-1, len(token_ids) - 1))
        return cls(tuple(token_ids), parents, chained=True, **fields)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def drawn_from(self) -> Sequence[Tensor | None] | Tensor | None:
        """`draft_probs` where nodes were really drawn from them."""
        return None if self.chosen else self.draft_probs

    def drawn_prob(self, node: int) -> float | None:
        """Probability with which a node's token was drawn; None where it was chosen."""
        row = None if self.drawn_from is None else self.drawn_from[node]
        if row is None:
            return None
        token = self.token_ids[node]
        return float(row[self.words.column_of[token] if self.words else token])

    def all_probs(self, node: int) -> Tensor | None:
        """A node's row over all tokens, (V,), where there is one."""
        row = None if self.draft_probs is None else self.draft_probs[node]
        if row is None:
            return None
        return self.words.widen(row[None])[0] if self.words else row

    def ended_by(self, stop_ids: Collection[int]) -> Proposal:
        """Return the proposal without the nodes that follow a stop token: none of them can be committed."""
        if not any(token_id in stop_ids for token_id in self.token_ids):
            return self
        nodes, followed = list[int](), {-1}
        for node, parent in enumerate(self.parents):
            if parent in followed:
                nodes.append(node)
                if self.token_ids[node] not in stop_ids:
                    followed.add(node)
        return self.only(nodes)

    def only(self, nodes: Sequence[int]) -> Proposal:
        """Return the proposal without its other nodes. nodes: ascending, with the parent of each"""
        places = {node: place for place, node in enumerate((-1, *nodes), start=-1)}
        rows, expected = self.draft_probs, self.expected_tokens
        survivals = tuple(self.survivals[node] for node in nodes) if self.survivals else ()
        return replace(
            self,
            token_ids=tuple(self.token_ids[node] for node in nodes),
            parents=tuple(places[self.parents[node]] for node in nodes),
            draft_probs=None if rows is None else [rows[node] for node in nodes],
            confidences=tuple(self.confidences[node] for node in nodes) if self.confidences else (),
            survivals=survivals,
            expected_tokens=None if expected is None else 1 + sum(survivals),
        )

    def children(self, node: int) -> list[int]:
        """Nodes that follow `node`, in the order in which they are tested; -1 is the pending token."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def paths(self) -> list[list[int]]:
        """Drafted tokens on the way to the rows of the target's pass: none for row 0, those down to node i for row 1 + i."""
        found: list[list[int]] = [[]]
        for token_id, parent in zip(self.token_ids, self.parents, strict=True):
            found.append([*found[parent + 1], token_id])
        return found


def depths(parents: Sequence[int]) -> list[int]:
    """Return the number of drafted tokens down to each node, itself included: 1 after the pending token."""
    result: list[int] = []
    for parent in parents:
        result.append(1 if parent < 0 else result[parent] + 1)
    return result


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check, in plain Python.

    path: accepted nodes, root first; next_id: the target's own token after them
    kind: CORRECTION after a refusal, BONUS after a draft kept whole, PLAIN without a draft
    accept_probs, draws: per node, None where the node was not tested
    target_probs: per node, its probability under the target, None behind one that was not accepted; next_prob: that of next_id
    residual: (V,) distribution from which next_id was drawn after a refusal; None otherwise, and when decoding is greedy
    block_probs: per node, probability to accept it and all before it given the whole draft; empty if the draft was
        not checked as a block
    tickets: of each tested node, None for others, and of next_id, if target and drafter share their noise; else empty
    """

    path: tuple[int, ...]
    next_id: int
    kind: Status
    accept_probs: tuple[float | None, ...] = ()
    draws: tuple[float | None, ...] = ()
    target_probs: tuple[float | None, ...] = ()
    next_prob: float = 1.0
    residual: Tensor | None = None
    block_probs: tuple[float, ...] = ()
    tickets: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step, for the drafter.

    new_ids: committed by this step, cut at the limits
    draft_seconds: estimated drafting time of all runs that share the target's pass: own time per run plus the shared
        draft passes once
    verify_seconds: of the pass and the verdict, without waiting for others
    """

    new_ids: tuple[int, ...]
    proposal: Proposal
    verdict: Verdict
    draft_seconds: float
    verify_seconds: float
    sharing: Sharing = ALONE


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a run: the only code for end-of-sequence and length.

    max_new_tokens: tokens still allowed; stop_ids: tokens that end an answer, themselves included
    """

    max_new_tokens: int
    stop_ids: frozenset[int] = frozenset()

    def budget(self, num_new: int) -> int:
        """Return the depth of the longest draft that can be accepted with the target's own token after it."""
        return max(0, self.max_new_tokens - num_new - 1)

    def cut(
        self, num_new: int, token_ids: Sequence[int]
    ) -> tuple[tuple[int, ...], FinishReason | None]:
        """Cut a step's tokens, after `num_new` earlier ones, and return why the run ends, if it does.

        cut(0, [5, <end>, 7])  ->  (5, <end>), STOP
        """
        for count, token_id in enumerate(token_ids, start=1):
            if token_id in self.stop_ids:
                return tuple(token_ids[:count]), FinishReason.STOP
            if num_new + count >= self.max_new_tokens:
                return tuple(token_ids[:count]), FinishReason.LENGTH
        return tuple(token_ids), None


class Drafter(Protocol):
    """Proposes tokens that the target may generate next; never decides anything.

    `start` and `propose` may use models: runs that draft at the same time share the passes, see `engine.passes`.
    Inherit from this class: only `propose` must be written.

        class Echo(Drafter):
            def propose(self, committed, budget):
                return Proposal.chain([committed[-1]] * min(budget, 4))

        class OneWord(Drafter):
            def propose(self, committed, budget):
                logits = self.reader.logits_after(committed)
                return Proposal.chain([int(logits.argmax())][:budget])

    In a run: `start`, then for each step `propose`, `verifying`, `observe`; `close` at the end, also of a run that
    is closed while it waits for a pass. `start` may follow again.
    """

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Start a run; forget everything of an earlier one that is not a prefix of this prompt."""
        return

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Propose tokens that follow `committed`, at most `budget` deep."""

    def verifying(self, proposal: Proposal) -> None:
        """React to the start of the target's pass: a thread may draft during it. Must return immediately."""
        return

    def observe(self, outcome: Outcome) -> None:
        """Learn from the result of the last proposal."""
        return

    def close(self) -> None:
        """End the run: stop threads and free the memory of this run."""
        return
