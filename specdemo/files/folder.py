"""Check that a model folder in Hugging Face layout is complete and supported."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
GGUF_BLOCKS = "gguf-blocks"  # our own, see `files.blocks`
QUANTISED_BY = (
    "",
    "bitsandbytes",
    GGUF_BLOCKS,
)  # supported by the loader; other methods need their own libraries
SENTENCEPIECE = "tokenizer.model"  # read by the package sentencepiece, an optional one
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", SENTENCEPIECE)
GGUF_PART = re.compile(r"-\d{5}(-of-\d{5}\.gguf)$", re.I)
MTP_COUNTS = ("num_nextn_predict_layers", "num_mtp_layers")  # keys of config.json
UNREAD_CODES = {
    "missing_keys": "model.missing_tensors",
    "mismatched_keys": "model.misfit_tensors",
    "unexpected_keys": "model.unread_tensors",
}
MOST_NAMED = 3  # files or tensors in a message
NOT_QUANTISED = ("embed", "lm_head", ".experts.")  # parts of names of matrices
KEPT = {"full_attention", "sliding_attention"}  # layers that store all keys and values
ADAPTER = "adapter_config.json"
LFS_POINTER = b"version https://git-lfs.github.com/"


ModelConfig: TypeAlias = Any
"""A configuration of transformers, whose attributes depend on the model's family."""


@dataclass(frozen=True, slots=True)
class LayerForm:
    """How the layers of a family are built, as far as the model's config.json and its tensors do not tell it.

    norms: modules before and after attention, before and after the MLP; "" for none
    offset: added to the weights of all norms
    qkv, gate_up: modules of the matrices that read the same input
    embedding, residual, logits: factor of what they name, as an attribute of the config and its power; none is 1
    """

    norms: Sequence[str] = ("input_layernorm", "", "post_attention_layernorm", "")
    offset: float = 0.0
    qkv: Sequence[str] = ("q_proj", "k_proj", "v_proj")
    gate_up: Sequence[str] = ("gate_proj", "up_proj")
    embedding: tuple[str, float] | None = None
    residual: tuple[str, float] | None = None
    logits: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Facts about a model family that its config.json does not contain: a row of `families.json`.

    name: transformers' `model_type`; gguf: the architecture that GGUF files name
    attention: for opening it, before ours replaces it; "own" for one that cannot be replaced
    windows: whether transformers passes sliding windows to the attention
    header: keys of the GGUF header, and attributes that transformers leaves at their default
    read_as: family whose GGUF files have the same form, if transformers has no reader for this one
    packs: whether tensors of its GGUF files differ from transformers' only by name, order, and the offset of norms
    permuted: whether llama.cpp reorders the rows of queries and keys
    largest: layers of the model that scales queries by its width
    layer: the form of its layers; None where only transformers' own pass computes them
    """

    name: str
    gguf: str
    attention: str = "sdpa"
    windows: bool = True
    header: Mapping[str, str] = field(default_factory=dict)
    read_as: str = ""
    packs: bool = False
    permuted: bool = False
    largest: int = 0
    layer: LayerForm | None = None

    @classmethod
    def read(cls, row: Json) -> Family:
        """Return the family of a row of `families.json`."""
        layer = LayerForm(**row["layer"]) if "layer" in row else None
        return cls(**{"gguf": row["name"], **row, "layer": layer})


FAMILIES = [
    Family.read(row)
    for row in json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
]


def find_family(*, model_type: str = "", gguf: str = "") -> Family:
    """Return the row of a family; default values for a family without a row."""
    found = (one for one in FAMILIES if model_type == one.name or gguf == one.gguf)
    return next(found, Family(model_type, gguf))


def read_config(folder: Path, name: str) -> Json:
    """Return the content of the model's config.json. Raises UserError."""
    path = folder / "config.json"
    if not path.is_file():
        raise _other_folder(folder, name)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError("model.damaged_config", name=name) from None
    if not isinstance(config, dict):
        raise UserError("model.damaged_config", name=name)
    return config


