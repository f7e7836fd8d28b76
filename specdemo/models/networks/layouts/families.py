"""The one list of families of published drafters, and how one of them is found for a target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import JsonView
from specdemo.files.folder import TOKENIZERS, read_config
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import ModelFiles
from specdemo.models.devices import BYTES_PER_WEIGHT
from specdemo.models.loading import check_room
from specdemo.models.networks.folders import TargetTensors
from specdemo.models.networks.layouts import dflash, eagle3
from specdemo.models.networks.layouts.family import (
    DrafterFamily,
    DrafterFiles,
    Reading,
    TargetFacts,
    drafter_files,
)
from specdemo.models.networks.registry import Trained
from specdemo.models.tokenizers import load_tokenizer, same_tokenizer
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdemo.models.loading import LoadedModel

DRAFTER_FAMILIES: tuple[DrafterFamily, ...] = (eagle3.EAGLE3, *dflash.BLOCK_FAMILIES)


@dataclass(frozen=True, slots=True)
class PublishedDrafter:
    """A published drafter that suits a target, its weights unread."""

    files: DrafterFiles
    family: DrafterFamily
    reading: Reading

    @property
    def title(self) -> str:
        """Name, family and licence, for people."""
        licence = self.files.licence or "its card names none"
        return f"{self.files.name} ({self.family.title}, licence: {licence})"

    def trained(self, target: LoadedModel) -> Trained:
        """The drafter of a loaded target; its weights are read at first use."""
        four_bit = target.info.precision in ("nf4", "file") and target.device.type == "cpu"
        whole = target.info.precision == "fp32"
        precision = "int4" if four_bit else "fp32" if whole else "bf16"
        dtype = torch.float32 if whole else torch.bfloat16
        shared = TargetTensors.of(target, dtype, four_bit=four_bit)
        parameters = sum(torch.Size(shape).numel() for shape in self.files.shapes.values())
        needed = int(parameters * BYTES_PER_WEIGHT[precision])
        check_room(self.files.name, precision, needed, target.device)
        info = ModelInfo(self.files.name, self.files.revision, precision, "", parameters)
        load = partial(self.reading.load, shared)
        return Trained(self.reading.reads, info, self.reading.alone, load)


def find_published(
    name: str,
    target: ModelFiles,
    tokenizer: PreTrainedTokenizerBase,
    cache_dir: Path,
    progress: ProgressCallback = silent,
) -> PublishedDrafter | None:
    """The drafter that is named, checked against a target whose weights need not be there. None for "none".

    name: a folder, or a hub id, with `@` and a revision where it is not the catalogue's
    Raises UserError for one that cannot be had or read, and for one of another target.
    """
    if name in ("", "none"):
        return None
    files = drafter_files(name, cache_dir, progress)
    for part in (files.config, files.part(files.config, "transformer_layer_config")):
        for key in ("architectures", "layer_types"):
            if not isinstance(part.get(key) or [], list):
                raise files.refused(key, part[key], Phrase("drafter.list"))
    try:
        family = next((one for one in DRAFTER_FAMILIES if one.takes(files.config)), None)
        reading = family.read(files, target_facts(target)) if family else None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise files.wrong(Phrase("drafter.config_shape")) from error
    if family is None or reading is None:
        kind = ", ".join(map(str, files.config.get("architectures") or ["unknown"]))
        raise UserError(
            "drafter.unknown_family",
            drafter=files.name,
            kind=kind,
            families=", ".join(one.title for one in DRAFTER_FAMILIES),
        )
    found = PublishedDrafter(files, family, reading)
    _check_tokenizer(files, target, tokenizer)
    progress(Progress("load", None, f"drafter {found.title}"))
    return found


def target_facts(files: ModelFiles) -> TargetFacts:
    """A target's sizes, from its config.json."""
    config: JsonView = read_config(files.folder, files.name)
    config = config.get("text_config") or config
    return TargetFacts(
        files.name,
        int(config.get("hidden_size", 0)),
        int(config.get("vocab_size", 0)),
        int(config.get("num_hidden_layers", 0)),
        int(config.get("max_position_embeddings") or 2048),
    )


def _check_tokenizer(
    files: DrafterFiles, target: ModelFiles, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse a drafter that comes with another tokenizer than the target's."""
    if not any((files.folder / name).is_file() for name in TOKENIZERS):
        return
    own = load_tokenizer(ModelFiles(files.folder, files.name, files.revision, "folder"))
    if not same_tokenizer(own, tokenizer):
        reason = Phrase("drafter.tokenizer")
        raise UserError(
            "drafter.not_for_target", drafter=files.name, target=target.name, reason=reason
        )
