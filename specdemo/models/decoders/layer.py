"""One decoder layer in torch: every torch pass, of a target or of a compact draft, goes through this one."""

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
    """The weights of a layer, whose defaults are Llama's. Queries, keys and values are one matrix, gate and up too.

    input_norm, post_norm: before attention and before the MLP, (H,); None for none
    query_key_norms: of each head, (head_dim,), or of all heads together, (heads * head_dim,) and (kv_heads * head_dim,)
    attended_norm, gated_norm: of the outputs of attention and of the MLP, (H,)
    activation: of the gate; residual: factor of additions to the residual stream
    rotary: number of its rotary embedding; -1 for none; window: keys that a row looks back at; 0 for all
    """

    input_norm: Tensor | None
    qkv: Stacked
    output: Stacked
    post_norm: Tensor | None
    gate_up: Stacked
    down: Stacked
    query_key_norms: tuple[Tensor, Tensor] | None = None
    attended_norm: Tensor | None = None
    gated_norm: Tensor | None = None
    activation: Callable[[Tensor], Tensor] = F.silu
    residual: float = 1.0
    rotary: int = 0
    window: int = 0

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


Angles = tuple[Tensor, Tensor] | None


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
    angles: Angles,
    rows: Sequence[CacheRows],
) -> Tensor:
    """Compute layer number `index`, after its first norm, for the rows of all conversations. returns: as `x`

    angles: cosines and signed sines of each row, (rows, 1, rotated channels of a head); None for no rotation
    x: (rows, H), the residual stream, without silent rows; normed: (rows, in), the input of attention, with them
    """
    attended = attention(layer, index, sizes, normed, angles, rows)
    x = _added(layer, x, normalised(attended, layer.attended_norm, sizes.eps))
    found = gated(layer, normalised(x, layer.post_norm, sizes.eps))
    return _added(layer, x, normalised(found, layer.gated_norm, sizes.eps))


def normalised(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """RMS norm, or `x` itself where a layer has none. x: (rows, H)"""
    return x if weight is None else rms_norm(x, weight, eps)


def _added(layer: LlamaLayer, x: Tensor, found: Tensor) -> Tensor:
    return x + found if layer.residual == 1 else x + found * layer.residual


def attention(
    layer: LlamaLayer,
    index: int,
    sizes: HeadSizes,
    normed: Tensor,
    angles: Angles,
    rows: Sequence[CacheRows],
) -> Tensor:
    """Return the output of attention, (rows, H), without silent rows. normed: as in `after`"""
    return layer.output(_attend(layer, index, sizes, normed, angles, rows))


def gated(layer: LlamaLayer, normed: Tensor) -> Tensor:
    """Return the output of the gated MLP. normed: (rows, H), its input. returns: the same shape"""
    gate, up = layer.gate_up(normed).chunk(2, dim=-1)
    return layer.down(layer.activation(gate).mul_(up))


def _attend(
    layer: LlamaLayer,
    index: int,
    sizes: HeadSizes,
    x: Tensor,
    angles: Angles,
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
    angles: Angles,
    rows: Sequence[CacheRows],
) -> None:
    """Write the keys and values of rows that are all silent. x: (rows, in), the input of attention"""
    rotated, values = _projected(layer, sizes, x, angles)
    for one in rows:
        _written(one, index, sizes, rotated, values)


def _projected(
    layer: LlamaLayer, sizes: HeadSizes, x: Tensor, angles: Angles
) -> tuple[Tensor, Tensor]:
    """Queries, then keys, rotated: (rows, heads + kv_heads, head_dim); and values: (rows, kv_heads, head_dim)."""
    heads, kv_heads = sizes.heads, sizes.kv_heads
    qkv = layer.qkv(x).view(len(x), heads + 2 * kv_heads, sizes.head_dim)
    queries_keys = qkv[:, : heads + kv_heads]
    if layer.query_key_norms:
        parts = zip(
            queries_keys.split([heads, kv_heads], dim=1), layer.query_key_norms, strict=True
        )
        queries_keys = torch.cat([_of_heads(part, norm, sizes.eps) for part, norm in parts], dim=1)
    if angles is not None:
        queries_keys = rotary(queries_keys, *angles)
    return queries_keys, qkv[:, heads + kv_heads :]


def _of_heads(x: Tensor, norm: Tensor, eps: float) -> Tensor:
    """Norm of each head, or of all together, as the norm's width says. x: (rows, heads, head_dim). returns: the same"""
    return rms_norm(x.reshape(len(x), -1, len(norm)), norm, eps).view(x.shape)


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
    """Rotary embedding (RoFormer 2104.09864) of the first channels of each head, as many as cosines.

    x: (rows, heads, head_dim); cos, sin: (rows, 1, channels), sines signed
    """
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat([rotary(x[..., :width], cos, sin), x[..., width:]], dim=-1)
    # Some families keep their tables in float32.
    return torch.addcmul(x * cos, x.roll(width // 2, dims=-1), sin).to(x.dtype)
