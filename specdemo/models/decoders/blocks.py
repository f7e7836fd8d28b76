"""Matrices in blocks: those of a GGUF file and of NF4, and their modules for those who run the model through transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.config.strings import Json
from specdemo.files.blocks import HEAD_BLOCKS, Blocks, lay
from specdemo.files.folder import check_read, find_family, read_config, weight_files
from specdemo.files.quiet import quiet_transformers
from specdemo.kernels import cpu_features, packing
from specdemo.kernels.blocks import INPUTS, KINDS, NAMES, BlockMatrix, Part
from specdemo.kernels.packing import BLOCK_OUTPUTS
from specdemo.kernels.runtime import Matrix
from specdemo.models.decoders.form import Module
from specdemo.models.decoders.operators import scales_of
from specdemo.models.memory import on_large_pages

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdemo.files.sources import ModelFiles

LAYOUT_ROWS = 512  # rows laid out at a time, which limits the extra memory to that of a slice
NF4_GROUP = 64  # inputs to a scale
SMALLEST_HALF = 2.0**-24  # above 0
ENDS = ("kind", "units", "zeros", "steps")  # of the names of a matrix's tensors beside its codes


class BlockLinear(nn.Module):
    """A linear layer whose weights are expanded in every call."""

    def __init__(self, part: Part, bias: Tensor | None) -> None:
        super().__init__()
        self.part, self.bias = part, bias
        self.out_features, self.in_features = part.outputs, 4 * part.codes.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        """Multiply rows by the expanded matrix. x: (..., in); returns (..., out)"""
        return F.linear(x, self.part.values(0, self.out_features).to(x.dtype), self.bias)


def load_blocks(files: ModelFiles) -> PreTrainedModel:
    """Load a folder that `files.blocks.FileBlocks` has filled, on the processor. Raises UserError."""
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
    from transformers.initialization import no_init_weights

    folder = files.folder
    stored: dict[str, Tensor] = {}
    for path in weight_files(folder, files.name):
        stored |= load_file(path)
    with quiet_transformers(), no_init_weights():
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
        del config.quantization_config
        kind = read_config(folder, files.name)["model_type"]
        model: Module = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation=find_family(model_type=kind).attention
        )
        model.generation_config = GenerationConfig.from_pretrained(str(folder))
    heads = []
    for name in [key.removesuffix(".kind") for key in stored if key.endswith(".kind")]:
        facts = {end: stored.pop(f"{name}.{end}") for end in ENDS if f"{name}.{end}" in stored}
        part = part_of(stored.pop(name), facts)
        if name.endswith(HEAD_BLOCKS):
            heads.append(part)
            continue
        module, _, _ = name.rpartition(".")
        model.set_submodule(module, BlockLinear(part, stored.pop(f"{module}.bias", None)))
    report = model.load_state_dict(stored, strict=False, assign=True)
    model.tie_weights()
    if heads:
        model.lm_head.blocks = BlockMatrix(tuple(heads))
    missing = {*report.missing_keys} - {*model.all_tied_weights_keys}
    unread: Json = {
        "missing_keys": missing,
        "mismatched_keys": (),
        "unexpected_keys": report.unexpected_keys,
    }
    check_read(folder, files.name, unread)
    loaded: PreTrainedModel = model
    return loaded


def part_of(codes: Tensor, facts: Mapping[str, Tensor]) -> Part:
    """Return a matrix of a folder. codes: the tensor with its name; facts: the others, by the ends of their names"""
    kind = bytes(facts["kind"].tolist()).decode()
    units, zeros, steps = facts["units"], facts.get("zeros"), facts.get("steps")
    return Part(KINDS[NAMES[kind]], codes, units, zeros, steps)


def part_of_blocks(blocks: Blocks) -> Part:
    """Lay out a matrix for the compiled pass."""
    laid = {end[1:] or "codes": torch.from_numpy(one) for end, one in lay(blocks).items()}
    return Part(KINDS[NAMES[blocks.kind]], **laid)


def part_of_slices(outputs: int, slices: Iterable[Blocks]) -> Part:
    """Lay out a matrix whose rows come in slices, with the extra memory of one slice. Its format has no zero points."""
    tensors: dict[str, Tensor] = {}
    first = 0
    for blocks in slices:
        part = part_of_blocks(blocks)
        last = first + len(part.codes)
        for name, one in (("codes", part.codes), ("units", part.units)):
            shape = (outputs // BLOCK_OUTPUTS, *one.shape[1:])
            if name not in tensors:
                tensors[name] = on_large_pages(one.new_empty(shape))
            tensors[name][first:last] = one
        first = last
    return Part(part.kind, **tensors)


def part_of_nf4(weight: Any) -> Part:
    """Lay out a matrix that bitsandbytes has quantised: the same codes, and scales in float16.

    weight: (out, in) in NF4, with 64 inputs to a scale
    """
    outputs = int(weight.quant_state.shape[0])
    scales = scales_of(weight.quant_state).view(outputs, -1).half().split(LAYOUT_ROWS)
    pairs = weight.data.view(torch.uint8).view(outputs, -1).split(LAYOUT_ROWS)
    codes = (torch.stack([rows >> 4, rows & 15], dim=-1).flatten(1) for rows in pairs)
    slices = (Blocks("NF4", a.numpy(), b.numpy()) for a, b in zip(codes, scales, strict=True))
    return part_of_slices(outputs, slices)


def head_of_bytes(weight: Tensor) -> Matrix:
    """Return an output head in whole numbers of 8 bits, in blocks where activations have 8 bits too. weight: (V, hidden)"""
    if not cpu_features.multiplies_bytes():
        return packing.whole_numbers(weight)
    most = packing.MOST_BYTE

    def blocks(rows: Tensor) -> Blocks:
        groups = rows.detach().float().view(len(rows), -1, INPUTS)
        units = (groups.abs().amax(-1) / most).clamp(min=SMALLEST_HALF).half()
        codes = (groups / units.float()[..., None]).round().clamp(-most, most) + 128
        return Blocks("Q8_0", codes.to(torch.uint8).flatten(1).numpy(), units.numpy())

    return BlockMatrix(
        (part_of_slices(len(weight), map(blocks, weight.split(packing.SLICE_OUTPUTS))),)
    )


def in_blocks(parts: Sequence[Module]) -> bool:
    """Return whether the weights of all these linear layers are in blocks."""
    return all(isinstance(part, BlockLinear) for part in parts)


def joined(parts: Sequence[Module], bias: Tensor | None) -> BlockMatrix:
    """Return layers as one matrix. bias: (out,) float32"""
    return BlockMatrix(tuple(part.part for part in parts), bias)
