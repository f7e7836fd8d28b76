"""Drafts a tree, best first: the most promising paths under a budget of nodes (SpecInfer 2305.09781, EAGLE-2 2406.16858)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from specdemo.drafters.base import TREE_OPTIONS, TREE_POLICIES, DraftingContext, Method
from specdemo.drafters.policies.calibration import Calibration, Prior, Priors
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
        """Drafted tokens down to a node, itself included."""
        token_ids = []
        while node >= 0:
            token_ids.append(self.token_ids[node])
            node = self.parents[node]
        return token_ids[::-1]

    def add(self, parent: int, token_id: int, row: Tensor, confidence: float) -> int:
        """Add a node under its parent; returns its index."""
        self.token_ids.append(token_id)
        self.parents.append(parent)
        self.rows.append(row)
        self.confidences.append(confidence)
        self.depths.append(1 if parent < 0 else self.depths[parent] + 1)
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


@dataclass(slots=True)
class TreeBuilder:
    """Grows one tree, always at the node that the target is most likely to reach.

    The heap contains two kinds of openings, ranked by the chance that they give an accepted token: one more child of
    a family, and reading the distribution below a node. Whether a child is drawn depends only on the nodes drawn
    before it, never on its own probability, and a drawn child is never dropped: so sampling stays exact.

    below(tree, nodes): returns (N, W) float32, the distribution after each node; -1 is the end of the text, read first and alone
    pick(row, depth): chooses or draws a column of the distribution at a depth, 0 after the pending token
    token(column): returns the token of a column of a distribution
    pays(gain, reading, nodes): whether a token accepted with chance `gain` is worth its cost
    """

    below: Callable[[GrownTree, Sequence[int]], Tensor]
    calibration: Calibration
    pick: Callable[[Tensor, int], int]
    token: Callable[[int], int]
    chosen: bool  # greedy: children are the most likely tokens, not drawn
    nodes: int
    depth: int
    pays: Callable[[float, bool, int], bool]

    def build(self) -> GrownTree:
        """A tree of at most `nodes` nodes and `depth` levels; may be empty."""
        tree = GrownTree()
        families: list[_Family] = []
        openings: list[
            tuple[float, int, bool, int]
        ] = []  # (-gain, order, reading?, node or family)
        order = 0

        def open_up(gain: float, reading: bool, index: int) -> None:  # noqa: FBT001
            nonlocal order
            order += 1
            heapq.heappush(openings, (-gain, order, reading, index))

        open_up(self.calibration.mean, True, -1)
        while openings and len(tree.token_ids) < self.nodes:
            gain, _, reading, index = heapq.heappop(openings)
            if not self.pays(-gain, reading, len(tree.token_ids)):
                continue
            if reading:
                together = [index, *self._also(openings, index)]
                rows = self.below(tree, together)
                for node, row in zip(together, rows, strict=True):
                    reached = tree.survivals[node] if node >= 0 else 1.0
                    families.append(_Family(node, row, reached))
                    open_up(self._next_gain(families[-1]), False, len(families) - 1)
                continue
            family = families[index]
            node = self._child(tree, family)
            if tree.depths[node] < self.depth:
                open_up(tree.survivals[node] * self.calibration.mean, True, node)
            if float(family.left.sum()) > 0:
                open_up(self._next_gain(family), False, index)
        return tree

    def _next_gain(self, family: _Family) -> float:
        """Chance that the family's next child is reached and accepted, computed before it is drawn."""
        left = family.left
        expected = float(left.max() if self.chosen else left.dot(left))
        return family.reached * self.calibration.chance(expected, sibling=family.children > 0)

    def _also(self, openings: list[tuple[float, int, bool, int]], index: int) -> list[int]:
        """Other nodes waiting to be read, that are worth a row of the same pass; taken out of the heap."""
        if index < 0:
            return []
        waiting = sorted(opening for opening in openings if opening[2])[: PASS_NODES - 1]
        for opening in waiting:
            openings.remove(opening)
        heapq.heapify(openings)
        return [opening[3] for opening in waiting]

    def _child(self, tree: GrownTree, family: _Family) -> int:
        """Choose or draw the family's next child, and remove it from the remaining distribution."""
        row = family.left
        column = self.pick(row, tree.depths[family.parent] if family.parent >= 0 else 0)
        confidence = float(row[column])
        node = tree.add(family.parent, self.token(column), row, confidence)
        chance = self.calibration.chance(confidence, sibling=family.children > 0)
        family.children += 1
        tree.survivals.append(family.reached * chance)
        family.reached *= 1 - chance
        rest = row.clone()
        rest[column] = 0
        total = rest.sum()
        family.left = rest / total if total > 0 else rest
        return node


# Of a token that was chosen, not drawn, and predicted without the tokens before it.
_CHOSEN = Prior(lambda sure: 0.02 + 0.9 * sure)
CHOSEN_GUESS = Priors(_CHOSEN, _CHOSEN)


