"""A lean pass for decoders of the Llama and Qwen family: the weights of a loaded transformers model, fewer and larger steps.

Matrices that read the same input are one; key/value heads are read where they lie; rotary tables are
computed once; rows of several conversations go through the matrices together. What it computes is what the
module computes, up to the rounding of the number format; `decoders.agrees` looks, and `decoders.open_decoder`
goes back to the module where it does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.engine.forward import ForwardInput, ForwardOutput
from specdemo.engine.module_decoder import PIECE
from specdemo.models.decoders.operators import Look, Stacked, attend, look, pack, rms_norm, stack

TABLE = 1024  # positions by which the rotary tables grow


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """One decoder layer. Norms (H,); of queries and keys (head_dim,), or None."""

    input_norm: Tensor
    post_norm: Tensor
    qkv: Stacked
    output: Stacked
    gate_up: Stacked
    down: Stacked
    query_key_norms: tuple[Tensor, Tensor] | None = None

    def matrices(self) -> tuple[Stacked, ...]:
        """Its four products."""
        return self.qkv, self.output, self.gate_up, self.down


class Stored(Protocol):
    """What writes keys and values of each layer and gives them back, as `RollbackCache` does."""

    @property
    def layers(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of one pass lie among all rows, and what they look at."""

    begin: int
    end: int
    cache: Stored
    look: Look


