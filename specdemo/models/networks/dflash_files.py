"""Reads block drafters of the form of DFlash that `train` made."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.compact_files import load_state, read_config
from specdemo.models.networks.dflash import DFlashWeights
from specdemo.models.networks.four_bit import Linear, pack_linear
from specdemo.models.networks.parts import CompactConfig


def load_dflash(
    folder: Path,
    embedding: Tensor,
    *,
    device: torch.device,
    output: Tensor | None = None,
    four_bit: bool = True,
) -> DFlashWeights:
    """Weights ready to run. embedding: (V, H), the target's; output: (V, H), its head where it is another matrix

    Raises UserError for damaged files.
    """
    config, state = read_config(folder), load_state(folder)
    facts, word_ids = config["specdemo"], state["word_ids"]
    embedding = embedding.to(device=device, dtype=torch.bfloat16)
    rows = embedding if output is None else output.to(device=device, dtype=torch.bfloat16)

    def vector(name: str) -> Tensor:
        return state[name].to(device, torch.bfloat16)

    def matrix(*names: str) -> Linear:
        weight = torch.cat([vector(f"{name}.weight") for name in names])
        return pack_linear(weight, four_bit=four_bit)

    return DFlashWeights(
        config=CompactConfig.of(config),
        layers=tuple(
            LlamaLayer.read(f"layers.{index}.", matrix, vector, normed=True)
            for index in range(config["num_hidden_layers"])
        ),
        norm=vector("norm.weight"),
        embedding=embedding,
        head=pack_linear(rows[word_ids.to(device)], four_bit=four_bit),
        words=ReducedVocabulary(word_ids, len(embedding)),
        reads=tuple(facts["reads"]),
        mix=matrix("fc"),
        mix_norm=vector("hidden_norm.weight"),
        rows=int(facts["depth"]) + 1,
        mask=int(facts["mask"]),
        causal=bool(facts["causal"]),
    )
