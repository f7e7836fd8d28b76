"""The few large steps that passes are made of: products with stacked matrices, attention and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.engine.attention import causal, forget
from specdemo.kernels import cpu_features
from specdemo.models.decoders.form import Module

PACKED_ROWS = 16  # for which bfloat16 matrices are laid out

FOLDED_ROWS = 32  # from here on attention is bound by arithmetic, and folding heads into rows costs more than it saves

Stacked = Callable[[Tensor], Tensor]  # (rows, in) -> (rows, out of all parts)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Return the RMS norm (Zhang 1910.07467), or `x` itself if a layer has no norm there. x: (..., H)

    It is computed as the layer norm of x concatenated with -x, whose mean is zero: torch's own is five kernels on a CPU.
    """
    if weight is None:
        return x
    both = torch.cat((x, -x), dim=-1)
    width = x.shape[-1]
    return torch.layer_norm(both, (2 * width,), None, None, eps)[..., :width] * weight


@dataclass(frozen=True, slots=True)
class Look:
    """The keys that the rows of a pass attend to.

    mask: (1, 1, rows or folded rows, keys) additive; None for all keys, or, when `causal`, all up to the row itself
    folded: heads that share keys are rows of one head
    """

    mask: Tensor | None
    folded: bool
    causal: bool = False


def look(
    seen: Tensor | None, rows: int, group: int, like: Tensor, start: int = 0, window: int = 0
) -> Look:
    """Return the mask of a pass of `rows` rows.

    seen: (rows, keys) bool; None if each row attends to all before it
    group: heads that share keys; like: a tensor of the dtype and device
    start: keys before those of the rows; window: keys that a row looks back at; 0 for all
    """
    folded = rows <= FOLDED_ROWS
    cut = window and start + rows > window
    if seen is None and not cut:
        if rows == 1:
            return Look(None, folded)
        if not start and not folded:
            return Look(None, folded, causal=True)
    if seen is None:
        seen = causal(rows, start)
    if cut:
        seen = forget(seen, window)
    mask = torch.zeros(seen.shape, dtype=like.dtype).masked_fill_(~seen.cpu(), -torch.inf)
    if folded:
        mask = mask.repeat_interleave(group, dim=0)
    return Look(mask[None, None].to(like.device), folded)


