"""Published drafters of a tiny target, read from folders as those of the hub are."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tiny_dflash
import torch
from drafter_folders import CPU, reading_of
from tiny_eagle3 import make, write_flat, write_speculators
from tiny_trained import HIDDEN, READS

from specdemo.engine.target import FeatureReader, Features
from specdemo.models.networks.chain import CompactModel
from specdemo.models.networks.dflash import DFlashDecoder, DFlashModel
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts.family import TargetFacts


def _write(name: str, folder: Path, words: int) -> Path:
    facts: dict[str, Any] = {"vocabulary": words, "words": max(2, 3 * words // 4), "reads": READS}
    if name == "speculators":
        return write_speculators(folder, make(normed_residual=True, qwen=True, **facts))
    if name == "SpecForge":
        return write_flat(folder, make(fc_norm=True, norm_output=True, **facts))
    if name == "SafeAILab":
        return write_flat(folder, make(**facts))
    if name == "JetSpec":
        model = tiny_dflash.make(**facts | {"words": words}, mask=words - 1, causal=True)
        return tiny_dflash.write_flat(folder, model, num_target_layers=2)
    if name == "DSpark":
        model = tiny_dflash.make(
            **facts | {"words": words}, mask=words - 1, anchored=True, rank=4, confident=True
        )
        return tiny_dflash.write_dspark(folder, model, num_target_layers=2)
    if name == "DFlash 2":
        sizes = {"taps": 2, "chosen": 4, "most": min(8, words), "window": 6}
        model = tiny_dflash.make(**facts | {"words": words}, mask=words - 1, **sizes)
        return tiny_dflash.write_flat(folder, model, num_target_layers=2)
    model = tiny_dflash.make(**facts, mask=words - 1)
    return tiny_dflash.write_speculators(folder, model)


@cache
def network(name: str, words: int) -> Any:
    """Return the decoder of a drafter for a target of two layers with so many tokens."""
    folder = Path(tempfile.mkdtemp(prefix="specdemo-published-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = TargetFacts("tiny", HIDDEN, words, 2)
    reading = reading_of(_write(name, folder / "it", words), target)
    embedding = torch.randn(words, HIDDEN, generator=torch.Generator().manual_seed(2))
    return reading.load(TargetTensors(embedding, CPU, torch.float32, four_bit=False))


def published(name: str) -> Callable[[int, Features], dict[str, Callable[[], Any]]]:
    """Makes openers by kind, for `drafter_for`."""

    def openers(words: int, features: Features) -> dict[str, Callable[[], Any]]:
        found = network(name, words)
        if isinstance(found, DFlashDecoder):
            block = FeatureReader(DFlashModel(found, features))
            return dict.fromkeys(("block", "jet"), lambda: block)
        reader = FeatureReader(CompactModel(found, features))
        return {"feature": lambda: reader}

    return openers
