"""Weights in blocks of 32 inputs as `matmul_blocks` reads them: those of GGUF files bit by bit, NF4, and those of drafters.

A weight is unit * step * (code - offset) + zero * zero's step, with those factors that its kind has. The units are those of
the file, so the weights are the file's own.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specdemo.kernels import job as jobs
from specdemo.kernels.packing import BLOCK_OUTPUTS

INPUTS = 32  # that share the step of activations


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of blocks.

    bits: of a stored code; span: inputs that share a unit; step: inputs that share a step; offset: of codes
    zeros: whether there is a minimum; steps: whether units have factors of 8 bits
    values: of the codes, (16,) whole numbers of 8 bits, in place of the codes themselves; value: of one of these, in units
    """

    name: str
    bits: int
    span: int
    offset: int
    zeros: bool = False
    steps: bool = False
    step: int = INPUTS
    values: tuple[int, ...] = ()
    value: float = 1.0


# The values of NF4 (Dettmers 2305.14314) times 112, where rounding changes them least: by 0.0017 of the largest.
NF4_VALUES = (-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112)
KINDS = (
    Kind("Q4_0", 4, 32, 8),
    Kind("Q4_1", 4, 32, 0, zeros=True),
    Kind("Q4_K", 4, 256, 0, zeros=True, steps=True),
    Kind("Q8_0", 8, 32, 128),
    Kind("Q5_1", 8, 32, 0, zeros=True),
    Kind("Q5_K", 8, 256, 0, zeros=True, steps=True),
    Kind("Q6_K", 8, 256, 32, steps=True, step=16),
    Kind("NF4", 4, 64, 128, values=NF4_VALUES, value=1 / 112),
    Kind("I4", 4, 32, 8, zeros=True),
)
NAMES = {kind.name: number for number, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Part:
    """Some outputs of a matrix.

    codes: (out // 32, in // 4, 64 or 128) uint8, four inputs of an output side by side; 4-bit ones of two outputs in a byte
    units, zeros: (out // 32, in // span, 32) float16
    steps: (out // 32, in // 32, 64) uint8: of units and of zeros; or of the halves of a block, with signs
    """

    kind: Kind
    codes: Tensor
    units: Tensor
    zeros: Tensor | None = None
    steps: Tensor | None = None

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return BLOCK_OUTPUTS * len(self.codes)

    def write(self, record: Any) -> None:
        """Fill its record, see `job.PART`."""
        record.kind, record.blocks = NAMES[self.kind.name], len(self.codes)
        for name in ("codes", "units", "zeros", "steps"):
            setattr(record, name, jobs.address(getattr(self, name)))

    def values(self, first: int, last: int) -> Tensor:
        """Rows of the matrix, both in whole blocks: exact, with the roundings of float32. returns: (rows, in) float32"""
        blocks, kind = slice(first // BLOCK_OUTPUTS, last // BLOCK_OUTPUTS), self.kind
        codes = self._numbers(self.codes[blocks]).reshape(last - first, -1, kind.step)
        scale = self._spread(self.units[blocks])
        zero = torch.zeros(1) if self.zeros is None else self._spread(self.zeros[blocks])
        if self.steps is not None:
            steps = self.steps[blocks].view(torch.int8 if kind.step == 16 else torch.uint8)
            steps = steps.view(len(steps), -1, 2, BLOCK_OUTPUTS).permute(0, 3, 1, 2).flatten(0, 1)
            if kind.step == 16:
                scale = scale * steps.flatten(1)
            else:
                of_units, of_zeros = steps.unbind(-1)
                scale, zero = scale * of_units, zero * of_zeros
        return (codes * scale[..., None] + zero[..., None]).flatten(1)

    def _spread(self, stored: Tensor) -> Tensor:
        """(blocks, in // span, 32) to (rows, in // step)"""
        rows = stored.float().transpose(1, 2).flatten(0, 1)
        return rows.repeat_interleave(self.kind.span // self.kind.step, dim=1)

    def _numbers(self, stored: Tensor) -> Tensor:
        """Return the codes without their offset, or their values, (rows, in) float32. stored: blocks of `codes`"""
        kind = self.kind
        halves = [stored & 15, stored >> 4] if kind.bits == 4 else stored.chunk(2, dim=-1)
        both = torch.stack([one.unflatten(-1, (16, 4)) for one in halves], dim=1)
        codes = both.permute(0, 1, 3, 2, 4).flatten(3).flatten(0, 2)
        if kind.values:
            return torch.tensor(kind.values)[codes.int()] * kind.value
        return codes.float() - kind.offset


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """Parts on top of each other. bias: (out,) float32"""

    parts: tuple[Part, ...]
    bias: Tensor | None = None
    records: Any = field(init=False)

    def __post_init__(self) -> None:
        records = (jobs.PartStructure * len(self.parts))()
        for record, part in zip(records, self.parts, strict=True):
            part.write(record)
        object.__setattr__(self, "records", records)

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return sum(part.outputs for part in self.parts)

    def values(self, first: int, last: int) -> Tensor:
        """Rows of a matrix of one part, see `Part.values`."""
        (part,) = self.parts
        return part.values(first, last)

    def write(self, record: Any) -> None:
        """Fill its record, see `job.MATRIX`."""
        record.codes, record.parts, record.bits = ctypes.addressof(self.records), len(self.parts), 8
