"""A lean pass for the families whose layers `files/families.json` describes: the weights of a loaded transformers model, fewer and larger steps.

Matrices that read the same input are one; key/value heads are read from the cache without copies; rotary tables are
computed once; rows of several conversations are multiplied by the matrices in one product. The result is that of the
module, up to the rounding of the number format; `choose.agrees` checks this, and `choose.open_decoder` returns to
the module if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.engine.attention import chunk_of
from specdemo.engine.passes import ForwardInput, ForwardOutput, all_reads, split_outputs
from specdemo.models.decoders.form import ModelForm, Module, form_of
from specdemo.models.decoders.layer import CacheRows, HeadSizes, LlamaLayer, PassRows
from specdemo.models.decoders.operators import Stacked, look, pack, rms_norm, stack
from specdemo.models.decoders.rotary import RotaryTables, module_tables

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu, "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}  # fmt: skip

Windowed = Mapping[int, Sequence[CacheRows]]
"""The rows of all conversations, for each window of a model's layers."""


class LeanDecoder:
    """Implements `Decoder`. Shares its weights with the module that it was made from. Raises ValueError for another family."""

    def __init__(self, model: Module) -> None:
        config = model.config.get_text_config()
        base, form = model.model, form_of(model)
        if form is None:
            raise ValueError(f"no description of the layers of {config.model_type}")
        self.form = form
        self.config, self.chunk = config, chunk_of(config, model.device)
        self.model = model
        attention = base.layers[0].self_attn
        self.sizes = HeadSizes(
            config.num_attention_heads, config.num_key_value_heads, attention.head_dim,
            float(attention.scaling), float(config.rms_norm_eps),
        )  # fmt: skip
        self.embedding = base.embed_tokens.weight
        self.norm = form.norm(base.norm)
        self.layers = [_layer(form, index, layer) for index, layer in enumerate(base.layers)]
        self._kinds = {(layer.rotary, layer.window) for layer in self.layers}
        self.rotary = RotaryTables(module_tables(base, form.rope_kinds))

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
        by_window = {window: self._rows(passes, window) for window in {*self.form.windows}}
        rows = next(iter(by_window.values()))
        wanted = all_reads(passes)
        x, states = self.through(token_ids, positions, by_window, wanted, depth)
        if depth is not None:
            return [ForwardOutput(torch.empty(0), x[one.begin : one.end]) for one in rows]
        asked = [range(at.end - one.answers, at.end) for one, at in zip(passes, rows, strict=True)]
        if sum(map(len, asked)) < len(x):
            x = x[[row for part in asked for row in part]]
        return split_outputs(passes, self.logits(x).split([*map(len, asked)]), wanted, states)

    def through(
        self,
        token_ids: Tensor,
        positions: Tensor,
        rows: Windowed,
        wanted: Sequence[int],
        depth: int | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute rows through the layers. Reads no value of a tensor on the processor, which would wait for the GPU.

        token_ids, positions: (rows,) int64, within the tables
        returns: (rows, H) before the last norm, and the states of the layers `wanted`, see `ForwardOutput`
        """
        cos, sin = (table[:, positions] for table in self.rotary.tables(0))
        angles = {-1: None, **dict(enumerate(zip(cos, sin, strict=True)))}
        found = {
            (kind, window): PassRows(self.sizes, angles[kind], rows[window])
            for kind, window in self._kinds
        }
        x = self.form.embedded(self.embedding, token_ids)
        states = {0: x} if 0 in wanted else {}
        for index, layer in enumerate(self.layers[:depth]):
            normed = rms_norm(x, layer.input_norm, self.sizes.eps)
            x = layer.after(index, found[layer.rotary, layer.window], x, normed)
            if index + 1 in wanted:
                states[index + 1] = x
        last = len(self.layers)
        if last in states:
            states[last] = rms_norm(x, self.norm, self.sizes.eps)
        return x, torch.cat([states[one] for one in wanted], dim=-1) if wanted else None

    def logits(self, x: Tensor) -> Tensor:
        """Apply the last norm and the head. x: (rows, H); returns (rows, V) logits"""
        logits = self.head(rms_norm(x, self.norm, self.sizes.eps))
        return logits if self.form.logits == 1 else logits * self.form.logits

    def _numbers(self, numbers: Iterable[int]) -> Tensor:
        return torch.tensor(list(numbers), device=self.embedding.device)

    def _rows(self, passes: Sequence[ForwardInput], window: int) -> list[CacheRows]:
        """Put the passes' rows one behind the other, for layers with a window; 0 for none."""
        placed, begin = [], 0
        for one in passes:
            rows = len(one.token_ids)
            group = self.sizes.heads // self.sizes.kv_heads
            at = look(one.seen, rows, group, self.embedding, one.cache.start, window)
            placed.append(CacheRows(begin, begin + rows, one.cache.layers, at))
            begin += rows
        return placed


def _layer(form: ModelForm, index: int, layer: Module) -> LlamaLayer:
    attention, mlp = layer.self_attn, layer.mlp
    return LlamaLayer(
        qkv=stack([getattr(attention, name) for name in form.layer.qkv]),
        output=stack([attention.o_proj]),
        gate_up=stack([getattr(mlp, name) for name in form.layer.gate_up]),
        down=stack([mlp.down_proj]),
        activation=ACTIVATIONS[form.activation],
        residual=form.residual,
        **form.of_layer(index, layer),
    )
