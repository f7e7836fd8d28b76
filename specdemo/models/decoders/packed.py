"""The compiled pass as a decoder, and a module's NF4 matrices in its layout.

The module's layers read the same memory, so nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.engine.attention import chunk_of
from specdemo.engine.passes import ForwardInput, ForwardOutput, all_reads, split_outputs
from specdemo.files.quiet import quiet_transformers
from specdemo.kernels import cpu_features, packing, runtime
from specdemo.kernels.blocks import INPUTS
from specdemo.kernels.packing import BLOCK_OUTPUTS, Packed
from specdemo.models.decoders.blocks import (
    LAYOUT_ROWS,
    NF4_GROUP,
    BlockLinear,
    in_blocks,
    joined,
    part_of_nf4,
)
from specdemo.models.decoders.form import ModelForm, Module, form_of
from specdemo.models.decoders.operators import biases, in_4_bits, scales_of
from specdemo.models.decoders.rotary import RotaryTables, module_tables
from specdemo.models.memory import leave_to_file, on_large_pages, return_freed

PackedLayer = runtime.LayerWeights[runtime.Matrix]


@dataclass(frozen=True, slots=True)
class Coding:
    """Values of the codes, (16,), and the number of inputs that share a scale."""

    code: Tensor
    block: int

    @property
    def in_blocks(self) -> bool:
        """Whether matrices are multiplied in blocks by 8-bit activations."""
        return cpu_features.multiplies_bytes() and self.block == NF4_GROUP

    @property
    def unit(self) -> float:
        """Factor that the compiled pass expects in scales, see `runtime.meanings`."""
        return runtime.meanings(self.code)[1]


class PackedLinear(nn.Module):
    """A linear layer on some rows of a matrix, for those who run the module. It decodes its rows in every call."""

    def __init__(self, matrix: Packed, coding: Coding, first: int, layer: Module) -> None:
        super().__init__()
        self.matrix, self.coding, self.bias = matrix, coding, layer.bias
        self.in_features, self.out_features = int(layer.in_features), int(layer.out_features)
        self._blocks = slice(first // BLOCK_OUTPUTS, (first + self.out_features) // BLOCK_OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply rows by the decoded rows of the matrix. x: (..., in); returns (..., out)"""
        from bitsandbytes.functional import QuantState, dequantize_4bit

        assert self.matrix.scales is not None
        pairs = packing.pairs_of(self.matrix.codes[self._blocks])
        scales = self.matrix.scales[self._blocks].transpose(1, 2) / self.coding.unit
        state = QuantState(
            scales.reshape(-1), quant_type="nf4", shape=torch.Size((len(pairs), 2 * pairs.shape[1])),
            code=self.coding.code, blocksize=self.coding.block, dtype=x.dtype,
        )  # fmt: skip
        weight: Tensor = dequantize_4bit(pairs.reshape(-1, 1), state)
        return F.linear(x, weight, None if self.bias is None else self.bias.to(x.dtype))


@dataclass(frozen=True, slots=True)
class Layout:
    """The form, the coding and the sizes of a model's layers, for the compiled pass."""

    form: ModelForm
    coding: Coding
    shape: runtime.Shape


def layout_of(model: Module) -> Layout | None:
    """Return the layout of a model; None if the compiled pass lacks its sizes or number format, or this processor."""
    if model.device.type != "cpu" or not runtime.runs_here():
        return None
    form = form_of(model)
    if form is None or model.lm_head.weight.dtype != torch.bfloat16:
        return None
    layers = [list(_parts(form, layer)) for layer in model.model.layers]
    if not all(in_4_bits(parts) or in_blocks(parts) for stacks in layers for parts in stacks):
        return None
    output = model.model.layers[0].self_attn.o_proj
    coding = Coding(packing.AFFINE, INPUTS) if in_blocks([output]) else _coding(output)
    shape = _shape_of(model, form, coding.block)
    return Layout(form, coding, shape) if shape else None


def suits_blocks(folder: Path) -> bool:
    """Whether the compiled pass runs the model that a folder's config.json describes, with matrices in blocks of a file."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    with quiet_transformers(), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    form = form_of(model)
    return form is not None and _shape_of(model, form, INPUTS) is not None


def _shape_of(model: Module, form: ModelForm, group: int) -> runtime.Shape | None:
    """Return the sizes of a model's layers; None if the compiled pass lacks them. group: see `Shape`"""
    stacks = [list(_parts(form, layer))[1:] for layer in model.model.layers]
    # The compiled pass supports biases of queries, keys and values only.
    if any(part.bias is not None for parts in stacks for part in chain(*parts)):
        return None
    config, layer = model.config.get_text_config(), model.model.layers[0]
    queries = getattr(layer.self_attn, "q_norm", None)
    shape = runtime.Shape(
        config.num_attention_heads, config.num_key_value_heads, layer.self_attn.head_dim,
        config.hidden_size, int(layer.mlp.down_proj.in_features), group,
        float(config.rms_norm_eps), float(layer.self_attn.scaling), form.residual, form.activation != "silu",
        queries is not None and len(queries.weight) > layer.self_attn.head_dim,
    )  # fmt: skip
    return shape if runtime.fits(shape) else None


