"""The form of a model's layers: its row of `families.json`, its config and its tensors, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from specdemo.config.strings import Json
from specdemo.engine.attention import windowed
from specdemo.files.folder import LayerForm, ModelConfig, find_family
from specdemo.kernels.runtime import NORMS

Module: TypeAlias = Any
"""A transformers model, or one of its modules. Its attributes depend on the family: `form_of` checks those that are read."""

# types of rotary embedding whose angles depend on the position alone, or are made so by `rotary.module_tables`
STATIC_ROPE = ("default", "linear", "llama3", "yarn", "longrope")
ACTIVATIONS = ("silu", "gelu_pytorch_tanh")
SOFT_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")


@dataclass(frozen=True, slots=True)
class ModelForm:
    """The form of all layers of a model.

    layer: of its family; activation: of the gates, one of ACTIVATIONS
    embedding, residual, logits: factors, see `LayerForm`
    rope_kinds: names of its rotary embeddings; "" for the only one
    rotary: for each layer, the number of its rotary embedding; -1 for none
    windows: for each layer, the keys that a row looks back at; 0 for all
    """

    layer: LayerForm
    activation: str
    embedding: float
    residual: float
    logits: float
    rope_kinds: tuple[str, ...]
    rotary: tuple[int, ...]
    windows: tuple[int, ...]

    def norm(self, norm: Module, dtype: torch.dtype | None = None) -> Tensor:
        """Return the factors of a norm's channels, (width,). dtype: None for that of the module"""
        weight: Tensor = norm.weight.data
        weight = weight.to(dtype or weight.dtype)
        return weight + self.layer.offset if self.layer.offset else weight

    def of_layer(self, index: int, layer: Module, dtype: torch.dtype | None = None) -> Json:
        """Return the fields of `LayerWeights` that are not matrices, for a layer of a module. dtype: see `norm`"""
        parts = [(layer, name) for name in self.layer.norms]
        parts += [(layer.self_attn, name) for name in ("q_norm", "k_norm")]
        modules = [getattr(parent, name, None) if name else None for parent, name in parts]
        norms = [None if norm is None else self.norm(norm, dtype) for norm in modules]
        numbers = {"rotary": self.rotary[index], "window": self.windows[index]}
        return {**dict(zip(NORMS, norms, strict=True)), **numbers}

    def embedded(self, weight: Tensor, token_ids: Tensor) -> Tensor:
        """Return scaled rows of an embedding, (rows, H). weight: (V, H); token_ids: (rows,)"""
        rows = weight[token_ids]
        # transformers rounds the factor to the type of the weights first.
        return (
            rows
            if self.embedding == 1
            else rows * torch.tensor(self.embedding, dtype=rows.dtype).item()
        )


def form_of(model: Module) -> ModelForm | None:
    """Return the form of a loaded transformers model; None if no pass but transformers' own computes it."""
    config = model.config.get_text_config()
    layer = find_family(model_type=config.model_type).layer
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "")
    if (
        layer is None
        or activation not in ACTIVATIONS
        or not hasattr(model, "lm_head")
        or model.lm_head.bias is not None
        or any(getattr(config, name, None) is not None for name in SOFT_CAPS)
    ):
        return None
    count = config.num_hidden_layers
    kinds = tuple(getattr(config, "layer_types", None) or ["full_attention"] * count)
    rope = getattr(config, "rope_parameters", None) or {}
    names = tuple(sorted(set(kinds))) if kinds[0] in rope else ("",)
    types = [(rope[name] if name else rope).get("rope_type", "default") for name in names]
    if not set(types) <= set(STATIC_ROPE):
        return None
    turned = [getattr(one.self_attn, "use_rope", True) for one in model.model.layers]
    slides = windowed(config)
    listed = bool(getattr(config, "layer_types", None))
    rotary = [
        (names.index(kind) if kind in names else 0) if turns else -1
        for kind, turns in zip(kinds, turned, strict=True)
    ]
    windows = [
        config.sliding_window if slides and (kind == "sliding_attention" or not listed) else 0
        for kind in kinds
    ]
    embedding, residual, logits = (
        _factor(config, of) for of in (layer.embedding, layer.residual, layer.logits)
    )
    return ModelForm(
        layer, activation, embedding, residual, logits, names, tuple(rotary), tuple(windows)
    )


def _factor(config: ModelConfig, of: tuple[str, float] | None) -> float:
    return float(getattr(config, of[0]) ** of[1]) if of else 1.0
