"""Trees from distributions that depend on a place's depth alone: what a drafter gives that guesses several places in one pass.

Children are chosen, not drawn, so a tree may take any shape: the verifier keeps chosen tokens exactly at
any temperature.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specdemo.drafters.policies.calibration import Calibration, Priors
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.drafters.tree import GrownTree
from specdemo.engine.cost import Costs

if TYPE_CHECKING:
    from torch import Tensor

WIDEST = 10  # children of one parent, as in Medusa's own trees


def chosen_guess(confidence: float) -> float:
    """A guess that was chosen, not drawn, and does not know the tokens before it."""
    return 0.02 + 0.9 * confidence


CHOSEN_GUESS = Priors(chosen_guess, chosen_guess)


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
    """The likeliest paths through the rows of `probs`, (D, W): at most `nodes` nodes and `depth` levels.

    token(column): what a column stands for
    costly: stop where one more node costs the target more than it is expected to give
    """
    token_ids, confidences = likeliest(probs[:depth], token)
    chances = [_chances(row, calibration) for row in confidences]
    pays = StoppingRule(costs).node_pays if costly else lambda *_: True
    shape = best_paths(chances, nodes, pays)
    return hang(shape, token_ids, confidences, probs)


def best_paths(
    chances: Sequence[Sequence[float]], nodes: int, pays: Callable[[float, int], bool]
) -> list[tuple[int, int, float]]:
    """The shape of a tree, best first: parent, rank among siblings and survival of each node, parents first.

    chances: by depth and rank, that the target keeps this child once it has kept the parent
    pays(gain, nodes): whether a node that is kept with chance `gain` is worth its cost
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
    """A tree of this shape, the token of each node by its depth and rank; leaves out what has no token."""
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
    """Each row's likeliest tokens, and how likely each is among what is left without those before it."""
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
