"""DSpark (DeepSeek-AI and Peking University, 2026) as DeepSpec, SpecForge and speculators write it.

The layers are DFlash's, see `dflash`. A Markov head adds what the token before a place says of it, and a confidence
head says how likely a guess is kept. The anchor's row guesses too: a block of seven rows guesses seven places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specdemo.models.networks.dflash import DFlashDecoder, DFlashWeights
from specdemo.models.networks.layouts import dflash
from specdemo.models.networks.layouts.dflash import DFlashConfig
from specdemo.models.networks.layouts.family import (
    Family,
    Reading,
    TargetFacts,
    check_tensors,
    loader_of,
)
from specdemo.models.networks.layouts.source import DrafterFiles
from specdemo.models.networks.loader import TargetTensors
from specdemo.models.networks.parts import MarkovHead

KNOWN = dflash.KNOWN | {
    "confidence_head_alpha", "confidence_head_with_markov", "enable_confidence_head", "markov_head_type", "markov_rank",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Heads:
    """What a config says of them. rank: of the Markov head, 0 for none; sure: inputs of the confidence head, 0 for none"""

    rank: int
    sure: int


def takes(config: Mapping[str, Any]) -> bool:
    """Whether a config is of this family."""
    return dflash.takes(config, "dspark")


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = dflash.read_config(files, target, corrector="dspark", known=KNOWN, anchored=True)
    dflash.check_target(files, target, config)
    heads = _heads(files, config)
    needed, optional = dflash.shapes(files, config)
    if heads.rank:
        needed["markov_head.markov_w1.weight"] = (config.vocabulary, heads.rank)
        needed["markov_head.markov_w2.weight"] = (config.words, heads.rank)
    if heads.sure:
        needed["confidence_head.proj.weight"] = (1, heads.sure)
        needed["confidence_head.proj.bias"] = (1,)
    check_tensors(files, needed, optional)
    kinds = ("block",) if heads.rank else ("block", "jet")
    return Reading(
        kinds, config.reads, False, lambda shared: DFlashDecoder(load(files, config, heads, shared))
    )


def load(
    files: DrafterFiles, config: DFlashConfig, heads: Heads, shared: TargetTensors
) -> DFlashWeights:
    """What runs. Raises UserError for words that are not the target's."""
    weights, loader = dflash.load(files, config, shared), loader_of(files, shared)
    if not heads.rank:
        return weights
    confidence: Tensor | None = None
    constant = 0.0
    if heads.sure:
        constant = float(loader.vector("confidence_head.proj.bias"))
        confidence = torch.zeros(config.layers.hidden_size + heads.rank, device=shared.device)
        confidence[: heads.sure] = loader.vector("confidence_head.proj.weight")[0]
    markov = MarkovHead(
        token=loader.vector("markov_head.markov_w1.weight"),
        bias=loader.wide(loader.vector("markov_head.markov_w2.weight")),
        confidence=confidence,
        constant=constant,
        temperatures=(1.0,) * weights.depth,
        by_token=True,
    )
    return replace(weights, markov=markov)


def _heads(files: DrafterFiles, config: DFlashConfig) -> Heads:
    """The heads. Raises UserError for those that are not computed here."""
    said = dflash.facts_of(files.config)
    rank = said.get("markov_rank", 0)
    if type(rank) is not int or rank < 0:
        raise files.wrong("its markov_rank is no number")
    kind = said.get("markov_head_type") or "vanilla"
    if rank and kind != "vanilla":
        raise files.wrong(f"its Markov head is {kind}, which is not read yet")
    if not said.get("enable_confidence_head", False):
        return Heads(rank, 0)
    if not rank:
        raise files.wrong("it has a confidence head and no Markov head, which is not read yet")
    with_markov = said.get("confidence_head_with_markov", False)
    return Heads(rank, config.layers.hidden_size + (rank if with_markov else 0))


DSPARK = Family("DSpark", takes, read)
