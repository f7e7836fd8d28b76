"""Medusa's heads (Cai 2401.10774): a residual block per head on the target's last state, and one output matrix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.models.networks.compact_files import read_config, read_state
from specdemo.models.networks.four_bit import Linear, dense, pack_linear, stacked


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """Shared, immutable weights.

    blocks: the residual block of each head: a matrix H to H and a constant (H,)
    head: H to W, shared by all heads
    words: the reduced vocabulary; reads: the layer whose state the heads read
    """

    blocks: tuple[tuple[Linear, Tensor], ...]
    head: Linear
    words: ReducedVocabulary
    reads: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Of the states that go in."""
        return self.blocks[0][1].dtype

    def open(self, _: CachedModel) -> MedusaWeights:
        """Return itself: the heads keep nothing of a conversation."""
        return self

    @torch.inference_mode()
    def guess(self, state: Tensor) -> Tensor:
        """What each head expects. state: (1, H), of the token before the pending one. returns: (depth, W) float32 logits

        Row k is for the token k + 1 places after the pending one.
        """
        guesses = [state + F.silu(block(state) + bias) for block, bias in self.blocks]
        return self.head(torch.cat(guesses)).float()


def load_medusa(
    folder: Path, embedding: Tensor, *, device: torch.device, four_bit: bool = True
) -> MedusaWeights:
    """Heads ready to run. embedding: (V, H), the target's"""
    facts, state = read_config(folder)["specdemo"], read_state(folder)
    embedding = embedding.to(device=device, dtype=torch.bfloat16)

    def block(index: int) -> tuple[Linear, Tensor]:
        weight = stacked([state[f"heads.{index}.weight"]], device)
        bias = dense(state[f"heads.{index}.bias"]).to(device, torch.bfloat16)
        return pack_linear(weight, four_bit=four_bit), bias

    word_ids = dense(state["word_ids"]).to(device)
    return MedusaWeights(
        blocks=tuple(block(index) for index in range(int(facts["depth"]))),
        head=pack_linear(embedding[word_ids], four_bit=four_bit),
        words=ReducedVocabulary(word_ids.cpu(), embedding.shape[0]),
        reads=tuple(facts["reads"]),
    )
