"""A whole block in one pass of the drafter: DSpark (DeepSeek-AI and Peking University, 2026) and JetSpec (2606.18394)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specdemo.drafters.base import TREE_POLICIES, DraftingContext, Method
from specdemo.drafters.policies.calibration import STATED, Calibration
from specdemo.drafters.policies.rule import StoppingRule
from specdemo.drafters.tree import CHOSEN_GUESS, GrownTree, Tree, depth_tree, tree_method
from specdemo.engine.clock import Stopwatch
from specdemo.engine.cost import FOLLOW, Costs
from specdemo.engine.types import Drafter, Outcome, Proposal
from specdemo.kernels.plan import Chain
from specdemo.trace.events import Reason

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.drafters.reader import DraftReader
    from specdemo.models.networks.parts import Corrector


class Block:
    """One pass that predicts every position of the block.

    draft: reads with a compact drafter that predicts `depth` positions; shapes and draws as the target does
    """

    def __init__(self, draft: DraftReader) -> None:
        from specdemo.models.networks.chain import CompactModel
        from specdemo.models.networks.dflash import DFlashModel

        assert isinstance(draft.reader.model, CompactModel | DFlashModel)
        self.draft, self.model = draft, draft.reader.model
        self.costs: Costs = draft.costs
        self.depth = self.model.weights.depth
        self.markov: Corrector | None = self.model.weights.markov

    def start(self, prompt_ids: Sequence[int]) -> None:
        return self.draft.start(prompt_ids)

    def guess(self, committed: Sequence[int]) -> Tensor:
        """Return (depth, W) float32 logits of the positions after a text; the time of the pass counts as one draft step."""
        self.draft.follow(committed)
        with Stopwatch() as watch:
            logits = self.draft.reader.logits_after(committed, self.model.guess)
        self.costs.observe_draft(watch.fair_seconds, watch.runs, FOLLOW)
        return logits


class DSpark(Block, Drafter):
    """Drafts a chain: each position's logits are corrected by the token drawn before it, and have an estimated confidence.

    A drafter without such heads (DFlash 2602.06036) corrects nothing; its confidence is its highest probability.

    scheduled: continue only while that raises the expected tokens a second, and stop at the first position where
    it does not. Whether a position is drawn depends on the tokens before it alone, so sampling stays exact;
    a decision that uses later positions would not be (see `bench.wrong_rules`).
    """

    def __init__(self, context: DraftingContext) -> None:
        super().__init__(context.distributions("block"))
        self.most = context.settings.lookahead
        self.scheduled = context.settings.policy != "constant"
        self.stopping = StoppingRule(context.costs)
        # The confidence head's estimates, corrected by the acceptances of this run.
        self.calibration = Calibration(STATED)
        self._sure: list[float] = []

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        allowed = min(budget, self.most, self.depth)
        if not allowed:
            return Proposal(reasons=(Reason("block_no_token"),))
        words = self.guess(committed)
        states = self.model.states
        chain = Chain()
        token_ids: list[int] = []
        survivals: list[float] = []
        self._sure = []
        survival = expected = 1.0
        reason = Reason("block_whole")
        previous = committed[-1]
        for position in range(allowed):
            logits = words[position : position + 1]
            sure: float | None = None
            if self.markov:
                sure = self.markov.survival(position, states[position], previous)
                logits = self.markov.corrected(logits, previous, states[position])
            if sure is None:
                sure = float(logits.softmax(dim=-1).amax())
            survival *= self.calibration.chance(sure)
            pays = not (self.scheduled and position)
            if not (pays or self.stopping.position_pays(survival, position, expected)):
                reason = Reason("block_stop", {"position": position + 1, "survival": survival})
                break
            expected += survival
            probs = self.draft.shaped(logits, committed, [token_ids])[0]
            chain.add(self.draft.pick(probs, len(committed) + position), probs)
            token_ids.append(self.draft.token(chain.columns[-1]))
            survivals.append(survival)
            self._sure.append(sure)
            previous = token_ids[-1]
        return self.draft.proposal(chain, allowed, reason, survivals=tuple(survivals))

    def observe(self, outcome: Outcome) -> None:
        reported = replace(outcome.proposal, confidences=tuple(self._sure))
        self.calibration.observe(replace(outcome, proposal=reported))


class BlockTree(Tree):
    """Grows a tree, the most probable prefix first, over the positions that one pass of a DSpark drafter has predicted.

    The pass has no drafted token as input, so its logits for a position are the same below every node. The Markov head,
    which corrects DSpark's chain, corrects them for each node by the token above it: siblings have children of their own.
    Nothing is trained for it, and reading a node needs the head, not a pass.

    `reading_seconds` is the measured time of the head for a node in this run.
    """

    def __init__(self, context: DraftingContext, need: str) -> None:
        super().__init__(context, need)
        self.block = Block(self.draft)
        self.depth = min(self.depth, self.block.depth)
        self._head_seconds = 0.0
        self._logits: Tensor  # (depth, W), of the block after the text

    @property
    def reading_seconds(self) -> float:
        return self._head_seconds

    def observe_reading(self, seconds: float, nodes: int) -> None:
        """Update the time per node after the head has read so many nodes in one call."""
        self._head_seconds += FOLLOW * (seconds / nodes - self._head_seconds)

    def below(self, committed: Sequence[int], tree: GrownTree, nodes: Sequence[int]) -> Tensor:
        """Correct the guesses of one pass for each node.

        Below "of" and "no", both guessed for the first position, the second position's guesses are "course" and "problem":

            node                 0 of      1 no
            depth                   1         1
            below it        course .9    problem .8     the same row of the block, corrected by "of" and by "no"
        """
        import torch

        if list(nodes) == [-1]:
            self._logits = self.block.guess(committed)
        begun, markov = time.perf_counter(), self.block.markov
        rows: list[Tensor] = []
        for node in nodes:
            depth, above = tree.depth(node), tree.token_ids[node] if node >= 0 else committed[-1]
            guesses = self._logits[depth : depth + 1]
            if markov:
                states = self.block.model.states[depth]
                guesses = markov.corrected(guesses, above, states)
            rows.append(guesses)
        probs = self.draft.shaped(torch.cat(rows), committed, [tree.path(node) for node in nodes])
        self.observe_reading(time.perf_counter() - begun, len(nodes))
        return probs


class JetSpec(BlockTree):
    """Drafts a tree over the positions: the most likely tokens of each, best paths first.

    Its nodes are chosen, not drawn: the target draws at each node and follows the child with that token.
    """

    def __init__(self, context: DraftingContext, need: str) -> None:
        super().__init__(context, need)
        self.chosen = True

    def grow(self, committed: Sequence[int], depth: int) -> GrownTree:
        logits = self.block.guess(committed)
        probs = self.draft.shaped(logits, committed, [[]] * len(logits))[:depth]
        chances = self.calibration.child_chances
        return depth_tree(probs, self.draft.token, self.nodes, chances, self._pays)


BLOCK = Method(
    name="block",
    make=DSpark,
    paper="DeepSeek-AI and Peking University, 2026",
    needs=("block",),
    options=("policy", "lookahead", "fallback"),
    policies=TREE_POLICIES,
)
JET = tree_method("jet", "jet", "2606.18394", JetSpec, prior=CHOSEN_GUESS, tokens="chosen")
BLOCK_TREE = tree_method("block_tree", "block", "2608.13524", BlockTree)
