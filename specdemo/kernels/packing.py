"""Matrices as the compiled pass reads them: codes in blocks of 32 outputs, and the scales of each group of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdemo.kernels.job import address

BLOCK_OUTPUTS = 32  # outputs per block
GROUP_INPUTS = 64  # inputs that share a scale in matrices of whole numbers of 8 or 16 bits
AFFINE = torch.arange(16, dtype=torch.bfloat16) - 8  # values of the codes in matrices of levels
MOST_BYTE = 127
SLICE_OUTPUTS = 2048  # outputs that are laid out at a time: the room that this takes is a slice's


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix as compiled products read it. The first dimension of codes and scales counts blocks of 32 outputs.

    codes: 4-bit as bitsandbytes lays out NF4 for its CPU kernel, uint8; a head also as `whole_numbers` gives it
    scales, zeros: (out // 32, groups, 32), in the order in which codes are read: float32 where codes mean values
        and zeros are None, else bfloat16
    """

    codes: Tensor
    scales: Tensor | None
    zeros: Tensor | None = None
    bias: Tensor | None = None

    @property
    def bits(self) -> int:
        """Bits of a code: 4, 8 or 16."""
        return {torch.uint8: 4, torch.int8: 8}.get(self.codes.dtype, 16)

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return BLOCK_OUTPUTS * len(self.codes)

    def values(self, first: int, last: int) -> Tensor:
        """Return the rows from `first` to before `last` of a matrix made by `whole_numbers`: (rows, in) float32. Both are multiples of 32."""
        blocks = slice(first // BLOCK_OUTPUTS, last // BLOCK_OUTPUTS)
        assert self.scales is not None
        codes = self.codes[blocks].permute(0, 2, 4, 1, 3, 5).reshape(last - first, -1, GROUP_INPUTS)
        scales = self.scales[blocks].transpose(1, 2).reshape(last - first, -1, 1)
        return (codes * scales).flatten(1)

    def write(self, record: Any) -> None:
        """Fill its record, see `job.MATRIX`."""
        record.codes = self.codes.data_ptr()
        record.scales, record.zeros = address(self.scales), address(self.zeros)
        record.bits, record.parts = self.bits, 0


def whole_numbers(matrix: Tensor, most: int = MOST_BYTE, dtype: torch.dtype = torch.int8) -> Packed:
    """Convert a matrix to whole numbers from -most to most, with a scale for each group of inputs.

    matrix: (out, in); codes: (out // 32, groups, 2 halves of the outputs, pairs of inputs, 16 outputs, 2 inputs)
    """
    rows, columns = matrix.shape
    blocks, groups = rows // BLOCK_OUTPUTS, columns // GROUP_INPUTS
    codes = torch.empty(blocks, groups, 2, GROUP_INPUTS // 2, 16, 2, dtype=dtype)
    scales = torch.empty(blocks, groups, BLOCK_OUTPUTS)
    first = 0
    for part in matrix.detach().split(SLICE_OUTPUTS):
        grouped = part.float().view(-1, BLOCK_OUTPUTS, groups, GROUP_INPUTS)
        last = first + len(grouped)
        step = grouped.abs().amax(-1).clamp(min=1e-30) / most
        scales[first:last] = step.transpose(1, 2)
        whole = (grouped / step[..., None]).round().to(dtype)
        whole = whole.view(-1, 2, 16, groups, GROUP_INPUTS // 2, 2)
        codes[first:last] = whole.permute(0, 3, 1, 4, 2, 5)
        first = last
    return Packed(codes, scales)


def pack_codes(levels: Tensor, scale: Tensor, zero: Tensor, bias: Tensor | None = None) -> Packed:
    """A matrix of (level - 8) * scale + zero, for AFFINE. levels: (out, in), 0 to 15; scale, zero: (out, groups); bias: (out,)"""
    scales, zeros = (in_blocks(one.bfloat16().t()) for one in (scale, zero))
    first, second = levels.to(torch.uint8).unflatten(1, (-1, 2)).unbind(-1)
    codes = lay_pairs(first << 4 | second)
    return Packed(codes, scales, zeros, None if bias is None else bias.float())


def lay_pairs(pairs: Tensor) -> Tensor:
    """Put codes into the order of `Packed`.

    pairs: (out, in // 2), codes as bitsandbytes stores them, the first of two in the upper half of a byte
    """
    lower, upper = pairs.view(-1, 2, 16, pairs.shape[1]).unbind(1)
    both = torch.stack([(lower >> 4) | (upper & 240), (lower & 15) | (upper << 4)], dim=-1)
    # The two inputs of a pair stay adjacent.
    laid = both.view(torch.int16).squeeze(-1).transpose(1, 2).contiguous()
    return laid.view(torch.uint8)


def pairs_of(codes: Tensor) -> Tensor:
    """Undo `lay_pairs`. codes: (out // 32, in // 2, 32)"""
    blocks, pairs, _ = codes.shape
    both = codes.view(torch.int16).transpose(1, 2).contiguous().view(torch.uint8)
    first, second = both.view(blocks, 16, pairs, 2).unbind(-1)
    rows = torch.stack([(first << 4) | (second & 15), (first & 240) | (second >> 4)], dim=1)
    return rows.view(blocks * 32, pairs)


def in_blocks(scales: Tensor) -> Tensor:
    """(groups, out) to (out // 32, groups, 32)."""
    return scales.reshape(len(scales), -1, 32).transpose(0, 1).contiguous()
