"""Tables of a rotary embedding (RoFormer 2104.09864), for as many positions as have been needed so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TABLE = 1024  # positions by which the tables grow


class RotaryTables:
    """Cosines and signed sines of each position. They do not depend on the text, so all conversations share them.

    compute: (length) to cosines and signed sines, (length, 1, head_dim) each
    """

    def __init__(self, compute: Callable[[int], tuple[Tensor, Tensor]]) -> None:
        self._compute = compute
        self._tables, self._length = compute(TABLE), TABLE
        self._full: tuple[Tensor, Tensor] | None = None  # float32; made when first needed

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of at least `length` positions, (positions, 1, head_dim) each."""
        if length > self._length:
            self._length = -(-length // TABLE) * TABLE
            self._tables, self._full = self._compute(self._length), None
        return self._tables

    def at(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of some positions, (positions, 1, head_dim) each."""
        cos, sin = self.tables(max(positions) + 1)
        index = torch.tensor(positions, device=cos.device)
        return cos[index], sin[index]

    def full(self, length: int) -> tuple[Tensor, Tensor]:
        """The same, (positions, head_dim) float32."""
        tables = self.tables(length)
        if self._full is None:
            cos, sin = (table[:, 0].float().contiguous() for table in tables)
            self._full = cos, sin
        return self._full
