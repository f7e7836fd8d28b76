"""Heads on the target's last state predict several positions in one step; the results form a tree (Medusa 2401.10774).

The verifier is exact, as for every drafter: the paper's typical acceptance, which changes the output, is not used.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdemo.drafters.base import TREE_OPTIONS, TREE_POLICIES, DraftingContext, Method
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.drafters.tree import CHOSEN_GUESS, GrownTree, depth_tree
from specdemo.engine.types import Drafter, Proposal
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.models.networks.parts import MedusaWeights

# The static tree contains the most likely paths if the choice of rank r, d positions further, is right with chance
# FIRST * FADE ** d * (1 + r) ** -(STEEP * EASE ** d). The numbers are a fit to the published tree for a 7B Vicuna
# (`mc_sim_7b_63`), which was made from its heads' correct predictions: of trees of 4 to 63 nodes, 96 % are the same.
FIRST, FADE, STEEP, EASE = 0.5, 0.8, 1.5, 0.6


class Medusa(Drafter):
    """Drafts a tree of the heads' most likely tokens, chosen, not drawn.

    With the policy `constant` the tree is the same in every step, else best first, as far as it pays.
    """

    def __init__(self, context: DraftingContext) -> None:
        settings = context.settings
        # Whoever opens trained drafters stores the states that they read.
        assert context.features is not None
        self.context, self.features = context, context.features
        self.weights: MedusaWeights = context.models["medusa"]()
        self.nodes, self.depth = settings.nodes, min(settings.lookahead, len(self.weights.blocks))
        self.static = settings.policy == "constant"

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        depth = min(self.depth, budget)
        probs = self._guess(committed) if depth > 0 else None
        if probs is None:
            return Proposal(reasons=(Reason("medusa_no_state"),))
        tree = self._tree(probs[:depth])
        rule = "static" if self.static else "paying"
        reason = tree.reason(f"medusa_{rule}", self.nodes)
        return tree.proposal(self.weights.words, depth, reason, chosen=True)

    def _guess(self, committed: Sequence[int]) -> Tensor | None:
        """Return (depth, W): the distribution at each position after the pending token; None if the state before it is missing."""
        begun = time.perf_counter()
        before = len(committed) - 2
        if not 0 <= before < self.features.length:
            return None
        state = self.features.read(before, before + 1, self.weights.reads)
        logits = self.weights.guess(state.to(self.weights.dtype))
        # The tokens between are unknown: a repetition penalty uses the committed text alone.
        probs = self.context.shaper.probs(logits, committed, [()] * len(logits), self.weights.words)
        self.context.costs.observe_draft(time.perf_counter() - begun)
        return probs

    def _tree(self, probs: Tensor) -> GrownTree:
        token = self.weights.words.token
        if self.static:
            return depth_tree(probs, token, self.nodes, static_chances, lambda *_: True)
        chances = self.context.calibration.child_chances
        pays = StoppingRule(self.context.costs).node_pays
        return depth_tree(probs, token, self.nodes, chances, pays)


def static_chances(confidences: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the chances for `depth_tree` by rank and depth alone."""
    return [
        [FIRST * FADE**depth * (1 + rank) ** -(STEEP * EASE**depth) for rank in range(len(row))]
        for depth, row in enumerate(confidences)
    ]


MEDUSA = Method(
    name="medusa",
    make=Medusa,
    paper="Cai 2401.10774",
    needs=("medusa",),
    options=TREE_OPTIONS,
    policies=TREE_POLICIES,
    prior=CHOSEN_GUESS,
    tokens="chosen",
)
