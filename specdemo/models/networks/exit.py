"""Early exit: the target's first layers and a trained adapter draft for the whole target (LayerSkip 2404.16710, Kangaroo 2404.18911).

For all that the target has read, its states are there already. Only the pending and the drafted tokens run
through the first layers, in rows of the target's own cache that its next pass overwrites.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.engine.target import CachedModel, FeatureReader
from specdemo.kernels.plan import Chain, DraftPlan
from specdemo.models.networks.chain import CompactDecoder, CompactModel, CompactWeights


class ExitDecoder(CompactDecoder):
    """The adapter of an early exit."""

    def open(self, target: CachedModel) -> FeatureReader:
        """Start one conversation in the target's own cache."""
        return FeatureReader(ExitModel(target, self))


class ExitModel(CompactModel):
    """One conversation of the target's first layers and an adapter, whose inputs are the states of those layers.

    Use it through a `FeatureReader`, and only while the target is idle: both write into the same rows.

    target: stores the states that the adapter reads, see `CachedModel.record`
    weights: `reads` names the one layer whose states are the adapter's input
    """

    def __init__(self, target: CachedModel, weights: CompactDecoder | CompactWeights) -> None:
        super().__init__(weights)
        self.target, self.context = target, target.context
        (self._layers,) = self.weights.reads

    def read(self, token_ids: Sequence[int]) -> Tensor:
        states, features = [], self.target.features
        known = max(0, min(features.length - self.length, len(token_ids)))
        if known:
            begin, reads = self.length, self.weights.reads
            states.append(features.read(begin, begin + known, reads))
        fresh = token_ids[known:]
        if fresh:
            ahead = self._ahead(self.length + known)
            tree = range(-1, ahead + len(fresh) - 1)
            lower = self.target.lower(self._layers, fresh, tree[ahead:], tree[:ahead])
            states.append(lower)
        return self._append(token_ids, self._fit(torch.cat(states)))[0]

    def grow(
        self, token_ids: Sequence[int], parents: Sequence[int], states: Tensor | None = None
    ) -> Tensor:
        """Read nodes of a tree, see `CompactModel.grow`. states: None, because they are the target's"""
        ahead = self._ahead(self.length)
        earlier = [*range(-1, ahead - 1), *(ahead + parent for parent in self._grown)]
        below = [ahead + parent for parent in parents]
        states = self.target.lower(self._layers, token_ids, below, earlier)
        return super().grow(token_ids, parents, self._fit(states))

    def draft(self, token_ids: Sequence[int], plan: DraftPlan) -> Chain | None:
        return None

    def _ahead(self, position: int) -> int:
        """Return the number of tokens before a position that the target has not read; they use its first layers' spare rows."""
        ahead = position - self.target.length
        if ahead < 0:
            raise ValueError("the target has read on without keeping its states: see `record`")
        return ahead

    def _fit(self, states: Tensor) -> Tensor:
        embedding = self.weights.embedding
        return states.to(device=embedding.device, dtype=embedding.dtype)
