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
from specdemo.models.networks.chain import CompactDecoder, CompactModel


class ExitDecoder(CompactDecoder):
    """The adapter of an early exit."""

    def open(self, target: CachedModel) -> FeatureReader:
        """Start one conversation in the target's own cache."""
        return FeatureReader(ExitModel(target, self))


class ExitModel(CompactModel):
    """One conversation of the target's first layers and an adapter, whose inputs are the states of those layers.

    Use it through a `FeatureReader`, and only while the target is idle: both write into the same rows.

    target: stores the states that the adapter reads, see `CachedModel.record`
    decoder: the adapter; `reads` of its weights names the one layer whose states are its input
    """

    def __init__(self, target: CachedModel, decoder: CompactDecoder) -> None:
        super().__init__(decoder)
        self.target = target
        (self._layers,) = self.weights.reads

    @property
    def context(self) -> int | None:
        return self.target.context

    def draft(self, token_ids: Sequence[int], plan: DraftPlan) -> Chain | None:
        return None

    def _inputs(self, token_ids: Sequence[int], tree: Sequence[int], first: int) -> Tensor:
        """Return the states of the target: those that it has stored, and those of its first layers on the other tokens.

        Tokens of the text that the target has not read, and drafted ones, use spare rows of its cache.
        """
        begin, features, parts = self.length, self.target.features, []
        known = max(0, min(features.length - begin, len(token_ids)))
        if known:
            parts.append(features.read(begin, begin + known, self.weights.reads))
        if known < len(token_ids):
            ahead = begin + known - self.target.length
            if ahead < 0:
                raise ValueError("the target has read on without keeping its states: see `record`")
            below = [*range(-1, ahead - 1), *(ahead + parent - known for parent in tree[known:])]
            at = ahead + first
            parts.append(self.target.lower(self._layers, token_ids[known:], below[at:], below[:at]))
        embedding = self.weights.embedding
        return torch.cat(parts).to(device=embedding.device, dtype=embedding.dtype)
