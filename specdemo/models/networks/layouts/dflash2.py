"""DFlash 2 (Inco and Z Lab, 2026) as its authors, SpecForge and speculators write it.

The layers are DFlash's, see `dflash`. Convolutions along the block stand around attention and gates of each layer,
and a selector chooses among the likeliest words of a place by the word before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdemo.models.networks.dflash import Convolution, DFlashDecoder, DFlashWeights
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
from specdemo.models.networks.parts import Selector

KNOWN = dflash.KNOWN | {
    "conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k",
}  # fmt: skip
PARTS = ("attention_conv", "mlp_conv")
CODEBOOKS = ("predecessor_codebook", "successor_codebook")


@dataclass(frozen=True, slots=True)
class Added:
    """What a config says of them. taps: rows that a kernel reads; group: numbers of a row that share one

    rank: of the selector; most: words that it chooses from
    """

    taps: int
    group: int
    rank: int
    most: int


def takes(config: Mapping[str, Any]) -> bool:
    """Whether a config is of this family."""
    return dflash.takes(config, "dflash2")


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = dflash.read_config(files, target, corrector="dflash2", known=KNOWN)
    added = _added(files, config)
    dflash.check_target(files, target, config)
    needed, optional = dflash.shapes(files, config)
    hidden = config.layers.hidden_size
    for layer in range(config.count):
        for part in PARTS:
            begin = f"layers.{layer}.{part}."
            needed[f"{begin}base_kernel"] = (2, added.taps, hidden)
            rows = 2 * added.taps * hidden // added.group
            needed[f"{begin}kernel_projection.weight"] = (rows, hidden)
    needed["candidate_selector.hidden_projection.weight"] = (added.rank, hidden)
    for name in CODEBOOKS:
        needed[f"candidate_selector.{name}"] = (config.vocabulary, added.rank)
    check_tensors(files, needed, optional)
    return Reading(
        ("block",),
        config.reads,
        False,
        lambda shared: DFlashDecoder(load(files, config, added, shared)),
    )


def load(
    files: DrafterFiles, config: DFlashConfig, added: Added, shared: TargetTensors
) -> DFlashWeights:
    """What runs."""
    loader = loader_of(files, shared)

    def convolution(name: str) -> Convolution:
        base = loader.vector(f"{name}.base_kernel")
        return Convolution(base, loader.matrix(f"{name}.kernel_projection"))

    before, after = (loader.vector(f"candidate_selector.{name}") for name in CODEBOOKS)
    project = loader.matrix("candidate_selector.hidden_projection")
    return replace(
        dflash.load(files, config, shared),
        markov=Selector(before, after, project, added.most),
        convolutions=tuple(
            (
                convolution(f"layers.{layer}.attention_conv"),
                convolution(f"layers.{layer}.mlp_conv"),
            )
            for layer in range(config.count)
        ),
    )


def _added(files: DrafterFiles, config: DFlashConfig) -> Added:
    """Their sizes. Raises UserError for those that fit no block."""
    said = dflash.facts_of(files.config)
    added = Added(
        files.number(said, "conv_kernel_size"),
        files.number(said, "conv_group_size"),
        files.number(said, "selector_rank"),
        files.number(said, "selector_top_k"),
    )
    if config.layers.hidden_size % added.group:
        raise files.wrong(f"its rows do not divide into groups of {added.group}")
    if config.anchored or config.words != config.vocabulary or added.most > config.vocabulary:
        raise files.wrong("its selector speaks another vocabulary, or from the anchor")
    return added


DFLASH2 = Family("DFlash 2", takes, read)
