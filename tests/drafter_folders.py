"""Folders of published drafters, opened in float32 for a tiny target of eight layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from specdemo.engine.target import Features
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts.families import DRAFTER_FAMILIES, family_of
from specdemo.models.networks.layouts.family import TargetFacts, drafter_files

HIDDEN, VOCABULARY, LAYERS = 32, 64, 8
TARGET = TargetFacts("tiny", HIDDEN, VOCABULARY, LAYERS)
TEXT = [5, 17, 9, 40, 2, 61, 33]
EMBEDDING, HEAD = torch.randn(2, VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(9))
CPU = torch.device("cpu")


def reading_of(folder: Path, target: TargetFacts = TARGET, *, weights: bool = True):
    """Read the config of a folder by the reader of its family. weights: False deletes the weights first"""
    files = drafter_files(str(folder), folder / "cache")
    if not weights:
        (folder / "model.safetensors").unlink()
    return DRAFTER_FAMILIES[family_of(files.config)](files, target)


def network_of(folder: Path):
    return reading_of(folder).load(TargetTensors(EMBEDDING, CPU, torch.float32, False, HEAD))


def states_of(model, tokens: int) -> torch.Tensor:
    """(tokens, reads x H) hidden states of the target."""
    generator = torch.Generator().manual_seed(4)
    return 3 * torch.randn(tokens, len(model.reads) * HIDDEN, generator=generator)


def know(features: Features, states: torch.Tensor, begin: int, end: int) -> None:
    """The target has read tokens."""
    features.rollback(begin)
    features.write(begin, states[begin:end])
    features.gather(range(end - begin))


def kept(reads: Sequence[int], states: torch.Tensor) -> Features:
    """Return the features of a target that has read one token for each row of states, (tokens, reads x H)."""
    features = Features(reads)
    know(features, states, 0, len(states))
    return features


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-4, rtol=2e-4)
