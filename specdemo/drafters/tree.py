"""Drafts a tree, best first: the most promising paths under a budget of nodes (SpecInfer 2305.09781, EAGLE-2 2406.16858)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from specdemo.drafters.base import TREE_OPTIONS, TREE_POLICIES, DraftingContext, Method
from specdemo.drafters.policies.calibration import Prior, Priors
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.engine.cost import Costs
from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.sampling import ReducedVocabulary

WIDEST = 10  # children of one parent, as in Medusa's own trees
PASS_NODES = 4  # nodes that are read in one pass when one of them must be: further rows of a pass are nearly free


@dataclass(slots=True)
class GrownTree:
    """Nodes so far, parents first.

    rows: the distribution that each node was drawn or chosen from
    survivals: chance that the target accepts the whole path down to a node
    read: nodes after which the distribution is known, in the order of reading
    """

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    survivals: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)

    def path(self, node: int) -> list[int]:
        """Drafted tokens down to a node, itself included; none for -1, the end of the text."""
        token_ids = []
        while node >= 0:
            token_ids.append(self.token_ids[node])
            node = self.parents[node]
        return token_ids[::-1]

    def depth(self, node: int) -> int:
        """Return the number of drafted tokens down to a node, itself included; 0 for -1."""
        return self.depths[node] if node >= 0 else 0

    def survival(self, node: int) -> float:
        """Return the chance that the target accepts the path down to a node; 1 for -1."""
        return self.survivals[node] if node >= 0 else 1.0

    def add(
        self, parent: int, token_id: int, row: Tensor, confidence: float, survival: float
    ) -> int:
        """Add a node under its parent; returns its index."""
        self.token_ids.append(token_id)
        self.parents.append(parent)
        self.rows.append(row)
        self.confidences.append(confidence)
        self.survivals.append(survival)
        self.depths.append(self.depth(parent) + 1)
        return len(self.token_ids) - 1

    def proposal(
        self, words: ReducedVocabulary | None, lookahead: int, reason: Reason, *, chosen: bool
    ) -> Proposal:
        return Proposal(
            tuple(self.token_ids),
            tuple(self.parents),
            draft_probs=self.rows,
            words=words,
            chosen=chosen,
            confidences=tuple(self.confidences),
            lookahead=lookahead,
            reasons=(reason,),
        )

    def reason(self, code: str, nodes: int) -> Reason:
        """Return a reason with the number of nodes. nodes: most that were allowed"""
        return Reason(code, {"count": len(self.token_ids), "nodes": nodes})


@dataclass(slots=True)
class _Family:
    """Further children of one parent. left: the draft's distribution without the siblings drawn so far."""

    parent: int
    left: Tensor
    reached: float  # chance that the target accepts the parent and rejects all children so far
    children: int = 0


_Opening = tuple[float, int, bool, int]  # -gain, order, reading?, node or family


# Of a token that was chosen, not drawn, and predicted without the tokens before it.
_CHOSEN = Prior(lambda sure: 0.02 + 0.9 * sure)
CHOSEN_GUESS = Priors(_CHOSEN, _CHOSEN)


def depth_tree(
    probs: Tensor,
    token: Callable[[int], int],
    nodes: int,
    chances: Callable[[Sequence[Sequence[float]]], Sequence[Sequence[float]]],
    pays: Callable[[float, int], bool],
) -> GrownTree:
    """Return the most likely paths through the rows of `probs`, (depth, W): at most `nodes` nodes, best first.

    token(column): returns the token of a column
    chances(confidences): returns, for each depth and rank, the chance that the target accepts this child once it has
        accepted the parent
    pays(gain, nodes): whether a node that is accepted with chance `gain` is worth its cost
    """
    token_ids, confidences = likeliest(probs, token)
    accepted = chances(confidences)
    tree = GrownTree()
    openings: list[tuple[float, int, int]] = []  # -survival, parent, rank among siblings

    def open_up(parent: int, rank: int) -> None:
        depth = tree.depth(parent)
        if depth < len(accepted) and rank < len(accepted[depth]):
            survival = tree.survival(parent) * accepted[depth][rank]
            heapq.heappush(openings, (-survival, parent, rank))

    open_up(-1, 0)
    while openings and len(tree.token_ids) < nodes:
        negated, parent, rank = heapq.heappop(openings)
        if not pays(-negated, len(tree.token_ids)):
            break
        depth = tree.depth(parent)
        token_id, confidence = token_ids[depth][rank], confidences[depth][rank]
        node = tree.add(parent, token_id, probs[depth], confidence, -negated)
        open_up(node, 0)
        open_up(parent, rank + 1)
    return tree


def likeliest(
    probs: Tensor, token: Callable[[int], int]
) -> tuple[list[list[int]], list[list[float]]]:
    """Return each row's most likely tokens, and the probability of each without those before it."""
    values, places = probs.topk(min(WIDEST, probs.shape[-1]))
    token_ids, confidences = [], []
    for row, ids in zip(values.tolist(), places.tolist(), strict=True):  # sync
        left, shares = 1.0, []
        for value in row:
            if value <= 0:
                break
            shares.append(min(1.0, value / max(left, value)))
            left -= value
        token_ids.append([token(column) for column in ids[: len(shares)]])
        confidences.append(shares)
    return token_ids, confidences


