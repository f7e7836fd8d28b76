"""The one list of families of published drafters, and how one of them is found for a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import JsonView
from specdemo.files.folder import TOKENIZERS, read_config
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import ModelFiles
from specdemo.models.networks.layouts import dflash, eagle3
from specdemo.models.networks.layouts.family import (
    DrafterFiles,
    Reading,
    TargetFacts,
    drafter_files,
)
from specdemo.models.tokenizers import load_tokenizer, same_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Reader = Callable[[DrafterFiles, TargetFacts], Reading]
"""Checks config and weights of a drafter against a target. Raises UserError before any network is made."""

DRAFTER_FAMILIES: dict[str, Reader] = {
    "EAGLE-3": eagle3.read,
    "DFlash": dflash.read,
    "JetSpec": dflash.read,
    "DFlash 2": dflash.read,
    "DSpark": dflash.read,
}
DFLASH_VARIANTS = {"dflash": "DFlash", "dflash2": "DFlash 2", "dspark": "DSpark"}


def family_of(config: JsonView) -> str:
    """Return the family that a drafter's config is of, by its name in `DRAFTER_FAMILIES`; "" for none."""
    if eagle3.takes(config):
        return "EAGLE-3"
    variant = dflash.variant_of(config)
    if variant == "dflash" and dflash.is_causal(config):
        return "JetSpec"
    return DFLASH_VARIANTS.get(variant, "")


def find_published(
    name: str,
    target: ModelFiles,
    tokenizer: PreTrainedTokenizerBase,
    cache_dir: Path,
    progress: ProgressCallback = silent,
) -> Reading | None:
    """Return the drafter of a name, checked against a target whose weights need not be there; None for the name "none".

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
        family = family_of(files.config)
        reading = DRAFTER_FAMILIES[family](files, target_facts(target)) if family else None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise files.wrong(Phrase("drafter.config_shape")) from error
    if reading is None:
        kind = ", ".join(map(str, files.config.get("architectures") or ["unknown"]))
        raise UserError(
            "drafter.unknown_family",
            drafter=files.name,
            kind=kind,
            families=", ".join(DRAFTER_FAMILIES),
        )
    _check_tokenizer(files, target, tokenizer)
    licence = files.licence or "its card names none"
    title = f"drafter {files.name} ({family}, licence: {licence})"
    progress(Progress("load", None, title))
    return reading


def target_facts(files: ModelFiles) -> TargetFacts:
    """Return the sizes in a target's config.json."""
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
    own = load_tokenizer(ModelFiles(files.folder, files.name, files.revision))
    if not same_tokenizer(own, tokenizer):
        reason = Phrase("drafter.tokenizer")
        raise UserError(
            "drafter.not_for_target", drafter=files.name, target=target.name, reason=reason
        )
