"""Read the configuration of a GGUF file's model, complete the values that transformers ignores, and refuse unsupported files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specdemo.config.errors import UserError
from specdemo.files.families import check_rollback

FREQUENCIES = "rope_freqs.weight"  # divisors of rotary frequencies, as Llama 3 has them
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
STRETCHED = ("linear", "yarn")  # other methods of position scaling that a file may name
LARGEST = {"gemma2": 46, "gemma3": 62}  # layers of the 27B, which scales queries by width
# Names of values that transformers leaves at their default, by family; "" for all families.
NAMES = {
    "": {
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    "gpt2": {"context_length": "n_positions", "feed_forward_length": "n_inner"},
    "gpt-oss": {"attention.key_length": "head_dim", "attention.sliding_window": "sliding_window"},
    "phi3": {"attention.sliding_window": "sliding_window"},
    "qwen3": {"attention.key_length": "head_dim"},
    "qwen3moe": {"expert_feed_forward_length": "moe_intermediate_size"},
}
# Families without a reader in transformers, and a family whose files have the same form. SmolLM3's do not contain that every
# fourth layer has no positions; llama.cpp assumes it, and it is the configuration's default.
READ_AS = {"smollm3": "llama"}


class Unread(Exception):
    """A file describes its model by a value that no reader here supports."""


def config_of(gguf: Path) -> Any:
    """Return the transformers configuration of a GGUF file's model.

    Raises UserError for a model without rollback, one that is not a causal language model, and a file with a part that would
    stay unread: its model would load and compute other logits.
    """
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.integrations.gguf.reader import read_gguf_metadata

    _tell_transformers()
    said, names = read_gguf_metadata(str(gguf))
    config = AutoConfig.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, trust_remote_code=False, local_files_only=True
    )
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UserError("model.not_causal", name=gguf.name, kind=config.model_type)
    check_rollback(config)
    kind = str(said["general.architecture"])
    own = {key.removeprefix(f"{kind}."): value for key, value in said.items()}
    try:
        _complete(config, kind, own)
        if FREQUENCIES in names:
            _stretch_as_llama3(config, _vector(gguf, FREQUENCIES))
        _check_tensors(config, kind, names)
    except Unread as reason:
        raise UserError("model.gguf_ambiguous", name=gguf.name, reason=reason) from None
    return config


def _tell_transformers() -> None:
    """Register a reader for each family that transformers has none for."""
    from transformers import modeling_gguf_pytorch_utils as reading

    tables: dict[str, Any] = reading.GGUF_TO_TRANSFORMERS_MAPPING
    configs, processors = tables["config"], reading.TENSOR_PROCESSORS
    for kind, like in READ_AS.items():
        if kind not in reading.GGUF_SUPPORTED_ARCHITECTURES:
            reading.GGUF_SUPPORTED_ARCHITECTURES.append(kind)
            configs[kind], processors[kind] = configs[like], processors[like]


def _complete(config: Any, kind: str, own: Mapping[str, Any]) -> None:
    """Set the values that transformers does not read. own: the file's values, without the prefix of their family"""
    for key, name in (NAMES[""] | NAMES.get(kind, {})).items():
        if key in own and hasattr(config, name):
            setattr(config, name, own[key] or None)
    if LARGEST.get(kind) == config.num_hidden_layers:
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotated = own.get("rope.dimension_count", head)
    if rotated != head:
        _rope(config)["partial_rotary_factor"] = rotated / head
    way = own.get("rope.scaling.type", "none")
    if way in STRETCHED:
        rope = _rope(config)
        rope.update(rope_type=way, factor=own["rope.scaling.factor"])
        if way == "yarn":
            rope["original_max_position_embeddings"] = own["rope.scaling.original_context_length"]
    elif way != "none":
        raise Unread(f"positions stretched in another way ({way})")


def _rope(config: Any) -> dict[str, Any]:
    """Return the position parameters of layers that attend over the whole text."""
    rope: dict[str, Any] = config.rope_parameters
    everywhere: dict[str, Any] = rope.get("full_attention", rope)
    return everywhere


def _stretch_as_llama3(config: Any, divisors: np.ndarray[Any, Any]) -> None:
    """Set Llama 3's position scaling, which a file stores only as the resulting divisors. divisors: (head_dim / 2,) float32"""
    rope = _rope(config)
    factor = float(divisors.max())
    waves = 2 * math.pi * rope["rope_theta"] ** (np.arange(len(divisors)) / len(divisors))
    turns = LLAMA3["original_max_position_embeddings"] / waves
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if not np.allclose(divisors, 1 / ((1 - share) / factor + share), rtol=1e-3):
        raise Unread("frequencies of positions that are not Llama 3's")
    rope.update(LLAMA3, rope_type="llama3", factor=factor)


def _vector(gguf: Path, name: str) -> np.ndarray[Any, Any]:
    from gguf import GGUFReader

    found = next(tensor for tensor in GGUFReader(gguf).tensors if tensor.name == name)
    return np.array(found.data, np.float32)


def _check_tensors(config: Any, kind: str, names: tuple[str, ...]) -> None:
    """Raise Unread unless the tensors of the file and of the model correspond one to one."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    places = _places(model.state_dict(), kind, config.num_hidden_layers)
    # Stacked experts have no suffix.
    stored = {name if name in places else name.removesuffix(".weight") for name in names}
    if unknown := sorted(stored - places.keys() - {FREQUENCIES.removesuffix(".weight")}):
        raise Unread(f"{_few(unknown)} has no place in it")
    given = {places[name] for name in stored if name in places}
    if missing := sorted({*places.values()} - given - {*model.all_tied_weights_keys}):
        raise Unread(f"{_few(missing)} is not in it")


def _places(own: Iterable[str], kind: str, layers: int) -> dict[str, str]:
    """Map the file's names of tensors to the model's."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
    from transformers import modeling_gguf_pytorch_utils as reading

    architecture = next(key for key, value in MODEL_ARCH_NAMES.items() if value == kind)
    known = get_tensor_name_map(architecture, layers)
    # Experts have their own names, several of which may be one tensor of the model.
    processors: dict[str, Any] = reading.TENSOR_PROCESSORS
    processor = processors.get(kind, reading.TensorProcessor)(config={})
    places: dict[str, str] = {}
    for full in own:
        name = processor.preprocess_name(full)
        suffix = next((end for end in (".weight", ".bias") if name.endswith(end)), "")
        stem = name.removesuffix(suffix)
        if found := known.get_name(stem) or known.get_name(stem.partition(".")[2]):
            places[found + suffix] = full
        else:
            processor.perform_fallback_tensor_mapping(places, "", "", name)
    return places


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
