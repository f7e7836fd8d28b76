"""Medusa's heads (Cai 2401.10774): a residual block per head on the target's last state, and one output matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.models.networks.four_bit import Linear


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """Shared, immutable weights.

    blocks: the residual block of each head, H to H
    head: H to W, shared by all heads
    words: the reduced vocabulary; reads: the layer whose state the heads read; dtype: of that state
    """

    blocks: tuple[Linear, ...]
    head: Linear
    words: ReducedVocabulary
    reads: tuple[int, ...]
    dtype: torch.dtype = torch.bfloat16

    def open(self, _: CachedModel) -> MedusaWeights:
        """Return itself: the heads store nothing of a conversation."""
        return self

    @torch.inference_mode()
    def guess(self, state: Tensor) -> Tensor:
        """Return the logits of each head, (depth, W) float32. state: (1, H), of the token before the pending one

        Row k is for the token k + 1 positions after the pending one.
        """
        guesses = [state + F.silu(block(state)) for block in self.blocks]
        return self.head(torch.cat(guesses)).float()