class LeanDecoder:
    """Implements `Decoder`. Shares its weights with the module that it was made from."""

    piece = PIECE

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        base = model.model
        self.config = config
        self.model = model
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = base.layers[0].self_attn.head_dim
        self.scaling = float(base.layers[0].self_attn.scaling)
        self.embedding = base.embed_tokens.weight
        self.norm = base.norm.weight
        self.eps = float(config.rms_norm_eps)
        self.layers = [_layer(layer) for layer in base.layers]
        self.rotary = Rotary(base, self.head_dim)

    @cached_property
    def head(self) -> Stacked:
        """The output head."""
        return pack(self.model.lm_head.weight)

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Answer passes of different conversations together; their `depth` must be the same."""
        depth = passes[0].depth
        positions = self._numbers(place for one in passes for place in one.positions)
        token_ids = self._numbers(number for one in passes for number in one.token_ids)
        self.rotary.tables(max(max(one.positions) for one in passes) + 1)
        rows = self._place(passes)
        wanted = {layer for one in passes for layer in one.reads}
        x, states = self.through(token_ids, positions, rows, wanted, depth)
        if depth is not None:
            return [ForwardOutput(torch.empty(0), (x[one.begin : one.end],)) for one in rows]
        asked = [range(at.end - one.answers, at.end) for one, at in zip(passes, rows, strict=True)]
        if sum(map(len, asked)) < len(x):
            x = x[[row for part in asked for row in part]]
        logits = self.logits(x).split([len(part) for part in asked])
        return [
            ForwardOutput(
                one_logits, tuple(states[layer][at.begin : at.end] for layer in one.reads)
            )
            for one, at, one_logits in zip(passes, rows, logits, strict=True)
        ]

    def through(
        self,
        token_ids: Tensor,
        positions: Tensor,
        rows: Sequence[Rows],
        wanted: Collection[int],
        depth: int | None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Bring rows through the layers. Asks nothing of the numbers in a tensor, so that a GPU need not be waited for.

        token_ids, positions: (rows,) int64, within the tables
        returns: (rows, H) before the last norm, and states of the wanted layers as `ForwardInput.reads` counts them
        """
        cos, sin = (table[positions] for table in self.rotary.tables(0))
        x = self.embedding[token_ids]
        states = {0: x} if 0 in wanted else {}
        for index, layer in enumerate(self.layers[:depth]):
            x = x + layer.output(
                self._attend(index, layer, self._norm(x, layer.input_norm), cos, sin, rows)
            )
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate).mul_(up))
            if index + 1 in wanted:
                states[index + 1] = x
        last = len(self.layers)
        if last in states:
            states[last] = self._norm(x, self.norm)
        return x, states

    def logits(self, x: Tensor) -> Tensor:
        """Norm and head. x: (rows, H). returns: (rows, V)"""
        return self.head(self._norm(x, self.norm))

    def _numbers(self, numbers: Iterable[int]) -> Tensor:
        return torch.tensor(list(numbers), device=self.embedding.device)

    def _place(self, passes: Sequence[ForwardInput]) -> list[Rows]:
        """Lay the passes one behind the other."""
        placed, begin = [], 0
        for one in passes:
            rows = len(one.token_ids)
            at = look(one.seen, rows, self.heads // self.kv_heads, self.embedding)
            placed.append(Rows(begin, begin + rows, one.cache, at))
            begin += rows
        return placed

    def _attend(
        self,
        index: int,
        layer: LeanLayer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        rows: Sequence[Rows],
    ) -> Tensor:
        """Attention of one layer, each conversation over its own keys. x: (rows, H) normed. returns: (rows, heads * head_dim)"""
        heads, kv_heads = self.heads, self.kv_heads
        qkv = layer.qkv(x).view(len(x), heads + 2 * kv_heads, self.head_dim)
        turned = qkv[:, : heads + kv_heads]
        if layer.query_key_norms:
            norms = layer.query_key_norms
            parts = turned.split([heads, kv_heads], dim=1)
            turned = torch.cat([self._norm(p, n) for p, n in zip(parts, norms, strict=True)], dim=1)
        turned = torch.addcmul(turned * cos, turned.roll(self.head_dim // 2, dims=-1), sin)
        attended = [
            self._attend_one(index, at, turned[at.begin : at.end], qkv[at.begin : at.end])
            for at in rows
        ]
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def _attend_one(self, index: int, at: Rows, turned: Tensor, qkv: Tensor) -> Tensor:
        """One conversation. turned: (rows, heads + kv_heads, head_dim); qkv: with the values behind"""
        heads, kv_heads = self.heads, self.kv_heads
        keys, values = at.cache.layers[index].update(
            turned[:, heads:].transpose(0, 1)[None],
            qkv[:, heads + kv_heads :].transpose(0, 1)[None],
        )
        return attend(turned[:, :heads], keys, values, at.look, self.scaling)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.eps)


class Rotary:
    """Tables of a model's own rotary embedding, for as many positions as were asked for."""

    def __init__(self, model: Any, head_dim: int) -> None:
        self._model, self._half = model, head_dim // 2
        self._tables = self._computed(TABLE)
        self._full: tuple[Tensor, Tensor] | None = None  # float32; made when first asked for

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of at least `length` positions, (positions, 1, head_dim) each."""
        if length > len(self._tables[0]):
            self._tables, self._full = self._computed(-(-length // TABLE) * TABLE), None
        return self._tables

    def full(self, length: int) -> tuple[Tensor, Tensor]:
        """The same, (positions, head_dim) float32."""
        tables = self.tables(length)
        if self._full is None:
            cos, sin = (table[:, 0].float().contiguous() for table in tables)
            self._full = cos, sin
        return self._full

    def _computed(self, length: int) -> tuple[Tensor, Tensor]:
        embedding = self._model.embed_tokens.weight
        positions = torch.arange(length, device=embedding.device)[None]
        with torch.inference_mode():
            cos, sin = self._model.rotary_emb(embedding, positions)
            signed = torch.cat([-sin[..., : self._half], sin[..., self._half :]], dim=-1)
        return cos[0][:, None], signed[0][:, None]


def _layer(layer: nn.Module) -> LeanLayer:
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    norms = None
    if hasattr(attention, "q_norm"):
        norms = (attention.q_norm.weight, attention.k_norm.weight)
    return LeanLayer(
        layer.input_layernorm.weight,  # type: ignore[union-attr, arg-type]
        layer.post_attention_layernorm.weight,  # type: ignore[union-attr, arg-type]
        stack([attention.q_proj, attention.k_proj, attention.v_proj]),
        stack([attention.o_proj]),
        stack([mlp.gate_proj, mlp.up_proj]),
        stack([mlp.down_proj]),
        norms,
    )
