"""The 4-bit matrices of trained drafters: asymmetric, 32 weights to a scale."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.kernels import packing, runtime
from specdemo.kernels.packing import Packed

GROUP = 32  # weights that share a scale
Linear = Callable[[Tensor], Tensor]


class FourBitLinear:
    """A bias-free linear map in 4 bits, which runs one row several times faster than bfloat16.

    packed: the same for the compiled pass; None where that does not run or does not need it
    """

    def __init__(self, weight: Tensor, *, in_pass: bool) -> None:
        levels, scale, zero = _levels(weight)
        levels = levels.reshape(weight.shape)
        self._levels = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.to(torch.int32), 1)
        both = torch.stack([scale, zero], dim=-1).transpose(0, 1)
        self._scales_and_zeros = both.contiguous().to(weight.dtype)
        fits = in_pass and weight.dtype == torch.bfloat16 and runtime.runs_here()
        self.packed = packing.pack_codes(levels, scale, zero) if fits else None

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in). returns: (rows, out)"""
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self._levels, GROUP, self._scales_and_zeros
        )
        return product


def pack_linear(weight: Tensor, *, four_bit: bool, in_pass: bool = False) -> Linear:
    """A bias-free linear map, in 4 bits where the CPU kernel takes its shape, else in the weight's dtype.

    weight: (out, in); in_pass: of a layer or the head of a drafter, which the compiled pass reads too
    """
    out_features, in_features = weight.shape
    if not four_bit or weight.device.type != "cpu" or in_features % GROUP or out_features % 32:
        return lambda x: F.linear(x, weight)
    return FourBitLinear(weight, in_pass=in_pass)


def pack(weight: Tensor) -> Packed:
    """A matrix for the compiled pass."""
    levels, scale, zero = _levels(weight)
    return packing.pack_codes(levels.reshape(weight.shape), scale, zero)


def rounded(weight: Tensor) -> Tensor:
    """A matrix with the values that `pack_linear` computes with; unchanged where it stays as it is."""
    if weight.shape[1] % GROUP or weight.shape[0] % 32:
        return weight
    levels, scale, zero = _levels(weight)
    # Scales and zeros are kept in bf16.
    scale, zero = (x.bfloat16().float()[..., None] for x in (scale, zero))
    return ((levels - 8) * scale + zero).reshape(weight.shape).to(weight.dtype)


def _levels(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Levels 0 to 15 (out, groups, 32), and each group's scale and zero: (level - 8) * scale + zero is the weight."""
    groups = weight.float().reshape(weight.shape[0], -1, GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scale = ((high - low) / 15).clamp(min=1e-8)
    levels = ((groups - low[..., None]) / scale[..., None]).round_().clamp_(0, 15)
    return levels, scale, low + 8 * scale
