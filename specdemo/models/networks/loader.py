"""Reads tensors of a drafter by name, as weights that run next to a target."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import Tensor

from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.four_bit import FourBit, Linear, dense, pack_linear, stacked

if TYPE_CHECKING:
    from specdemo.models.loading import LoadedModel

HEAD_ROWS = 16_384  # rows of a head over the whole vocabulary that are packed at the same time


@dataclass(frozen=True, slots=True)
class TargetTensors:
    """Tensors of a loaded target that its drafters share, and how drafters compute next to it.

    embedding: (V, H); output: (V, H), the head if that is another matrix; None for the embedding
    four_bit: whether matrices have 4 bits where the processor's kernel supports their shape
    """

    embedding: Tensor
    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    four_bit: bool = True
    output: Tensor | None = None

    @classmethod
    def of(
        cls, target: LoadedModel, dtype: torch.dtype = torch.bfloat16, *, four_bit: bool = True
    ) -> TargetTensors:
        """Return those of a loaded target."""
        embedding: Any = target.model.get_input_embeddings().weight
        head: Any = target.model.get_output_embeddings().weight
        output = None if head is embedding else head
        return cls(embedding, target.device, dtype, four_bit, output)

    def shared_embedding(self) -> Tensor:
        """(V, H) on the device and in the dtype of the computation."""
        return self.embedding.to(self.device, self.dtype)

    def shared_head(self) -> Tensor:
        """(V, H): the target's head on the device and in the dtype of the computation."""
        output = self.embedding if self.output is None else self.output
        return output.to(self.device, self.dtype)


class TensorLoader:
    """Reads a drafter's tensors. read: a tensor as it is stored, by name; names: of all tensors"""

    def __init__(
        self, read: Callable[[str], Tensor | FourBit], names: Container[str], target: TargetTensors
    ) -> None:
        self.read, self.names, self.target = read, names, target

    def has(self, name: str) -> bool:
        return name in self.names

    def vector(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor, in the dtype of the computation by default."""
        return dense(self.read(name)).to(self.target.device, dtype or self.target.dtype)

    def matrix(self, *names: str, in_pass: bool = False) -> Linear:
        """Return matrices by the names of their modules as one, with their biases. in_pass: see `pack_linear`"""
        parts = [self.read(f"{name}.weight") for name in names]
        weight = stacked(parts, self.target.device, self.target.dtype)
        biases = [self.vector(f"{name}.bias") for name in names if self.has(f"{name}.bias")]
        bias = torch.cat(biases) if biases else None
        return pack_linear(weight, bias, four_bit=self.target.four_bit, in_pass=in_pass)

    def layer(self, prefix: str, *, in_pass: bool = False) -> LlamaLayer:
        """Return one layer. in_pass: see `pack_linear`"""

        def matrix(*names: str) -> Linear:
            return self.matrix(*names, in_pass=in_pass)

        normed = self.has(f"{prefix}self_attn.q_norm.weight")
        return LlamaLayer.read(prefix, matrix, self.vector, normed=normed)

    def embedding(self) -> Tensor:
        """(V, H): the drafter's own embedding if it differs from the target's."""
        return self._own("embed_tokens.weight", self.target.shared_embedding())

    def head(self) -> Linear:
        """Return the drafter's own head if it differs from the target's."""
        return self.wide(self._own("lm_head.weight", self.target.shared_head()))

    def wide(self, weight: Tensor) -> Linear:
        """Pack a matrix with a row per token in parts: as a whole it would take several times its own memory."""
        if not self.target.four_bit:
            return pack_linear(weight, four_bit=False)
        parts = [pack_linear(part, four_bit=True) for part in weight.split(HEAD_ROWS)]
        return lambda x: torch.cat([part(x) for part in parts], dim=-1)

    def _own(self, name: str, shared: Tensor) -> Tensor:
        if not self.has(name):
            return shared
        own = self.vector(name)
        return shared if own.shape == shared.shape and own.equal(shared) else own


def read_tensors(paths: Iterable[Path], wanted: Callable[[str], bool]) -> dict[str, Tensor]:
    """Return some tensors of safetensors files, as they are stored. wanted: whether a name is one of them"""
    found: dict[str, Tensor] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            names = filter(wanted, file.keys())
            found |= {name: file.get_tensor(name) for name in names}
    return found