def trained_facts(folder: Path) -> JsonView:
    """Return the facts that `train` wrote about a drafter into its config.json, including its card; empty for other folders."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))["specdemo"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _other_folder(folder: Path, name: str) -> UserError:
    """Return the error for a folder without config.json. It names an adapter or GGUF files that are there."""
    if (folder / ADAPTER).is_file():
        return UserError("model.adapter", name=name, base=_base_of_adapter(folder))
    if ggufs := sorted(path for path in folder.glob("*.gguf") if path.is_file()):
        largest = max(ggufs, key=lambda path: path.stat().st_size)  # others may encode images
        if GGUF_PART.search(largest.name):
            return UserError("model.gguf_parts", name=name, first=first_part(largest.name))
        return UserError("model.gguf_folder", name=name, path=largest)
    return UserError("model.no_config", name=name)


def first_part(name: str) -> str:
    """Return the name of the first part of a GGUF file that was split, where merging starts; other names unchanged."""
    return GGUF_PART.sub(r"-00001\1", name)


def _base_of_adapter(folder: Path) -> str:
    """Return the model that an adapter changes, as its own file names it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
        return str(said["base_model_name_or_path"])
    return "its base model"


def check_causal_lm(config: Json, name: str) -> None:
    """Refuse other models than causal language models, models that need their repository's code, and models without rollback."""
    from transformers import AutoConfig  # noqa: F401 - fills the tables of known architectures
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    architectures = config.get("architectures") or []
    if not any("ForCausalLM" in str(kind) or "LMHead" in str(kind) for kind in architectures):
        kind = ", ".join(map(str, architectures)) or str(config.get("model_type", "unknown"))
        raise UserError("model.not_causal", name=name, kind=kind)
    if config.get("model_type") not in CONFIG_MAPPING:
        raise UserError("model.unknown_kind", name=name, kind=config.get("model_type"))
    if (method := quantised_by(config)) not in QUANTISED_BY:
        raise UserError("model.quantised", name=name, method=method)
    if find_family(model_type=config["model_type"]).attention == "own":
        raise UserError("model.own_attention", name=name, kind=config["model_type"])
    # The loader reports values that do not fit.
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        check_rollback(CONFIG_MAPPING[config["model_type"]].from_dict(config))


def check_rollback(config: ModelConfig) -> None:
    """Raise UserError for a transformers model whose memory cannot be rolled back token by token."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    names = ", ".join(kind.replace("_", " ") for kind in sorted(kinds - KEPT))
    if not kinds and getattr(text, "num_attention_heads", None) is None:
        names = "recurrent states"
    windows = getattr(text, "sliding_window", None)
    if not names and windows and not find_family(model_type=text.model_type).windows:
        names = "sliding windows of its own"
    if names or getattr(text, "num_hidden_layers", None) is None:
        raise UserError("model.no_rollback", kind=config.model_type, layers=names or "unknown")


def quantised_by(config: Json) -> str:
    """Return the quantisation method of a model; "" for unquantised weights."""
    quantised = config.get("quantization_config")
    return str(quantised.get("quant_method", "")) if isinstance(quantised, dict) else ""


def weight_files(folder: Path, name: str) -> list[Path]:
    """Return the safetensors files that make up a model, as transformers chooses them. Raises UserError.

    A whole file comes before an index of parts, which may be left over from another save. Other files are not the model's:
    they may be another save, or a part of one. Pickled weights are refused.
    """
    if os.path.lexists(folder / WHOLE):  # a link that leads nowhere is a missing file
        return [folder / WHOLE]
    if (folder / INDEX).is_file():
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            shards = sorted({str(shard) for shard in index["weight_map"].values()})
            _ = index["metadata"]  # transformers reads it
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError("model.damaged_index", name=name) from None
        return [folder / shard for shard in shards]
    if found := sorted(path.name for path in folder.glob("*.safetensors")):
        raise UserError("model.other_weights", name=name, files=few(found), index=INDEX)
    if any(next(folder.glob(pattern), None) for pattern in PICKLED):
        raise UserError("model.pickled", name=name)
    raise UserError("model.no_weights", name=name)


def few(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = "" if len(names) <= MOST_NAMED else f" (+{len(names) - MOST_NAMED})"
    return ", ".join(names[:MOST_NAMED]) + more


def check_read(folder: Path, name: str, report: Mapping[str, Collection[object]]) -> None:
    """Raise UserError if transformers' `output_loading_info` reports tensors that the files lack, or that the model does not read.

    Layers for multi-token prediction may be left out: they draft, and are not part of the target.
    """
    config = read_config(folder, name)
    first, count = (
        config.get("num_hidden_layers") or 0,
        max(config.get(key) or 0 for key in MTP_COUNTS),
    )
    drafting = ("mtp.", *(f"model.layers.{first + layer}." for layer in range(count)))
    for kind, code in UNREAD_CODES.items():
        tensors = [str(one[0] if isinstance(one, tuple) else one) for one in report[kind]]
        if found := sorted(one for one in tensors if not one.startswith(drafting)):
            raise UserError(code, name=name, tensors=few(found))


def safetensors_table(path: Path) -> Json:
    """Return the table of tensors of a safetensors file. The file must have passed `broken_files`."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        table: Json = json.loads(stream.read(length))
    table.pop("__metadata__", None)
    return table


