"""A tree over one block of guesses: each node knows the word before it by the block's correction head (DARTree 2608.13524)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdemo.drafters.base import Method
from specdemo.drafters.block import Block
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.tree import Branches, GrownTree, Tree, grow
from specdemo.engine.cost import FOLLOW

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.drafters.draft_reader import DraftReader


class BlockTree(Tree):
    """Grows a tree, the most probable prefix first, over the positions that one pass of a DSpark drafter has guessed.

    The pass knows no drafted token, so its guesses for a position are the same below every node. The Markov head, which
    corrects DSpark's chain, corrects them for each node by the token above it: siblings have children of their own.
    Nothing is trained for it, and reading a node takes the head, not a pass.

    `reading_seconds` is what the head has taken for a node in this run.
    """

    def __init__(
        self,
        draft: DraftReader,
        calibration: Calibration,
        *,
        nodes: int,
        depth: int,
        costly: bool,
    ) -> None:
        self.block = Block(draft)
        depth = min(depth, self.block.depth)
        super().__init__(draft, calibration, nodes=nodes, depth=depth, costly=costly)
        self._head_seconds = 0.0

    def branches(self, committed: Sequence[int]) -> Branches:
        """The guesses of one pass."""
        logits = self.block.guess(committed)
        return _Guesses(self, committed, logits)

    @property
    def reading_seconds(self) -> float:
        """See above."""
        return self._head_seconds

    def observe_reading(self, seconds: float, nodes: int) -> None:
        """The head has read so many nodes together."""
        self._head_seconds += FOLLOW * (seconds / nodes - self._head_seconds)


class _Guesses:
    """The block's guesses, (depth, W), as branches.

    Below "of" and "no", both guessed for the first position, the second position's guesses are "course" and "problem":

        node                 0 of      1 no
        depth                   1         1
        below it        course .9    problem .8     the same row of the block, corrected by "of" and by "no"
    """

    def __init__(self, tree: BlockTree, committed: Sequence[int], logits: Tensor) -> None:
        self.tree, self.committed, self.logits = tree, committed, logits
        self.states = tree.block.model.states

    def below(self, tree: GrownTree, nodes: Sequence[int]) -> Tensor:
        """See `Branches`."""
        import torch

        begun = time.perf_counter()
        rows = torch.cat([self._corrected(tree, node) for node in nodes])
        paths = [tree.path(node) for node in nodes]
        probs = self.tree.draft.shaped(rows, self.committed, paths)
        self.tree.observe_reading(time.perf_counter() - begun, len(nodes))
        return probs

    def _corrected(self, tree: GrownTree, node: int) -> Tensor:
        """(1, W): the guesses for the position below a node; those of a drafter without the head as they are."""
        block, depth = self.tree.block, tree.depths[node] if node >= 0 else 0
        above = tree.token_ids[node] if node >= 0 else self.committed[-1]
        guesses = self.logits[depth : depth + 1]
        if block.markov is None:
            return guesses
        return block.markov.corrected(guesses, block.row(above), self.states[depth])


BLOCK_TREE = Method(
    name="block_tree",
    title="DSpark, tree",
    summary="The same pass, grown into a tree: below each branch the guesses heed that branch's last word.",
    make=lambda context: grow(context, context.trained_drafter("block"), BlockTree),
    label="DSpark tree",
    paper="2608.13524",
    needs=("block",),
    options=("policy", "lookahead", "nodes", "fallback"),
)
