"""Medusa (Cai 2401.10774) as its authors write it: `{head}.{block}.linear`, and a matrix over all words for each head.

The weights are a pickle, which is read as tensors alone and converted once, see `source`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.networks.four_bit import Linear
from specdemo.models.networks.layouts.family import (
    Family,
    Lent,
    Loader,
    Reading,
    TargetFacts,
    check_layers,
    check_sizes,
    check_tensors,
)
from specdemo.models.networks.layouts.source import DrafterFiles
from specdemo.models.networks.medusa import MedusaWeights


def takes(config: Mapping[str, Any]) -> bool:
    """Whether a config is of this family."""
    return "medusa_num_heads" in config


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check heads against the target. Raises UserError. There are as many as the file has: configs name fewer or more."""
    blocks = files.number(files.config, "medusa_num_layers", 1)
    heads = len([name for name in files.shapes if name.endswith(f".{blocks}.weight")])
    shape = files.shapes.get(f"0.{blocks}.weight", ())
    if len(shape) != 2:
        raise files.wrong(f"it has no matrix 0.{blocks}.weight of words")
    vocabulary, hidden = shape
    check_sizes(files, target, hidden=hidden, vocabulary=vocabulary)
    reads = (target.layers,)
    check_layers(files, target, reads)
    needed: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        needed[f"{head}.{blocks}.weight"] = (vocabulary, hidden)
        for block in range(blocks):
            needed[f"{head}.{block}.linear.weight"] = (hidden, hidden)
            needed[f"{head}.{block}.linear.bias"] = (hidden,)
    check_tensors(files, needed, {})
    return Reading(("medusa",), reads, False, lambda lent: load(files, heads, blocks, reads, lent))


def load(
    files: DrafterFiles, heads: int, blocks: int, reads: tuple[int, ...], lent: Lent
) -> MedusaWeights:
    """What runs."""
    loader, vocabulary = Loader(files, lent), files.shapes[f"0.{blocks}.weight"][0]

    def block(name: str) -> tuple[Linear, torch.Tensor]:
        return loader.matrix(name, biased=False), loader.vector(f"{name}.bias")

    return MedusaWeights(
        blocks=tuple(
            tuple(block(f"{head}.{number}.linear") for number in range(blocks))
            for head in range(heads)
        ),
        heads=tuple(loader.matrix(f"{head}.{blocks}") for head in range(heads)),
        words=ReducedVocabulary(torch.arange(vocabulary), vocabulary),
        reads=reads,
    )


MEDUSA = Family("Medusa", takes, read)
