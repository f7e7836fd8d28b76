"""The 4-bit matrices of trained drafters: asymmetric, 32 weights to a scale."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.kernels import packing, runtime
from specdemo.kernels.packing import Packed

GROUP = 32  # weights that share a scale
PARTS = (".scale", ".zero")  # of a matrix on disk, beside its levels
Linear = Callable[[Tensor], Tensor]


class FourBitLinear:
    """A linear map in 4 bits, which runs one row several times faster than bfloat16.

    packed: the same for the compiled pass; None where that does not run or does not need it
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        in_pass: bool,
    ) -> None:
        levels, scale, zero = _levels(weight)
        levels = levels.reshape(weight.shape)
        self._levels = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.to(torch.int32), 1)
        both = torch.stack([scale, zero], dim=-1).transpose(0, 1)
        self._scales_and_zeros = both.contiguous().to(weight.dtype)
        fits = in_pass and weight.dtype == torch.bfloat16 and runtime.runs_here()
        self.packed = packing.pack_codes(levels, scale, zero, bias) if fits else None
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in). returns: (rows, out)"""
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, self._levels, GROUP, self._scales_and_zeros
        )
        return product if self._bias is None else product + self._bias.to(product.dtype)


def pack_linear(
    weight: Tensor, bias: Tensor | None = None, *, four_bit: bool, in_pass: bool = False
) -> Linear:
    """A linear map, in 4 bits where the CPU kernel takes its shape, else in the weight's dtype.

    weight: (out, in); bias: (out,); in_pass: of a layer or the head of a drafter, which the compiled pass reads too
    """
    out_features, in_features = weight.shape
    if not four_bit or weight.device.type != "cpu" or in_features % GROUP or out_features % 32:
        return lambda x: F.linear(x, weight, bias)
    return FourBitLinear(weight, bias, in_pass=in_pass)


def fits(weight: Tensor) -> bool:
    """Whether a matrix (out, in) is of a shape that 4 bits are kept for."""
    return not (weight.shape[1] % GROUP or weight.shape[0] % 32)


def to_four_bit(weight: Tensor) -> dict[str, Tensor]:
    """A matrix (out, in) as it is kept on disk: two levels a byte, and PARTS (out, groups) bf16."""
    levels, scale, zero = _levels(weight)
    even, odd = levels.to(torch.uint8).reshape(len(weight), -1, 2).unbind(-1)
    return {"": even | odd << 4, ".scale": scale.bfloat16(), ".zero": zero.bfloat16()}


def from_four_bit(parts: dict[str, Tensor]) -> Tensor:
    """(out, in) float32: a matrix that `to_four_bit` gave."""
    scale, zero = (parts[part].float()[..., None] for part in PARTS)
    levels = torch.stack([parts[""] & 15, parts[""] >> 4], dim=-1)
    return ((levels.view(len(scale), -1, GROUP).float() - 8) * scale + zero).flatten(1)


def pack(weight: Tensor) -> Packed:
    """A matrix for the compiled pass."""
    levels, scale, zero = _levels(weight)
    return packing.pack_codes(levels.reshape(weight.shape), scale, zero)


def rounded(weight: Tensor) -> Tensor:
    """A matrix with the values that `pack_linear` computes with; unchanged where it stays as it is."""
    if not fits(weight):
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
