"""A model whose matrices are the blocks of a GGUF file, and its modules for those who run it through transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.config.strings import Json
from specdemo.files.blocks import HEAD_BLOCKS
from specdemo.files.folder import check_read, find_family, read_config, weight_files
from specdemo.files.quiet import quiet_transformers
from specdemo.kernels.blocks import KINDS, NAMES, BlockMatrix, Part
from specdemo.models.decoders.form import Module

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdemo.files.sources import ModelFiles

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
        parent, _, attribute = module.rpartition(".")
        setattr(
            model.get_submodule(parent),
            attribute,
            BlockLinear(part, stored.pop(f"{module}.bias", None)),
        )
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


def in_blocks(parts: Sequence[Module]) -> bool:
    """Return whether all layers are in blocks of a file."""
    return all(isinstance(part, BlockLinear) for part in parts)


def joined(parts: Sequence[Module], bias: Tensor | None) -> BlockMatrix:
    """Return layers as one matrix. bias: (out,) float32"""
    return BlockMatrix(tuple(part.part for part in parts), bias)
