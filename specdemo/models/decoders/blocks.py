"""A model whose matrices are the blocks of a GGUF file, and its modules for those who run it through transformers."""

from __future__ import annotations

from collections.abc import Sequence
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


class BlockLinear(nn.Module):
    """A linear layer whose weights are expanded in every call."""

    def __init__(self, part: Part, bias: Tensor | None) -> None:
        super().__init__()
        self.part, self.bias = part, bias
        self.out_features, self.in_features = 32 * len(part.codes), 4 * part.codes.shape[1]

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
        part = _part(stored, name)
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


def _part(stored: dict[str, Tensor], name: str) -> Part:
    """Take a matrix out of the tensors of a folder."""
    kind = bytes(stored.pop(f"{name}.kind").tolist()).decode()
    zeros, steps = (stored.pop(f"{name}.{end}", None) for end in ("zeros", "steps"))
    codes, units = stored.pop(name), stored.pop(f"{name}.units")
    return Part(KINDS[NAMES[kind]], codes, units, zeros, steps)


def in_blocks(parts: Sequence[Module]) -> bool:
    """Return whether all layers are in blocks of a file."""
    return all(isinstance(part, BlockLinear) for part in parts)


def joined(parts: Sequence[Module], bias: Tensor | None) -> BlockMatrix:
    """Return layers as one matrix. bias: (out,) float32"""
    return BlockMatrix(tuple(part.part for part in parts), bias)
