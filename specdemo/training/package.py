"""The folder of a trained drafter: weights, config.json and its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.models.networks.compact_files import FORMAT, save_compact
from specdemo.training.card import Card, render

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaConfig


def read_llama_config(target_folder: Path, *, alone: bool = False) -> LlamaConfig:
    """The target's config; UserError when a compact draft cannot be cut out of such a model.

    alone: for a feature drafter without a draft model, which also takes targets with a head of their own, and Qwen2
        targets: Llama layers whose queries, keys and values have biases
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(target_folder), trust_remote_code=False)
    why = ""
    if alone and config.model_type == "qwen2":
        config = _as_llama(config)
    if config.model_type != "llama":
        why = f"its architecture is {config.model_type}, and drafts are cut out of Llama models"
    elif not config.tie_word_embeddings and not alone:
        why = "its output head is not its embedding, which the draft would share"
    elif config.rope_parameters.get("rope_type", "default") != "default":
        why = "it stretches its positions, which the draft's runtime does not do"
    elif (config.attention_bias and not alone) or config.mlp_bias or config.hidden_act != "silu":
        why = "its layers differ from plain Llama layers (biases or activation)"
    if why:
        raise UserError("training.unsupported_target", target=target_folder.name, reason=why)
    return config


def _as_llama(config: Any) -> LlamaConfig:
    """A Qwen2 config as that of the same layers in a Llama; `attention_bias` stands for those of queries, keys and values."""
    from transformers import LlamaConfig

    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "rope_parameters",
        "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    )  # fmt: skip
    return LlamaConfig(attention_bias=True, **{name: getattr(config, name) for name in names})


def draft_config(target: LlamaConfig, num_layers: int) -> LlamaConfig:
    """The target's config with fewer layers."""
    from transformers import LlamaConfig

    plain = target.to_dict()
    for key in (
        "_name_or_path", "_model_name_or_path", "layer_types", "transformers_version",
        "quantization_config",
    ):  # fmt: skip
        plain.pop(key, None)
    plain |= {
        "num_hidden_layers": num_layers,
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
    }
    return LlamaConfig.from_dict(plain)


def package(
    state: dict[str, Tensor],
    word_ids: Tensor,
    target_folder: Path,
    out: Path,
    card: Card,
    extra: dict[str, object] | None = None,
    *,
    alone: bool = False,
) -> None:
    """Write a draft's folder: weights, config.json and its card.

    state: a Llama's tensors without its embedding ("layers.0.self_attn.q_proj.weight", ..., "norm.weight")
    word_ids: (W,) int64 — token id of each output word, ascending
    extra: what the runtime must know of this kind of drafter
    alone: it is a feature drafter without a draft model
    """
    numbers = [int(name.split(".")[1]) for name in state if name.startswith("layers.")]
    num_layers = 1 + max(numbers, default=-1)
    config = draft_config(read_llama_config(target_folder, alone=alone), num_layers)
    if alone:
        config.intermediate_size = len(state["layers.0.mlp.up_proj.weight"])
    parameters = sum(tensor.numel() for tensor in state.values())
    plain = json.loads(config.to_json_string(use_diff=True))
    # The runtime reads these keys, whichever of them transformers would leave out as defaults.
    for key in (
        "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
        "num_hidden_layers", "rope_parameters", "tie_word_embeddings", "vocab_size",
    ):  # fmt: skip
        plain[key] = getattr(config, key)
    plain["specdemo"] = {
        "format": FORMAT,
        "kind": card.kind,
        "embedding_from": card.target,
        "parameters": parameters,
        **(extra or {}),
        "card": card.to_dict(),
    }
    save_compact(out, plain, state, word_ids, bits=card.bits)
    (out / "README.md").write_text(render(card, parameters), encoding="utf-8")
