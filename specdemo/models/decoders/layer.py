"""One Llama layer in torch: every torch pass, of a target or of a compact draft, goes through this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.models.decoders.operators import Look, Stacked, attend, rms_norm


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """The weights. Norms (H,); of queries and keys (head_dim,), or None. Queries, keys and values are one matrix, gate and up too."""

    input_norm: Tensor
    qkv: Stacked
    output: Stacked
    post_norm: Tensor
    gate_up: Stacked
    down: Stacked
    query_key_norms: tuple[Tensor, Tensor] | None = None

    @classmethod
    def read(
        cls,
        at: str,
        matrix: Callable[..., Stacked],
        vector: Callable[[str], Tensor],
        *,
        normed: bool = False,
    ) -> LlamaLayer:
        """Read a layer by the names of transformers' tensors, with the prefix `at`.

        matrix: returns matrices, by their names without `.weight`, as one
        normed: queries and keys have norms of their own
        """
        norms = ("q_norm", "k_norm") if normed else ()
        queries_keys = [vector(f"{at}self_attn.{norm}.weight") for norm in norms]
        return cls(
            input_norm=vector(f"{at}input_layernorm.weight"),
            qkv=matrix(*(f"{at}self_attn.{part}_proj" for part in "qkv")),
            output=matrix(f"{at}self_attn.o_proj"),
            post_norm=vector(f"{at}post_attention_layernorm.weight"),
            gate_up=matrix(f"{at}mlp.gate_proj", f"{at}mlp.up_proj"),
            down=matrix(f"{at}mlp.down_proj"),
            query_key_norms=(queries_keys[0], queries_keys[1]) if normed else None,
        )

    def matrices(self) -> tuple[Stacked, ...]:
        """Its four products."""
        return self.qkv, self.output, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Sizes of attention. scaling: of its scores; eps: of all norms"""

    heads: int
    kv_heads: int
    head_dim: int
    scaling: float
    eps: float


class Stored(Protocol):
    """Writes keys and values of each layer and returns all of them, as `RollbackCache` does."""

    @property
    def layers(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class CacheRows:
    """Rows of one conversation among all rows, the cache for their keys, and the keys that they attend to.

    silent: number of first rows that only write keys and values and do not attend
    """

    begin: int
    end: int
    cache: Stored
    look: Look
    silent: int = 0


def after(
    layer: LlamaLayer,
    index: int,
    sizes: HeadSizes,
    x: Tensor,
    normed: Tensor,
    angles: tuple[Tensor, Tensor],
    rows: Sequence[CacheRows],
) -> Tensor:
    """Compute layer number `index`, after its first norm, for the rows of all conversations. returns: as `x`

    angles: cosines and signed sines of each row, (rows, 1, head_dim)
    x: (rows, H), the residual stream, without silent rows; normed: (rows, in), the input of attention, with them
    """
    x = x + attention(layer, index, sizes, normed, angles, rows)
    return x + gated(layer, rms_norm(x, layer.post_norm, sizes.eps))


def attention(
    layer: LlamaLayer,
    index: int,
    sizes: HeadSizes,
    normed: Tensor,
    angles: tuple[Tensor, Tensor],
    rows: Sequence[CacheRows],
) -> Tensor:
    """Return the output of attention, (rows, H), without silent rows. normed: as in `after`"""
    return layer.output(_attend(layer, index, sizes, normed, angles, rows))


def gated(layer: LlamaLayer, normed: Tensor) -> Tensor:
    """Return the output of the gated MLP. normed: (rows, H), its input. returns: the same shape"""
    gate, up = layer.gate_up(normed).chunk(2, dim=-1)
    return layer.down(F.silu(gate).mul_(up))


def _attend(
    layer: LlamaLayer,
    index: int,
    sizes: HeadSizes,
    x: Tensor,
    angles: tuple[Tensor, Tensor],
    rows: Sequence[CacheRows],
) -> Tensor:
    """Attention, each conversation over its own keys. x: (rows, H) after the norm. returns: (rows, heads * head_dim)"""
    rotated, values = _projected(layer, sizes, x, angles)
    attended = []
    for one in rows:
        keys, known = _written(one, index, sizes, rotated, values)
        asking = rotated[one.begin + one.silent : one.end, : sizes.heads]
        attended.append(attend(asking, keys, known, one.look, sizes.scaling))
    return attended[0] if len(attended) == 1 else torch.cat(attended)


def keep(
    layer: LlamaLayer,
    index: int,
    sizes: HeadSizes,
    x: Tensor,
    angles: tuple[Tensor, Tensor],
    rows: Sequence[CacheRows],
) -> None:
    """Write the keys and values of rows that are all silent. x: (rows, in), the input of attention"""
    rotated, values = _projected(layer, sizes, x, angles)
    for one in rows:
        _written(one, index, sizes, rotated, values)


def _projected(
    layer: LlamaLayer, sizes: HeadSizes, x: Tensor, angles: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Queries, then keys, rotated: (rows, heads + kv_heads, head_dim); and values: (rows, kv_heads, head_dim)."""
    heads, kv_heads = sizes.heads, sizes.kv_heads
    qkv = layer.qkv(x).view(len(x), heads + 2 * kv_heads, sizes.head_dim)
    queries_keys = qkv[:, : heads + kv_heads]
    if layer.query_key_norms:
        parts = zip(
            queries_keys.split([heads, kv_heads], dim=1), layer.query_key_norms, strict=True
        )
        queries_keys = torch.cat([rms_norm(part, norm, sizes.eps) for part, norm in parts], dim=1)
    return rotary(queries_keys, *angles), qkv[:, heads + kv_heads :]


def _written(
    one: CacheRows, index: int, sizes: HeadSizes, rotated: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """A conversation's keys and values with its new rows, (1, kv_heads, keys, head_dim) each."""
    part = slice(one.begin, one.end)
    found: tuple[Tensor, Tensor] = one.cache.layers[index].update(
        rotated[part, sizes.heads :].transpose(0, 1)[None], values[part].transpose(0, 1)[None]
    )
    return found


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (RoFormer 2104.09864). x: (rows, heads, head_dim); cos, sin: (rows, 1, head_dim), sines signed"""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
