"""The compiled pass as a decoder, and a module's NF4 matrices in its layout.

The module's layers read the same memory, so nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.engine.attention import chunk_of
from specdemo.engine.passes import ForwardInput, ForwardOutput
from specdemo.kernels import packing, runtime
from specdemo.kernels.blocks import INPUTS
from specdemo.kernels.packing import BLOCK_OUTPUTS, Packed
from specdemo.models.decoders.blocks import in_blocks, joined
from specdemo.models.decoders.form import ModelForm, form_of
from specdemo.models.decoders.operators import (
    Nf4Stack,
    biases,
    in_4_bits,
    laid_out,
    rms_norm,
    scales_of,
)
from specdemo.models.decoders.rotary import RotaryTables, module_tables
from specdemo.models.devices import leave_to_file, return_freed

Result = TypeVar("Result")
LAYOUT_ROWS = 512  # rows that are laid out at a time: the room that this takes is a slice's


@dataclass(frozen=True, slots=True)
class Coding:
    """Values of the codes, (16,), and the number of inputs that share a scale."""

    code: Tensor
    block: int

    @property
    def unit(self) -> float:
        """Factor that the compiled pass expects in scales, see `runtime.meanings`."""
        return runtime.meanings(self.code)[1]


@dataclass(frozen=True, slots=True)
class PackedStack:
    """NF4 matrices on top of each other. The matrix's scales are those of its coding times its unit."""

    matrix: Packed
    coding: Coding

    def rows(self, first: int, last: int, dtype: torch.dtype) -> Tensor:
        """Rows of the matrix, both in whole blocks. returns: (rows, in)"""
        from bitsandbytes.functional import QuantState, dequantize_4bit

        blocks = slice(first // BLOCK_OUTPUTS, last // BLOCK_OUTPUTS)
        pairs = packing.pairs_of(self.matrix.codes[blocks])
        assert self.matrix.scales is not None
        scales = self.matrix.scales[blocks].transpose(1, 2) / self.coding.unit
        state = QuantState(
            scales.reshape(-1), quant_type="nf4", shape=torch.Size((len(pairs), 2 * pairs.shape[1])),
            code=self.coding.code, blocksize=self.coding.block, dtype=dtype,
        )  # fmt: skip
        found: Tensor = dequantize_4bit(pairs.reshape(-1, 1), state)
        return found


class PackedLinear(nn.Module):
    """A linear layer on some rows of a stack, for those who run the module. It decodes its rows in every call."""

    def __init__(self, stack: PackedStack, first: int, layer: Any) -> None:
        super().__init__()
        self.stack, self.first, self.bias = stack, first, layer.bias
        self.in_features, self.out_features = int(layer.in_features), int(layer.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in). returns: (..., out)"""
        weight = self.stack.rows(self.first, self.first + self.out_features, x.dtype)
        return F.linear(x, weight, None if self.bias is None else self.bias.to(x.dtype))


def compiles(model: Any) -> bool:
    """Return True if the compiled pass supports a model's sizes and number format, and this processor."""
    if model.device.type != "cpu" or not runtime.runs_here():
        return False
    if model.lm_head.weight.dtype != torch.bfloat16:
        return False
    form = form_of(model)
    if form is None:
        return False
    layers = [list(_parts(form, layer)) for layer in model.model.layers]
    known = (in_4_bits, in_blocks, _shared)
    if not all(any(is_(parts) for is_ in known) for stacks in layers for parts in stacks):
        return False
    # The compiled pass supports biases of queries, keys and values only.
    beyond = [part for _, *stacks in layers for parts in stacks for part in parts]
    return all(part.bias is None for part in beyond) and runtime.fits(shape_of(model, form))


def described(model: Any) -> ModelForm:
    """The form of a model that `compiles`."""
    form = form_of(model)
    assert form is not None
    return form


def is_fused(model: Any) -> bool:
    """Whether bitsandbytes' own fused kernel multiplies by all matrices."""
    form = form_of(model)
    return form is not None and all(
        laid_out(part)
        for layer in model.model.layers
        for one in _parts(form, layer)
        for part in one
    )


def shape_of(model: Any, form: ModelForm) -> runtime.Shape:
    """Sizes of a model's layers."""
    config, layer = model.config.get_text_config(), model.model.layers[0]
    queries = getattr(layer.self_attn, "q_norm", None)
    return runtime.Shape(
        config.num_attention_heads, config.num_key_value_heads, layer.self_attn.head_dim,
        config.hidden_size, int(layer.mlp.down_proj.in_features), coding_of(model).block,
        float(config.rms_norm_eps), float(layer.self_attn.scaling), form.residual, form.activation != "silu",
        queries is not None and len(queries.weight) > layer.self_attn.head_dim,
    )  # fmt: skip


def coding_of(model: Any) -> Coding:
    """Return the coding of a model's matrices."""
    part = model.model.layers[0].self_attn.o_proj
    if in_blocks([part]):
        return Coding(packing.AFFINE, INPUTS)
    return part.stack.coding if isinstance(part, PackedLinear) else _coding(part)


def pack_layers(model: Any) -> list[runtime.LayerWeights]:
    """Pack all layers, one after the other: this needs extra memory for one layer only."""
    form = described(model)
    return [_pack_layer(form, index, layer) for index, layer in enumerate(model.model.layers)]


def pack_behind(model: Any, run: Callable[[], Result]) -> tuple[list[runtime.LayerWeights], Result]:
    """Pack each layer as soon as one pass of the module has computed it. run: that pass"""
    found: list[runtime.LayerWeights] = []
    form = described(model)

    def take(layer: nn.Module, *_: object) -> None:
        found.append(_pack_layer(form, len(found), layer))

    hooks = [layer.register_forward_hook(take) for layer in model.model.layers]
    try:
        result = run()
    finally:
        for hook in hooks:
            hook.remove()
    return found, result


def _groups(form: ModelForm, layer: Any) -> list[tuple[Any, Sequence[str]]]:
    """Modules of a layer, and the names in them of matrices that are stacked: those that read the same input."""
    attention, mlp = layer.self_attn, layer.mlp
    return [
        (attention, form.layer.qkv), (attention, ("o_proj",)), (mlp, form.layer.gate_up), (mlp, ("down_proj",)),
    ]  # fmt: skip


def _parts(form: ModelForm, layer: Any) -> Iterator[list[Any]]:
    """The linear layers that are stacked."""
    for parent, names in _groups(form, layer):
        yield [getattr(parent, name) for name in names]


def _shared(parts: Sequence[Any]) -> bool:
    """Whether layers read a stack already."""
    return all(isinstance(part, PackedLinear) and part.stack is parts[0].stack for part in parts)


def _coding(layer: Any) -> Coding:
    state = layer.weight.quant_state
    return Coding(state.code, int(state.blocksize))


def _pack_layer(form: ModelForm, index: int, layer: Any) -> runtime.LayerWeights:
    parts = [part for stacks in _parts(form, layer) for part in stacks]
    stored_in = [part.weight.data for part in parts if hasattr(part, "weight")]
    qkv, output, gate_up, down = (_pack(*one) for one in _groups(form, layer))
    leave_to_file(*stored_in)
    del stored_in
    return_freed()  # the layer's former memory, and its decoded copies
    before, attended, between, gated, queries, keys = form.norms(layer, torch.float32)
    return runtime.LayerWeights(
        before, between, qkv, output, gate_up, down, queries, keys, attended, gated,
        form.rotary[index], form.windows[index],
    )  # fmt: skip


def _pack(parent: Any, names: Sequence[str]) -> runtime.Matrix:
    """Linear layers of a module as one matrix, which they read from now on."""
    parts = [getattr(parent, name) for name in names]
    if _shared(parts):
        shared: PackedStack = parts[0].stack
        return shared.matrix
    bias = biases(parts)
    bias = None if bias is None else bias.float()
    if in_blocks(parts):
        return joined(parts, bias)
    if all(laid_out(part) for part in parts):  # as bitsandbytes stores it for its own kernel
        stacked = Nf4Stack(parts)
        scales = packing.in_blocks(stacked.scales.float() * _coding(parts[0]).unit)
        return Packed(_in_blocks(stacked.packed), scales, None, bias)
    stack = _stack(parts, bias)
    first = 0
    for name, part in zip(names, parts, strict=True):
        setattr(parent, name, PackedLinear(stack, first, part))
        first += part.out_features
        # Layer and weight refer to each other, so they would stay in memory until the next garbage collection.
        part.weight.data, part.weight.module = part.weight.data.new_empty(0), None
    return stack.matrix


def _stack(parts: Sequence[Any], bias: Tensor | None) -> PackedStack:
    """Matrices as bitsandbytes stores them, laid out on top of each other."""
    coding, inputs = _coding(parts[0]), int(parts[0].in_features)
    blocks = sum(part.out_features for part in parts) // BLOCK_OUTPUTS
    codes = torch.empty(blocks, inputs // 2, BLOCK_OUTPUTS, dtype=torch.uint8)
    scales = torch.empty(blocks, inputs // coding.block, BLOCK_OUTPUTS)
    at = 0
    for part in parts:
        number = part.out_features // BLOCK_OUTPUTS
        steps = scales_of(part.weight.quant_state).view(part.out_features, -1)
        scales[at : at + number] = packing.in_blocks(steps.t() * coding.unit)
        pairs = part.weight.data.view(torch.uint8).view(part.out_features, -1)
        for rows in pairs.split(LAYOUT_ROWS):
            number = len(rows) // BLOCK_OUTPUTS
            codes[at : at + number] = packing.lay_pairs(rows)
            at += number
    return PackedStack(Packed(codes, scales, None, bias), coding)


def _in_blocks(codes: Tensor) -> Tensor:
    """Return codes of (out, in / 2) bytes, in any order, as (out / 32, in / 2, 32)."""
    return codes.view(-1, codes.shape[1], BLOCK_OUTPUTS)


class CompiledDecoder:
    """Implements `Decoder`. A row's result is the same, bit for bit, in any pass and next to any other rows.

    model: shares its embedding, its last norm and its rotary embedding
    """

    def __init__(self, model: Any, form: ModelForm, layers: runtime.CompiledLayers) -> None:
        base = model.model
        self.config, self.chunk = (
            model.config.get_text_config(),
            chunk_of(model.config.get_text_config(), model.device),
        )
        self._layers, self._form, self._embedding = layers, form, base.embed_tokens.weight
        self._norm, self._words = form.norm(base.norm), len(model.lm_head.weight)
        self._tables = RotaryTables(module_tables(base, form.rope_kinds))

    @property
    def head(self) -> runtime.Matrix:
        """The output head as it is read."""
        return self._layers.head

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Compute passes of different conversations in one call; their `depth` must be the same."""
        depth = passes[0].depth
        last = self.config.num_hidden_layers
        token_ids = torch.tensor([token for one in passes for token in one.token_ids])
        embedded = self._form.embedded(self._embedding, token_ids)
        cos, sin = self._tables.full(max(max(one.positions) for one in passes) + 1)
        sequences = [
            runtime.SequenceRows(
                one.positions, one.cache, one.seen, one.answers if depth is None else 0
            )
            for one in passes
        ]
        wanted = {layer for one in passes for layer in one.reads}
        inner = {layer: torch.empty_like(embedded) for layer in wanted if 0 < layer < last}
        rows = runtime.Rows(embedded.float(), cos, sin, sequences)
        final = depth is not None or last in wanted
        found = self._layers.run(rows, 0, depth, states=inner, final=final)
        counts = [len(one.token_ids) for one in passes]
        if depth is not None:
            assert found.final is not None
            parts = found.final.to(embedded.dtype).split(counts)
            return [ForwardOutput(torch.empty(0), (part,)) for part in parts]
        states = {0: embedded} | inner
        if found.final is not None:
            final_states = found.final.to(embedded.dtype)
            states[last] = rms_norm(final_states, self._norm, self._layers.shape.epsilon)
        by_layer = {layer: states[layer].split(counts) for layer in wanted}
        return [
            ForwardOutput(
                logits[:, : self._words], tuple(by_layer[layer][number] for layer in one.reads)
            )
            for number, (one, logits) in enumerate(zip(passes, found.logits, strict=True))
        ]