def depth_tree(
    probs: Tensor,
    token: Callable[[int], int],
    calibration: Calibration,
    costs: Costs,
    *,
    nodes: int,
    depth: int,
    costly: bool,
) -> GrownTree:
    """Return the most likely paths through the rows of `probs`, (D, W): at most `nodes` nodes and `depth` levels.

    token(column): returns the token of a column
    costly: stop where one more node costs the target more than its expected gain
    """
    token_ids, confidences = likeliest(probs[:depth], token)
    chances = [_chances(row, calibration) for row in confidences]
    pays = StoppingRule(costs).node_pays if costly else lambda *_: True
    shape = best_paths(chances, nodes, pays)
    return hang(shape, token_ids, confidences, probs)


def best_paths(
    chances: Sequence[Sequence[float]], nodes: int, pays: Callable[[float, int], bool]
) -> list[tuple[int, int, float]]:
    """Return the shape of a tree, best first: parent, rank among siblings and survival of each node, parents first.

    chances: by depth and rank, that the target accepts this child once it has accepted the parent
    pays(gain, nodes): whether a node that is accepted with chance `gain` is worth its cost
    """
    shape: list[tuple[int, int, float]] = []
    openings: list[tuple[float, int, int, int]] = []  # -survival, parent, depth, rank

    def open_up(reached: float, parent: int, depth: int, rank: int) -> None:
        if depth < len(chances) and rank < len(chances[depth]):
            heapq.heappush(openings, (-reached * chances[depth][rank], parent, depth, rank))

    open_up(1.0, -1, 0, 0)
    while openings and len(shape) < nodes:
        survival, parent, depth, rank = heapq.heappop(openings)
        if not pays(-survival, len(shape)):
            break
        shape.append((parent, rank, -survival))
        open_up(-survival, len(shape) - 1, depth + 1, 0)
        open_up(shape[parent][2] if parent >= 0 else 1.0, parent, depth, rank + 1)
    return shape


def hang(
    shape: Sequence[tuple[int, int, float]],
    token_ids: Sequence[Sequence[int]],
    confidences: Sequence[Sequence[float]],
    probs: Tensor,
) -> GrownTree:
    """Return a tree of this shape, the token of each node by its depth and rank; omits nodes without a token."""
    tree, places = GrownTree(), {-1: -1}
    for number, (parent, rank, survival) in enumerate(shape):
        if parent not in places:
            continue
        above = places[parent]
        depth = tree.depths[above] if above >= 0 else 0
        if depth >= len(token_ids) or rank >= len(token_ids[depth]):
            continue
        places[number] = tree.add(
            above, token_ids[depth][rank], probs[depth], confidences[depth][rank]
        )
        tree.survivals.append(survival)
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


def _chances(confidences: Sequence[float], calibration: Calibration) -> list[float]:
    """Chance that each sibling is the one that is kept: all before it are refused first."""
    reached, chances = 1.0, []
    for rank, confidence in enumerate(confidences):
        chance = calibration.chance(confidence, sibling=rank > 0)
        chances.append(reached * chance)
        reached *= 1 - chance
    return chances


class Tree(Drafter):
    """The model that meets a need, expanded best first; siblings are drawn without replacement.

    policy "cost": stop where one more node or one more step of the draft costs more than it is expected to give
    """

    def __init__(self, context: DraftingContext, need: str) -> None:
        settings = context.settings
        self.draft = context.distributions(need)
        self.costs: Costs = context.costs
        self.stopping = StoppingRule(context.costs)
        self.calibration = context.calibration
        self.nodes, self.depth = settings.nodes, settings.lookahead
        self.costly = settings.policy != "constant"

    def start(self, prompt_ids: Sequence[int]) -> None:
        return self.draft.start(prompt_ids)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        self.draft.follow(committed)
        tree, depth = GrownTree(), self.draft.room(committed, min(self.depth, budget))
        if depth > 0:
            builder = TreeBuilder(
                partial(self.below, committed),
                self.calibration,
                lambda row, depth: self.draft.pick(row, len(committed) + depth),
                self.draft.token,
                self.draft.greedy,
                self.nodes,
                depth,
                self._pays if self.costly else lambda *_: True,
            )
            tree = builder.build()
        rule = "paying" if self.costly else "always"
        reason = self.draft.why(depth, tree.reason(f"tree_{rule}", self.nodes))
        return tree.proposal(self.draft.words, depth, reason, chosen=self.draft.greedy)

    def below(self, committed: Sequence[int], tree: GrownTree, nodes: Sequence[int]) -> Tensor:
        """Read new nodes of a tree with the draft model, see `TreeBuilder`."""
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

    def _pays(self, gain: float, reading: bool, nodes: int) -> bool:  # noqa: FBT001
        return self.stopping.node_pays(gain, nodes, self.reading_seconds if reading else 0.0)


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
