"""One layer of a drafter in training, in parts, and the form of its norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig


class Norm(nn.Module):
    """An RMS norm that learns a factor for each initial weight: the weights of a target's norms differ widely in size."""

    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.register_buffer("base", torch.ones(hidden))
        self.share = nn.Parameter(torch.ones(hidden))
        self.epsilon = epsilon

    @property
    def weight(self) -> Tensor:
        """(H,)"""
        return self.get_buffer("base") * self.share

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) to the same."""
        return F.rms_norm(x, x.shape[-1:], self.weight, self.epsilon)


class Attention(nn.Module):
    """The projections of a layer's attention, named as transformers names them."""

    def __init__(self, config: Any, inputs: int) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.head_dim
        queries, keys = (
            width * heads for heads in (config.num_attention_heads, config.num_key_value_heads)
        )
        self.q_proj = nn.Linear(inputs, queries, bias=config.attention_bias)
        self.k_proj = nn.Linear(inputs, keys, bias=config.attention_bias)
        self.v_proj = nn.Linear(inputs, keys, bias=config.attention_bias)
        self.o_proj = nn.Linear(queries, hidden, bias=False)


class GatedMlp(nn.Module):
    """A layer's inner part."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def inside(self, x: Tensor) -> Tensor:
        """(..., H) to (..., inner)."""
        inside: Tensor = F.silu(self.gate_proj(x)) * self.up_proj(x)
        return inside

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) to the same."""
        out: Tensor = self.down_proj(self.inside(x))
        return out


class Layer(nn.Module):
    """One Llama layer in parts, because prompts need no more of it than keys and values.

    inputs: numbers that go into its attention
    """

    def __init__(self, config: LlamaConfig, inputs: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, inputs)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMlp(config.hidden_size, config.intermediate_size)


class BesideLayer(Layer):
    """A layer whose attention reads an embedding and a state side by side, each behind a norm of its own."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, 2 * config.hidden_size)
        self.hidden_norm = Norm(config.hidden_size, config.rms_norm_eps)


def folded_norms(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with norm weights as one."""
    found = {name: tensor.detach().cpu() for name, tensor in state.items()}
    for name in [name.removesuffix("base") for name in found if name.endswith(".base")]:
        found[f"{name}weight"] = found.pop(f"{name}base") * found.pop(f"{name}share")
    return found


def begun_norms(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with norm weights split as in `Norm` before training."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        stem = name.removesuffix("weight")
        if stem.endswith(("norm.", "layernorm.")):
            found |= {f"{stem}base": tensor, f"{stem}share": torch.ones_like(tensor)}
        else:
            found[name] = tensor
    return found


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (RoFormer 2104.09864) in transformers' order: halves, not pairs."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def narrowed(layer: Mapping[str, Tensor], norm: Tensor) -> dict[str, Tensor]:
    """A layer with the inner outputs that matter most first: by the sizes of the three rows and columns that make them.

    layer: tensors by transformers' names in the layer; norm: (H,) weight of the norm before its inner part
    """
    gate, up, down = (layer[f"mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
    matter = (gate * norm).norm(dim=1) * (up * norm).norm(dim=1) * down.norm(dim=0)
    order = matter.argsort(descending=True)
    parts = {
        "mlp.gate_proj.weight": gate[order],
        "mlp.up_proj.weight": up[order],
        "mlp.down_proj.weight": down[:, order],
    }
    return {**layer, **parts}