class Tree(Drafter):
    """The model that meets a need, expanded best first; siblings are drawn without replacement.

    policy "cost": stop where one more node or one more step of the draft costs more than it is expected to give
    chosen: children are the most likely tokens, not drawn
    """

    def __init__(self, context: DraftingContext, need: str) -> None:
        settings = context.settings
        self.draft = context.distributions(need)
        self.costs: Costs = context.costs
        self.stopping = StoppingRule(context.costs)
        self.calibration = context.calibration
        self.nodes, self.depth = settings.nodes, settings.lookahead
        self.costly = settings.policy != "constant"
        self.chosen = self.draft.greedy

    def start(self, prompt_ids: Sequence[int]) -> None:
        return self.draft.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        self.draft.follow(committed)
        depth = self.draft.room(committed, min(self.depth, budget))
        tree = self.grow(committed, depth) if depth > 0 else GrownTree()
        rule = "paying" if self.costly else "always"
        reason = self.draft.why(depth, tree.reason(f"tree_{rule}", self.nodes))
        return tree.proposal(self.draft.words, depth, reason, chosen=self.chosen)

    def grow(self, committed: Sequence[int], depth: int) -> GrownTree:
        """Grow a tree of at most `depth` levels, always at the node that the target is most likely to reach; may be empty.

        The heap contains two kinds of openings, ranked by the chance that they give an accepted token: one more child of
        a family, and reading the distribution below a node. Whether a child is drawn depends only on the nodes drawn
        before it, never on its own probability, and a drawn child is never dropped: so sampling stays exact.
        """
        tree = GrownTree()
        families: list[_Family] = []
        openings: list[_Opening] = []
        orders = count()

        def open_up(gain: float, index: int, *, reading: bool) -> None:
            heapq.heappush(openings, (-gain, next(orders), reading, index))

        open_up(self.calibration.mean, -1, reading=True)
        while openings and len(tree.token_ids) < self.nodes:
            negated, _, reading, index = heapq.heappop(openings)
            if not self._pays(-negated, len(tree.token_ids), reading=reading):
                continue
            if reading:
                together = [index, *self._also(openings, index)]
                rows = self.below(committed, tree, together)
                for node, row in zip(together, rows, strict=True):
                    families.append(_Family(node, row, tree.survival(node)))
                    open_up(self._next_gain(families[-1]), len(families) - 1, reading=False)
                continue
            family = families[index]
            node = self._child(tree, family, len(committed))
            if tree.depths[node] < depth:
                open_up(tree.survivals[node] * self.calibration.mean, node, reading=True)
            if float(family.left.sum()) > 0:
                open_up(self._next_gain(family), index, reading=False)
        return tree

    def _next_gain(self, family: _Family) -> float:
        """Chance that the family's next child is reached and accepted, computed before it is drawn."""
        left = family.left
        expected = float(left.max() if self.chosen else left.dot(left))
        return family.reached * self.calibration.chance(expected, sibling=family.children > 0)

    def _also(self, openings: list[_Opening], index: int) -> list[int]:
        """Other nodes waiting to be read, that are worth a row of the same pass; taken out of the heap."""
        if index < 0:
            return []
        waiting = sorted(opening for opening in openings if opening[2])[: PASS_NODES - 1]
        for opening in waiting:
            openings.remove(opening)
        heapq.heapify(openings)
        return [opening[3] for opening in waiting]

    def _child(self, tree: GrownTree, family: _Family, length: int) -> int:
        """Choose or draw the family's next child, and remove it from the remaining distribution. length: of the text"""
        row = family.left
        column = self.draft.pick(row, length + tree.depth(family.parent))
        confidence = float(row[column])
        chance = self.calibration.chance(confidence, sibling=family.children > 0)
        token_id, survival = self.draft.token(column), family.reached * chance
        node = tree.add(family.parent, token_id, row, confidence, survival)
        family.children += 1
        family.reached *= 1 - chance
        rest = row.clone()
        rest[column] = 0
        total = rest.sum()
        family.left = rest / total if total > 0 else rest
        return node

    def below(self, committed: Sequence[int], tree: GrownTree, nodes: Sequence[int]) -> Tensor:
        """Return the distribution after each node, (N, W) float32; -1 is the end of the text, read first and alone."""
        if list(nodes) == [-1]:
            return self.draft.probs_after(committed)[None]
        tree.read += nodes
        # The parent of a node that is read was read before it; the end of the text is no node.
        parents = [
            tree.read.index(above) if (above := tree.parents[node]) >= 0 else -1 for node in nodes
        ]
        token_ids = [tree.token_ids[node] for node in nodes]
        paths = [tree.path(node) for node in nodes]
        return self.draft.probs_below(committed, token_ids, parents, paths)

    @property
    def reading_seconds(self) -> float:
        """Seconds to compute the distribution below a node."""
        return self.costs.draft_step

    def _pays(self, gain: float, nodes: int, *, reading: bool = False) -> bool:
        """Return whether a token that is accepted with chance `gain` is worth its cost. nodes: drafted so far"""
        seconds = self.reading_seconds if reading else 0.0
        return not self.costly or self.stopping.node_pays(gain, nodes, seconds)


def tree_method(name: str, need: str, paper: str, kind: type[Tree] = Tree, **more: Any) -> Method:
    """Return the method in which the model that meets a need drafts a tree. more: further fields of the entry"""
    return Method(
        name=name,
        make=lambda context: kind(context, need),
        paper=paper,
        needs=(need,),
        options=TREE_OPTIONS,
        policies=TREE_POLICIES,
        **more,
    )


TREE = tree_method("tree", "draft", "Miao 2305.09781")
FEATURE_TREE = tree_method("feature_tree", "feature", "Li 2406.16858")
