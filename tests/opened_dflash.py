"""Drafters of the DFlash kind from their folders, after a text that a target has read."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_dflash import DFlash

from specdemo.engine.target import Features
from specdemo.models.networks.dflash import DFlashDecoder, DFlashModel
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts.families import DRAFTER_FAMILIES
from specdemo.models.networks.layouts.family import TargetFacts, drafter_files

HIDDEN, VOCABULARY, LAYERS = 32, 64, 8
TARGET = TargetFacts("tiny", HIDDEN, VOCABULARY, LAYERS)
TEXT = [5, 17, 9, 40, 2, 61, 33]
EMBEDDING, HEAD = torch.randn(2, VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(9))
SECOND = {"taps": 2, "chosen": 6, "window": 4}


def states_of(model: DFlash, tokens: int) -> torch.Tensor:
    """(tokens, reads x H) hidden states of the target."""
    generator = torch.Generator().manual_seed(4)
    return 3 * torch.randn(tokens, len(model.reads) * HIDDEN, generator=generator)


def decoder(folder: Path) -> DFlashDecoder:
    """Open a drafter folder in float32."""
    files = drafter_files(str(folder), folder / "cache")
    (family,) = [one for one in DRAFTER_FAMILIES if one.takes(files.config)]
    reading = family.read(files, TARGET)
    found = reading.load(TargetTensors(EMBEDDING, torch.device("cpu"), torch.float32, False, HEAD))
    assert reading.kinds == (("block",) if found.weights.markov else ("block", "jet"))
    assert isinstance(found, DFlashDecoder)
    return found


def opened(folder: Path) -> DFlashModel:
    """A conversation whose target has read nothing."""
    found = decoder(folder)
    return DFlashModel(found, Features(found.weights.reads))


def know(drafter: DFlashModel, states: torch.Tensor, begin: int, end: int) -> None:
    """The target has read tokens."""
    drafter.features.rollback(begin)
    drafter.features.write(begin, list(states[begin:end].split(HIDDEN, dim=-1)))
    drafter.features.gather(range(end - begin))


def guessed(drafter: DFlashModel, states: torch.Tensor) -> torch.Tensor:
    """Draft after the whole text, read in one pass."""
    know(drafter, states, 0, len(TEXT) - 1)
    return drafter.guess(TEXT)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-4, rtol=2e-4)