def broken_files(paths: list[Path]) -> list[Path]:
    """Return the weight files that are missing, cut short or without a readable header."""
    from safetensors import SafetensorError, safe_open

    broken = []
    for path in paths:
        try:
            with safe_open(path, framework="np"):
                pass
        except (OSError, SafetensorError):
            broken.append(path)
    return broken


def check_fetched(path: Path, name: str) -> None:
    """Raise UserError for the small text that Git leaves in place of a large file without its extension LFS."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise UserError("model.git_lfs", name=name, file=path.name)


def check_folder(folder: Path, name: str) -> None:
    """Raise UserError unless a folder contains a complete causal language model and its tokenizer."""
    if (folder / ADAPTER).is_file() and not any(
        (folder / file).is_file() for file in (WHOLE, INDEX)
    ):
        raise UserError("model.adapter", name=name, base=_base_of_adapter(folder))
    check_causal_lm(read_config(folder, name), name)
    if broken := broken_files(weight_files(folder, name)):
        for path in broken:
            check_fetched(path, name)
        raise UserError(
            "model.incomplete", name=name, files=", ".join(path.name for path in broken)
        )
    found = [file for file in TOKENIZERS if (folder / file).is_file()]
    if not found:
        raise UserError("model.no_tokenizer", name=name)
    if found[0] == SENTENCEPIECE and importlib.util.find_spec("sentencepiece") is None:
        raise UserError("model.sentencepiece", name=name)


def tensors(folder: Path, name: str) -> Iterator[tuple[str, int, bool]]:
    """Yield each stored tensor: name, number of weights, and whether nf4 and int8 quantise it.

    They do not quantise experts, which transformers stacks in tensors of three dimensions.
    """
    tied = bool(read_config(folder, name).get("tie_word_embeddings"))
    for path in weight_files(folder, name):
        stored = safetensors_table(path)
        for key, row in stored.items():
            if (tied and key == "lm_head.weight") or ".weight." in key:
                continue
            blocks = f"{key}.units" in stored  # four weights of 16 or 32 outputs
            packed = blocks or f"{key}.absmax" in stored  # bitsandbytes' own form
            in_byte = 2 if packed and row["shape"][-1] != 128 else 1
            kept = len(row["shape"]) != 2 or any(part in key for part in NOT_QUANTISED)
            yield key, math.prod(row["shape"]) * in_byte, packed or not kept


def count_parameters(folder: Path, name: str) -> int:
    """Return the number of weights of a model; a shared embedding counts once."""
    return sum(count for _, count, _ in tensors(folder, name))
