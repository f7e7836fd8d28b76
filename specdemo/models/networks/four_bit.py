"""The 4-bit matrices of trained drafters: asymmetric, 32 weights to a scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.files.blocks import Blocks
from specdemo.kernels import cpu_features, packing, runtime
from specdemo.kernels.blocks import BlockMatrix
from specdemo.kernels.runtime import Matrix
from specdemo.models.decoders.blocks import part_of_blocks

GROUP_WEIGHTS = 32  # weights that share a scale
STORED_PARTS = (".scale", ".zero")  # tensors of a matrix on disk in addition to its levels
Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class FourBit:
    """A matrix of (level - 8) * scale + zero.

    levels: (out, in) uint8, 0 to 15; scale, zero: (out, groups) bfloat16, of 32 levels each
    """

    levels: Tensor
    scale: Tensor
    zero: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> FourBit:
        """Return the nearest 4-bit matrix to a matrix (out, in)."""
        groups = weight.float().reshape(len(weight), -1, GROUP_WEIGHTS)
        low, high = groups.aminmax(dim=-1)
        scale = ((high - low) / 15).clamp_(min=1e-8)
        levels = (groups - low[..., None]).div_(scale[..., None]).round_().clamp_(0, 15)
        zero = low + 8 * scale
        return cls(levels.flatten(1).to(torch.uint8), scale.bfloat16(), zero.bfloat16())

    @classmethod
    def stored(cls, parts: Mapping[str, Tensor]) -> FourBit:
        levels = torch.stack([parts[""] & 15, parts[""] >> 4], dim=-1).flatten(1)
        return cls(levels, *(parts[part] for part in STORED_PARTS))

    def parts(self) -> dict[str, Tensor]:
        """Return the tensors for the disk: two levels per byte, and STORED_PARTS."""
        even, odd = self.levels.view(len(self.levels), -1, 2).unbind(-1)
        return {"": even | odd << 4, ".scale": self.scale, ".zero": self.zero}

    def dense(self) -> Tensor:
        """Return the values of the matrix, (out, in) float32."""
        scale, zero = (part.float()[..., None] for part in (self.scale, self.zero))
        levels = self.levels.view(len(self.levels), -1, GROUP_WEIGHTS).float()
        return ((levels - 8) * scale + zero).flatten(1)


class FourBitLinear:
    """A linear map in 4 bits, which runs one row several times faster than bfloat16.

    packed: the same for the compiled pass; None where that does not run or does not need it
    """

    def __init__(
        self, weight: FourBit, bias: Tensor | None, dtype: torch.dtype, *, in_pass: bool
    ) -> None:
        levels = weight.levels.to(torch.int32)
        self._levels = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, 1)
        both = torch.stack([weight.scale, weight.zero], dim=-1).transpose(0, 1)
        self._scales_and_zeros = both.contiguous().to(dtype)
        fits = in_pass and dtype == torch.bfloat16 and runtime.runs_here()
        self.packed = pack(weight, bias) if fits else None
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply rows by the matrix. x: (rows, in); returns (rows, out)"""
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self._levels, GROUP_WEIGHTS, self._scales_and_zeros
        )
        return product if self._bias is None else product + self._bias.to(product.dtype)


def pack_linear(
    weight: Tensor | FourBit,
    bias: Tensor | None = None,
    *,
    four_bit: bool,
    in_pass: bool = False,
) -> Linear:
    """Return a linear map, in 4 bits if the CPU kernel supports its shape, else in the weight's dtype.

    weight: (out, in); bias: (out,); in_pass: of a layer or the head of a drafter, which the compiled pass reads too
    """
    if isinstance(weight, FourBit):
        if four_bit and weight.levels.device.type == "cpu":
            return FourBitLinear(weight, bias, torch.bfloat16, in_pass=in_pass)
        weight = weight.dense().bfloat16()
    if not four_bit or weight.device.type != "cpu" or not fits(weight):
        return lambda x: F.linear(x, weight, bias)
    return FourBitLinear(FourBit.of(weight), bias, weight.dtype, in_pass=in_pass)


def stacked(
    parts: Sequence[Tensor | FourBit], device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> Tensor | FourBit:
    """Join matrices with the same inputs: in 4 bits if all are, else in `dtype`."""
    coarse = [part for part in parts if isinstance(part, FourBit)]
    if len(coarse) < len(parts):
        return torch.cat([dense(part) for part in parts]).to(device, dtype)
    return FourBit(
        torch.cat([part.levels for part in coarse]).to(device),
        torch.cat([part.scale for part in coarse]).to(device),
        torch.cat([part.zero for part in coarse]).to(device),
    )


def dense(weight: Tensor | FourBit) -> Tensor:
    """Return a matrix, (out, in), unpacked if it is packed."""
    return weight.dense() if isinstance(weight, FourBit) else weight


def fits(weight: Tensor) -> bool:
    """Whether the 4-bit format supports the shape of a matrix (out, in)."""
    return not (weight.shape[1] % GROUP_WEIGHTS or weight.shape[0] % 32)


def rounded(weight: Tensor) -> Tensor:
    """Round a matrix to the values that `pack_linear` computes with; unchanged if its shape does not fit."""
    return FourBit.of(weight).dense().to(weight.dtype) if fits(weight) else weight


def pack(weight: FourBit, bias: Tensor | None = None) -> Matrix:
    """Return a matrix in the layout of the compiled pass. bias: (out,)"""
    if not cpu_features.multiplies_bytes():
        return packing.pack_codes(weight.levels, weight.scale, weight.zero, bias)
    scale, zero = (one.detach().half().numpy() for one in (weight.scale, weight.zero))
    part = part_of_blocks(Blocks("I4", weight.levels.detach().numpy(), scale, zero))
    return BlockMatrix((part,), None if bias is None else bias.float())