def pack_layers(model: Module, form: ModelForm) -> list[PackedLayer]:
    """Pack all layers, one after the other: this needs extra memory for one layer only."""
    return [_pack_layer(form, index, layer) for index, layer in enumerate(model.model.layers)]


def _groups(form: ModelForm, layer: Module) -> list[tuple[Module, Sequence[str]]]:
    """Modules of a layer, and the names in them of matrices that are stacked: those that read the same input."""
    attention, mlp = layer.self_attn, layer.mlp
    return [
        (attention, form.layer.qkv), (attention, ("o_proj",)), (mlp, form.layer.gate_up), (mlp, ("down_proj",)),
    ]  # fmt: skip


def _parts(form: ModelForm, layer: Module) -> Iterator[list[Module]]:
    """Yield the linear layers that are stacked, a list for each matrix."""
    for parent, names in _groups(form, layer):
        yield [getattr(parent, name) for name in names]


def _coding(layer: Module) -> Coding:
    state = layer.weight.quant_state
    return Coding(state.code, int(state.blocksize))


def _pack_layer(form: ModelForm, index: int, layer: Module) -> PackedLayer:
    parts = [part for stacks in _parts(form, layer) for part in stacks]
    stored_in = [part.weight.data for part in parts if hasattr(part, "weight")]
    qkv, output, gate_up, down = (_pack(*one) for one in _groups(form, layer))
    leave_to_file(*stored_in)
    del stored_in
    return_freed()  # the layer's former memory, and its decoded copies
    others = form.of_layer(index, layer, torch.float32)
    return runtime.LayerWeights(qkv=qkv, output=output, gate_up=gate_up, down=down, **others)


def _pack(parent: Module, names: Sequence[str]) -> runtime.Matrix:
    """Join linear layers of a module in one matrix, which they read from now on."""
    parts = [getattr(parent, name) for name in names]
    bias = biases(parts)
    bias = None if bias is None else bias.float()
    if in_blocks(parts):
        return joined(parts, bias)
    coding = _coding(parts[0])
    matrix: runtime.Matrix
    readers: list[Module]
    if coding.in_blocks:
        readers = [BlockLinear(part_of_nf4(part.weight), part.bias) for part in parts]
        matrix = joined(readers, bias)
    else:
        matrix = stack = _stack(parts, coding, bias)
        firsts = accumulate((part.out_features for part in parts), initial=0)
        readers = [
            PackedLinear(stack, coding, first, part)
            for first, part in zip(firsts, parts, strict=False)
        ]
    for name, part, reader in zip(names, parts, readers, strict=True):
        setattr(parent, name, reader)
        # Layer and weight refer to each other, so they would stay in memory until the next garbage collection.
        part.weight.data, part.weight.module = part.weight.data.new_empty(0), None
    return matrix


def _stack(parts: Sequence[Module], coding: Coding, bias: Tensor | None) -> Packed:
    """Matrices as bitsandbytes stores them, laid out on top of each other. Scales are the coding's times its unit."""
    inputs = int(parts[0].in_features)
    blocks = sum(part.out_features for part in parts) // BLOCK_OUTPUTS
    codes = on_large_pages(torch.empty(blocks, inputs // 2, BLOCK_OUTPUTS, dtype=torch.uint8))
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
    return Packed(codes, scales, None, bias)


class CompiledDecoder:
    """Implements `Decoder`. A row's result is the same, bit for bit, in any pass and next to any other rows.

    model: shares its embedding and its rotary embedding
    """

    def __init__(self, model: Module, form: ModelForm, layers: runtime.CompiledLayers) -> None:
        base = model.model
        self.config = model.config.get_text_config()
        self.chunk = chunk_of(self.config, model.device)
        self._layers, self._form, self._embedding = layers, form, base.embed_tokens.weight
        self._words = len(model.lm_head.weight)
        self._is_plain = form.embedding == 1 and self._embedding.dtype == torch.bfloat16
        self._tables = RotaryTables(module_tables(base, form.rope_kinds))

    @property
    def head(self) -> runtime.Matrix:
        """The output head as it is read."""
        return self._layers.head

    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Compute passes of different conversations in one call; their `depth` must be the same."""
        depth = passes[0].depth
        x = self._embedded([token for one in passes for token in one.token_ids])
        cos, sin = self._tables.full(max(max(one.positions) for one in passes) + 1)
        sequences = [
            runtime.SequenceRows(
                one.positions, one.cache, one.seen, one.answers if depth is None else 0
            )
            for one in passes
        ]
        rows = runtime.Rows(x, cos, sin, sequences)
        reads = all_reads(passes)
        found = self._layers.run(rows, 0, depth, reads=reads, final=depth is not None)
        if found.final is not None:
            states = found.final.to(self._embedding.dtype)
            parts = states.split([len(one.token_ids) for one in passes])
            return [ForwardOutput(torch.empty(0), part) for part in parts]
        logits = [rows[:, : self._words] for rows in found.logits]
        return split_outputs(passes, logits, reads, found.states)

    def _embedded(self, token_ids: Sequence[int]) -> Tensor:
        """Return the first layer's inputs, (rows, H) float32."""
        if self._is_plain:
            return runtime.rows_of(self._embedding, token_ids)
        return self._form.embedded(self._embedding, torch.tensor(token_ids)).float()
