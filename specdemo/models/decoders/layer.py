"""One decoder layer in torch: every torch pass, of a target or of a compact draft, goes through this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.kernels.runtime import LayerWeights
from specdemo.models.decoders.operators import Look, Stacked, attend, rms_norm

Angles = tuple[Tensor, Tensor] | None


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Sizes of attention. scaling: of its scores; eps: of all norms"""

    heads: int
    kv_heads: int
    head_dim: int
    scaling: float
    eps: float


@dataclass(frozen=True, slots=True)
class CacheRows:
    """Rows of one conversation among all rows, and the keys that they attend to.

    layers: write keys and values of each layer and return all of them, as those of `RollbackCache` do
    silent: number of first rows that only write keys and values and do not attend
    """

    begin: int
    end: int
    layers: Sequence[Any]
    look: Look
    silent: int = 0


@dataclass(frozen=True, slots=True)
class PassRows:
    """All rows of a pass through some layers.

    angles: cosines and signed sines of each row, (rows, 1, rotated channels of a head); None for no rotation
    rows: of each conversation
    """

    sizes: HeadSizes
    angles: Angles
    rows: Sequence[CacheRows]


@dataclass(frozen=True, slots=True)
class LlamaLayer(LayerWeights[Stacked]):
    """A layer of products in torch. activation: of the gate; residual: factor of additions to the residual stream"""

    activation: Callable[[Tensor], Tensor] = F.silu
    residual: float = 1.0

    def after(self, index: int, at: PassRows, x: Tensor, normed: Tensor) -> Tensor:
        """Compute the layer, number `index` of the cache, after its first norm. returns: as `x`

        x: (rows, H), the residual stream, without silent rows; normed: (rows, in), the input of attention, with them
        """
        eps = at.sizes.eps
        x = self._added(x, rms_norm(self.attention(index, at, normed), self.attended_norm, eps))
        gated = self.gated(rms_norm(x, self.post_norm, eps))
        return self._added(x, rms_norm(gated, self.gated_norm, eps))

    def attention(self, index: int, at: PassRows, normed: Tensor) -> Tensor:
        """Return the output of attention, each conversation over its own keys: (rows, H), without silent rows."""
        rotated, values = self._projected(at, normed)
        attended = []
        for one in at.rows:
            keys, known = _written(one, index, at.sizes, rotated, values)
            asking = rotated[one.begin + one.silent : one.end, : at.sizes.heads]
            attended.append(attend(asking, keys, known, one.look, at.sizes.scaling))
        return self.output(attended[0] if len(attended) == 1 else torch.cat(attended))

    def keep(self, index: int, at: PassRows, x: Tensor) -> None:
        """Write the keys and values of rows that are all silent. x: (rows, in), the input of attention"""
        rotated, values = self._projected(at, x)
        for one in at.rows:
            _written(one, index, at.sizes, rotated, values)

    def gated(self, normed: Tensor) -> Tensor:
        """Return the output of the gated MLP. normed: (rows, H), its input. returns: the same shape"""
        gate, up = self.gate_up(normed).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up))

    def _added(self, x: Tensor, found: Tensor) -> Tensor:
        return x + found if self.residual == 1 else x + found * self.residual

    def _projected(self, at: PassRows, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, then keys, rotated: (rows, heads + kv_heads, head_dim); and values: (rows, kv_heads, head_dim)."""
        heads, kv_heads = at.sizes.heads, at.sizes.kv_heads
        qkv = self.qkv(x).view(len(x), heads + 2 * kv_heads, at.sizes.head_dim)
        queries_keys = qkv[:, : heads + kv_heads]
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = queries_keys.split([heads, kv_heads], dim=1)
            queries = _of_heads(queries, self.query_norm, at.sizes.eps)
            keys = _of_heads(keys, self.key_norm, at.sizes.eps)
            queries_keys = torch.cat([queries, keys], dim=1)
        if at.angles is not None:
            queries_keys = rotary(queries_keys, *at.angles)
        return queries_keys, qkv[:, heads + kv_heads :]


def _of_heads(x: Tensor, norm: Tensor, eps: float) -> Tensor:
    """Normalise each head, or all heads together, by the width of the norm. x: (rows, heads, head_dim); returns the same shape"""
    return rms_norm(x.reshape(len(x), -1, len(norm)), norm, eps).view(x.shape)


def _written(
    one: CacheRows, index: int, sizes: HeadSizes, rotated: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Write a conversation's new rows. returns: all of its keys and values, (1, kv_heads, keys, head_dim) each"""
    part = slice(one.begin, one.end)
    found: tuple[Tensor, Tensor] = one.layers[index].update(
        rotated[part, sizes.heads :].transpose(0, 1)[None], values[part].transpose(0, 1)[None]
    )
    return found


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary embedding (RoFormer 2104.09864) to the first channels of each head, as many as there are cosines.

    x: (rows, heads, head_dim); cos, sin: (rows, 1, channels), sines signed
    """
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat([rotary(x[..., :width], cos, sin), x[..., width:]], dim=-1)
    # Some families have tables in float32.
    return torch.addcmul(x * cos, x.roll(width // 2, dims=-1), sin).to(x.dtype)
