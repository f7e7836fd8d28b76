"""The shipped kind of draft: a few Llama layers that borrow the target's embedding and speak a reduced vocabulary.

A draft step must cost a small part of a target step. The head over the whole vocabulary would dominate it,
so only the rows of words that the target really says are kept; and layers are written out with fused
projections and a preallocated cache, because at this size Python and small operators are the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.tree import ancestor_mask, depths

GROUP = 32  # weights that share a scale in the 4-bit layout
Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """Shape of a compact draft, as in its config.json."""

    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    vocabulary_size: int


@dataclass(frozen=True, slots=True)
class CompactLayer:
    """One decoder layer: fused query/key/value, output, fused gate/up, down."""

    input_norm: Tensor
    qkv: Linear
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class CompactWeights:
    """Shared, immutable weights.

    embedding: (V, H), the target's; word_ids: (W,) int64 — token id of each output word
    """

    config: CompactConfig
    layers: tuple[CompactLayer, ...]
    norm: Tensor
    embedding: Tensor
    head: Linear
    word_ids: Tensor


def pack_linear(weight: Tensor, *, four_bit: bool) -> Linear:
    """A bias-free linear map, in 4-bit where the CPU kernel takes its shape, else in the weight's dtype.

    weight: (out, in). The 4-bit kernel (asymmetric, groups of 32) runs one row several times faster than bf16.
    """
    out_features, in_features = weight.shape
    if not four_bit or weight.device.type != "cpu" or in_features % GROUP or out_features % 32:
        return lambda x: F.linear(x, weight)
    levels, scale, zero = _levels(weight)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        levels.reshape(out_features, in_features).to(torch.int32), 1
    )
    scales_and_zeros = (
        torch.stack([scale, zero], dim=-1).transpose(0, 1).contiguous().to(weight.dtype)
    )

    def run(x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, scales_and_zeros)

    return run


def _levels(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Levels 0 to 15 (out, groups, 32), and each group's scale and zero: (level - 8) * scale + zero is the weight."""
    groups = weight.float().reshape(weight.shape[0], -1, GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scale = ((high - low) / 15).clamp(min=1e-8)
    levels = ((groups - low[..., None]) / scale[..., None]).round_().clamp_(0, 15)
    return levels, scale, low + 8 * scale


def rounded(weight: Tensor) -> Tensor:
    """A matrix with the values that `pack_linear` computes with; unchanged where it stays as it is."""
    if weight.shape[1] % GROUP or weight.shape[0] % 32:
        return weight
    levels, scale, zero = _levels(weight)
    # Scales and zeros are kept in bf16.
    scale, zero = (x.bfloat16().float()[..., None] for x in (scale, zero))
    return ((levels - 8) * scale + zero).reshape(weight.shape).to(weight.dtype)


class CompactModel:
    """One conversation of a compact draft; implements `LanguageModel`."""

    BLOCK = 512

    def __init__(self, weights: CompactWeights) -> None:
        self.weights = weights
        self.length = 0
        self._grown: list[int] = []  # parents of the nodes that `grow` has read
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._cos = self._sin = torch.empty(0)

    def rollback(self, length: int) -> None:
        """Forget every cached token from position `length` on, and what was grown."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: {self.length} tokens are cached")
        self._grown.clear()
        self.length = length

    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens. returns: (V,) float32 logits, minus infinity outside the reduced vocabulary."""
        return self._widen(self.read_words(token_ids)[None])[0]

    def read_words(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens. returns: (W,) float32 logits over the reduced vocabulary."""
        self._grown.clear()
        rows, end = len(token_ids), self.length + len(token_ids)
        mask = None if rows == 1 else self._causal(rows, end)
        words = self._run(token_ids, torch.arange(self.length, end), mask, self.length, 1)
        self.length = end
        return words[0]

    def grow(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Read nodes of a tree that hangs on the cached text; nothing of it is counted.

        parents: index among all nodes grown so far, -1 = follows the text
        returns: (N, V) float32 logits, row i follows node i
        """
        first = len(self._grown)
        self._grown += parents
        tree = self._grown
        positions = torch.tensor([self.length + depth - 1 for depth in depths(tree)[first:]])
        seen = torch.ones(len(token_ids), self.length + len(tree), dtype=torch.bool)
        seen[:, self.length :] = ancestor_mask(tree)[first:]
        mask = seen.to(self.weights.embedding.device)
        words = self._run(token_ids, positions, mask, self.length + first, len(token_ids))
        return self._widen(words)

    @torch.inference_mode()
    def _run(
        self,
        token_ids: Sequence[int],
        positions: Tensor,
        mask: Tensor | None,
        start: int,
        last: int,
    ) -> Tensor:
        """Read tokens into the slots from `start` on. returns: (last, W) float32 logits of the last ones"""
        weights, config = self.weights, self.weights.config
        self._make_room(start + len(token_ids))
        x = weights.embedding[list(token_ids)]
        cos, sin = self._cos[positions], self._sin[positions]
        for index, layer in enumerate(weights.layers):
            x = x + layer.output(self._attend(index, layer, x, cos, sin, mask, start))
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        tail = F.rms_norm(x[-last:], (config.hidden_size,), weights.norm, config.rms_norm_eps)
        return weights.head(tail).float()

    def _widen(self, words: Tensor) -> Tensor:
        """(N, W) logits over the reduced vocabulary to (N, V), minus infinity elsewhere."""
        shape = (words.shape[0], self.weights.config.vocabulary_size)
        return words.new_full(shape, -torch.inf).index_copy_(1, self.weights.word_ids, words)

    def _attend(
        self,
        index: int,
        layer: CompactLayer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        start: int,
    ) -> Tensor:
        """Attention of one layer. x: (rows, H). returns: (rows, heads * head_dim)"""
        config = self.weights.config
        heads, kv_heads, rows = config.num_heads, config.num_key_value_heads, x.shape[0]
        qkv = layer.qkv(self._norm(x, layer.input_norm)).view(
            rows, heads + 2 * kv_heads, config.head_dim
        )
        rotated = _rotate(qkv[:, : heads + kv_heads], cos, sin)
        end = start + rows
        self._keys[index][:, start:end] = rotated[:, heads:].transpose(0, 1)
        self._values[index][:, start:end] = qkv[:, heads + kv_heads :].transpose(0, 1)
        attended = F.scaled_dot_product_attention(
            rotated[:, :heads].transpose(0, 1)[None],
            self._keys[index][None, :, :end],
            self._values[index][None, :, :end],
            attn_mask=mask,
            enable_gqa=True,
        )
        return attended[0].transpose(0, 1).reshape(rows, -1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.weights.config.rms_norm_eps)

    def _causal(self, rows: int, end: int) -> Tensor:
        """(rows, end) bool: row r sees everything up to itself."""
        device = self.weights.embedding.device
        return torch.ones(rows, end, dtype=torch.bool, device=device).tril_(diagonal=end - rows)

    def _make_room(self, end: int) -> None:
        if end <= self._capacity:
            return
        config, embedding = self.weights.config, self.weights.embedding
        self._capacity = -(-max(end, 2 * self._capacity) // self.BLOCK) * self.BLOCK
        shape = (config.num_key_value_heads, self._capacity, config.head_dim)
        for tensors in (self._keys, self._values):
            old, tensors[:] = (
                list(tensors),
                [embedding.new_zeros(shape) for _ in self.weights.layers],
            )
            for before, after in zip(old, tensors, strict=False):
                after[:, : before.shape[1]] = before
        self._cos, self._sin = _rotary_tables(config, self._capacity, embedding)


def _rotary_tables(config: CompactConfig, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of the rotary embedding (RoFormer 2104.09864), (length, 1, head_dim) each."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), config.rope_theta**-half)
    cos, sin = angles.cos().repeat(1, 2), torch.cat([-angles.sin(), angles.sin()], dim=-1)
    return cos[:, None].to(like), sin[:, None].to(like)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads by position. x: (rows, heads, head_dim)"""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin
