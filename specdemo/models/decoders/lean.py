"""A lean pass for decoders of the Llama and Qwen family: the weights of a loaded transformers model, fewer and larger steps.

Matrices that read the same input are one; key/value heads are read from the cache without copies; rotary tables are
computed once; rows of several conversations are multiplied by the matrices in one product. The result is that of the
module, up to the rounding of the number format; `choose.agrees` checks this, and `choose.open_decoder` returns to
the module if it fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from specdemo.engine.attention import chunk_of
from specdemo.engine.passes import ForwardInput, ForwardOutput
from specdemo.models.decoders.layer import CacheRows, HeadSizes, LlamaLayer, after
from specdemo.models.decoders.operators import Stacked, look, pack, rms_norm, stack
from specdemo.models.decoders.rotary import RotaryTables, module_tables


class LeanDecoder:
    """Implements `Decoder`. Shares its weights with the module that it was made from."""

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        base = model.model
        self.config, self.chunk = config, chunk_of(config, model.device)
        self.model = model
        attention = base.layers[0].self_attn
        self.sizes = HeadSizes(
            config.num_attention_heads, config.num_key_value_heads, attention.head_dim,
            float(attention.scaling), float(config.rms_norm_eps),
        )  # fmt: skip
        self.embedding = base.embed_tokens.weight
        self.norm = base.norm.weight
        self.layers = [_layer(layer) for layer in base.layers]
        self.rotary = RotaryTables(module_tables(base))

    @cached_property
    def head(self) -> Stacked:
        """The output head."""
        return pack(self.model.lm_head.weight)

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Compute passes of different conversations in one call; their `depth` must be the same."""
        depth = passes[0].depth
        positions = self._numbers(position for one in passes for position in one.positions)
        token_ids = self._numbers(number for one in passes for number in one.token_ids)
        self.rotary.tables(max(max(one.positions) for one in passes) + 1)
        rows = self._rows(passes)
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
        rows: Sequence[CacheRows],
        wanted: Collection[int],
        depth: int | None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Compute rows through the layers. Reads no value of a tensor on the processor, which would wait for the GPU.

        token_ids, positions: (rows,) int64, within the tables
        returns: (rows, H) before the last norm, and states of the layers `wanted` as `ForwardInput.reads` counts them
        """
        cos, sin = self.rotary.tables(0)
        angles = cos[positions], sin[positions]
        x = self.embedding[token_ids]
        states = {0: x} if 0 in wanted else {}
        for index, layer in enumerate(self.layers[:depth]):
            normed = self._norm(x, layer.input_norm)
            x = after(layer, index, self.sizes, x, normed, angles, rows)
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

    def _rows(self, passes: Sequence[ForwardInput]) -> list[CacheRows]:
        """Put the passes' rows one behind the other."""
        placed, begin = [], 0
        for one in passes:
            rows = len(one.token_ids)
            at = look(one.seen, rows, self.sizes.heads // self.sizes.kv_heads, self.embedding)
            placed.append(CacheRows(begin, begin + rows, one.cache, at))
            begin += rows
        return placed

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.sizes.eps)


def _layer(layer: nn.Module) -> LlamaLayer:
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    norms = None
    if hasattr(attention, "q_norm"):
        norms = (attention.q_norm.weight, attention.k_norm.weight)
    return LlamaLayer(
        layer.input_layernorm.weight,  # type: ignore[union-attr, arg-type]
        stack([attention.q_proj, attention.k_proj, attention.v_proj]),
        stack([attention.o_proj]),
        layer.post_attention_layernorm.weight,  # type: ignore[union-attr, arg-type]
        stack([mlp.gate_proj, mlp.up_proj]),
        stack([mlp.down_proj]),
        norms,
    )
