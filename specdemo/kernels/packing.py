"""4-bit matrices as the compiled pass reads them: codes in blocks of 32 outputs, and the scales of each group of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32  # outputs that are laid out together
AFFINE = torch.arange(16, dtype=torch.bfloat16) - 8  # what codes mean in matrices of levels


@dataclass(frozen=True, slots=True)
class Packed:
    """A 4-bit matrix as compiled products read it.

    codes: as bitsandbytes lays out NF4 for its CPU kernel
    scales, zeros: (out // 32, groups, 32), in the order in which codes are read: float32 where codes mean values
        and zeros are None, else bfloat16
    """

    codes: Tensor
    scales: Tensor | None
    zeros: Tensor | None = None
    bias: Tensor | None = None


def pack_codes(levels: Tensor, scale: Tensor, zero: Tensor) -> Packed:
    """A matrix of (level - 8) * scale + zero, for AFFINE. levels: (out, in), 0 to 15; scale, zero: (out, groups)"""
    scales, zeros = (in_blocks(one.bfloat16().t()) for one in (scale, zero))
    return Packed(lay_codes(levels), scales, zeros)


def lay_codes(levels: Tensor) -> Tensor:
    """Codes (out, in) two in a byte, in the order of `Packed`."""
    outputs, inputs = levels.shape
    blocks = levels.to(torch.uint8).view(outputs // 32, 32, inputs // 2, 2).transpose(1, 2)
    lower, upper = blocks.reshape(outputs // 32, inputs // 2, 64).chunk(2, dim=-1)
    return (lower | upper << 4).contiguous()


def in_blocks(scales: Tensor) -> Tensor:
    """(groups, out) to (out // 32, groups, 32)."""
    return scales.reshape(len(scales), -1, 32).transpose(0, 1).contiguous()


def meanings(code: Tensor) -> tuple[Tensor, float]:
    """The numbers that the compiled pass turns 4-bit codes into, and the factor for the scales that this takes. code: (16,)"""
    from specdemo.kernels.attention import products  # type: ignore[attr-defined]

    found: tuple[Tensor, float] = products.meanings(code)
    return found
