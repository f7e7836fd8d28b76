"""Medusa's heads (Cai 2401.10774): residual blocks on the target's last state, and an output matrix for all or for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.networks.compact_files import read_config, read_state
from specdemo.models.networks.four_bit import Linear, dense, pack_linear, stacked


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """Shared, immutable weights.

    blocks: for each head its residual blocks, H to H and a constant (H,)
    heads: H to W, one for all or one for each
    words: what they speak; reads: the layer whose state goes in
    """

    blocks: tuple[tuple[tuple[Linear, Tensor], ...], ...]
    heads: tuple[Linear, ...]
    words: ReducedVocabulary
    reads: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Of the states that go in."""
        return self.blocks[0][0][1].dtype

    @torch.inference_mode()
    def guess(self, state: Tensor) -> Tensor:
        """What each head expects. state: (1, H), of the token before the pending one. returns: (depth, W) float32 logits

        Row k is for the token k + 1 places after the pending one.
        """
        guesses = [self._through(blocks, state) for blocks in self.blocks]
        if len(self.heads) == 1:
            return self.heads[0](torch.cat(guesses)).float()
        logits = [head(guess) for head, guess in zip(self.heads, guesses, strict=True)]
        return torch.cat(logits).float()

    def _through(self, blocks: tuple[tuple[Linear, Tensor], ...], state: Tensor) -> Tensor:
        for block, bias in blocks:
            state = state + F.silu(block(state) + bias)
        return state


def load_medusa(
    folder: Path, embedding: Tensor, *, device: torch.device, four_bit: bool = True
) -> MedusaWeights:
    """Heads ready to run. embedding: (V, H), the target's"""
    facts, state = read_config(folder)["specdemo"], read_state(folder)
    embedding = embedding.to(device=device, dtype=torch.bfloat16)

    def block(index: int) -> tuple[tuple[Linear, Tensor]]:
        weight = stacked([state[f"heads.{index}.weight"]], device)
        bias = dense(state[f"heads.{index}.bias"]).to(device, torch.bfloat16)
        return ((pack_linear(weight, four_bit=four_bit), bias),)

    word_ids = dense(state["word_ids"]).to(device)
    return MedusaWeights(
        blocks=tuple(block(index) for index in range(int(facts["depth"]))),
        heads=(pack_linear(embedding[word_ids], four_bit=four_bit),),
        words=ReducedVocabulary(word_ids.cpu(), embedding.shape[0]),
        reads=tuple(facts["reads"]),
    )
