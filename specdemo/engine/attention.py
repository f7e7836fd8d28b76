"""Attention that reads shared key/value heads where they lie, instead of repeating them for every query head."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

NAME = "specdemo"


def shared_heads(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_options: Any,
) -> tuple[Tensor, None]:
    """Grouped-query attention (Ainslie 2305.13245) as transformers asks for it.

    query: (1, heads, rows, head_dim); key, value: (1, kv_heads, keys, head_dim)
    returns: (1, rows, heads, head_dim)
    """
    attended = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        scale=scaling,
        is_causal=attention_mask is None and query.shape[2] > 1,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(1, 2).contiguous(), None


def use_shared_heads(model: Any) -> None:
    """Let a transformers model attend this way; its masks stay those of `sdpa`.

    transformers' own path repeats the heads whenever a mask is given, as every pass over a draft needs.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, shared_heads)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