def attend(query: Tensor, keys: Tensor, values: Tensor, at: Look, scale: float) -> Tensor:
    """Grouped-query attention (Ainslie 2305.13245) that reads shared heads where they lie.

    query: (rows, heads, head_dim); keys, values: (1, kv_heads, keys, head_dim)
    returns: (rows, heads * head_dim)
    """
    rows, heads, head_dim = query.shape
    if not at.folded:
        attended = F.scaled_dot_product_attention(
            query.transpose(0, 1)[None], keys, values, attn_mask=at.mask, is_causal=at.causal,
            scale=scale, enable_gqa=True,
        )  # fmt: skip
        return attended[0].transpose(0, 1).reshape(rows, -1)
    # (1, kv_heads, rows x heads of a group, head_dim)
    kv_heads = keys.shape[1]
    grouped = query.reshape(rows, kv_heads, heads // kv_heads, head_dim).transpose(0, 1)
    folded = grouped.reshape(1, kv_heads, -1, head_dim)
    attended = F.scaled_dot_product_attention(folded, keys, values, attn_mask=at.mask, scale=scale)
    return attended.view(kv_heads, rows, -1, head_dim).transpose(0, 1).reshape(rows, -1)


def stack(parts: Sequence[Module]) -> Stacked:
    """Join linear layers of a loaded model side by side. The layers stay usable: they become views of the stack.

    Layers of a kind that cannot be joined are called one by one.
    """
    if all(type(part) is nn.Linear for part in parts):
        return _stack_plain(parts)
    if in_4_bits(parts):
        return _stack_nf4(parts)
    if len(parts) == 1:
        return lambda x: parts[0](x)
    return lambda x: torch.cat([part(x) for part in parts], dim=-1)


def _stack_plain(parts: Sequence[nn.Linear]) -> Stacked:
    weight = parts[0].weight if len(parts) == 1 else torch.cat([part.weight.data for part in parts])
    bias = biases(parts)
    for part, view in zip(parts, weight.split([one.out_features for one in parts]), strict=True):
        part.weight.data = view
    if bias is not None:
        return lambda x: product(x, weight).add_(bias)
    return lambda x: product(x, weight)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply rows by a matrix, in the order in which the CPU reads the matrix without a copy.

    x: (rows, in); weight: (out, in)
    With matrix tiles oneDNN reorders a bfloat16 matrix on the right in every call, which costs as much as reading it
    twice; on the left it is used as stored. For one row a matrix-vector product needs neither.
    """
    if (
        weight.dtype != torch.bfloat16
        or weight.device.type != "cpu"
        or not cpu_features.has_tiles()
    ):
        return F.linear(x, weight)
    if len(x) == 1:
        return torch.mv(weight, x[0])[None]
    return torch.mm(weight, x.t().contiguous()).t().contiguous()


def pack(weight: Tensor, bias: Tensor | None = None) -> Stacked:
    """Return a product with a bfloat16 matrix of its own, reordered once for oneDNN and few rows. weight: (out, in)"""
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu" or not _packs():
        return lambda x: F.linear(x, weight, bias)
    ops = torch.ops.mkldnn
    packed = ops._reorder_linear_weight(weight, PACKED_ROWS)
    run = ops._linear_pointwise
    return lambda x: run(x, packed, bias, "none", [], "")


def _packs() -> bool:
    """Whether oneDNN multiplies bfloat16 on this processor (AVX-512 or newer)."""
    ops = torch.ops.mkldnn
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(ops, "_linear_pointwise")
        and bool(ops._is_mkldnn_bf16_supported())
    )


def biases(parts: Sequence[Module]) -> Tensor | None:
    """Return the biases of stacked layers as one; None if no layer has one."""
    if all(part.bias is None for part in parts):
        return None
    like = next(part.bias for part in parts if part.bias is not None)
    return torch.cat(
        [like.new_zeros(p.out_features) if p.bias is None else p.bias.data for p in parts]
    )


def in_4_bits(parts: Sequence[Module]) -> bool:
    """Whether layers are all in NF4 as bitsandbytes stores it, and not laid out for its fused CPU kernel."""
    states: list[Any] = [getattr(getattr(p, "weight", None), "quant_state", None) for p in parts]
    return all(
        getattr(state, "quant_type", "") == "nf4"
        and not getattr(state, "packing_format_for_cpu", False)
        and state.shape[0] % 32 == 0
        and state.shape[1] % state.blocksize == 0
        for state in states
    )


def _stack_nf4(parts: Sequence[Module]) -> Stacked:
    """Join NF4 matrices as bitsandbytes stores them, on top of each other."""
    from bitsandbytes import matmul_4bit  # type: ignore[attr-defined]
    from bitsandbytes.functional import QuantState

    states = [part.weight.quant_state for part in parts]
    first, bias = states[0], biases(parts)
    codes = [part.weight.data.view(torch.uint8).view(-1, 1) for part in parts]
    joined = torch.cat(codes)
    for part, view in zip(parts, joined.split([len(one) for one in codes]), strict=True):
        part.weight.data = view
    state = QuantState(
        torch.cat([scales_of(one) for one in states]), quant_type="nf4",
        shape=torch.Size((sum(one.shape[0] for one in states), first.shape[1])), code=first.code,
        blocksize=first.blocksize, dtype=first.dtype,
    )  # fmt: skip
    return lambda x: matmul_4bit(x, joined, state, bias=bias)


def scales_of(state: Any) -> Tensor:
    """Return the scales of all blocks, (blocks,) float32; those of a doubly quantised matrix are stored in 8 bits."""
    scales: Tensor = state.absmax
    if not state.nested:
        return scales.float()
    from bitsandbytes.functional import dequantize_blockwise

    scales = dequantize_blockwise(scales, state.state2) + state.offset
    return scales.float()
