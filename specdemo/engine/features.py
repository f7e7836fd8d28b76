"""Hidden states of some layers of the target for every cached token, for drafters that read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.engine.cache import slots_for


class Features:
    """One row for each token of a target's cache: row p contains the states after reading token p.

    layers: indices of hidden states, numbered as in transformers (0 = embedding, the last = after the final norm)
    """

    def __init__(self, layers: Sequence[int] = ()) -> None:
        self.layers = tuple(layers)
        self.length = 0
        self._rows = torch.empty(0, len(self.layers), 0)

    @property
    def memory_bytes(self) -> int:
        """Size of all rows, spare room included."""
        return self._rows.nbytes

    def write(self, start: int, states: Sequence[Tensor]) -> None:
        """Put a pass's rows into the positions from `start` on, without counting them.

        states: (rows, H) for each layer
        """
        rows = torch.stack(list(states), dim=1)
        end = start + len(rows)
        if end > len(self._rows):
            grown = rows.new_zeros(slots_for(end, len(self._rows)), *rows.shape[1:])
            if self.length:
                grown[: self.length] = self._rows[: self.length]
            self._rows = grown
        self._rows[start:end] = rows

    def gather(self, rows: Sequence[int]) -> None:
        """Count `rows` of the last pass (ascending) and drop its others, as the cache does."""
        start, end = self.length, self.length + len(rows)
        if list(rows) != list(range(len(rows))):
            self._rows[start:end] = self._rows[start + torch.tensor(rows)]
        self.length = end

    def rollback(self, length: int) -> None:
        """Forget every row from `length` on."""
        self.length = min(self.length, length)

    def read(self, begin: int, end: int, layers: Sequence[int]) -> Tensor:
        """Counted rows of some layers. returns: (rows, len(layers) x H), fewer rows where not all are there"""
        rows = self._rows[begin : min(end, self.length)]
        if tuple(layers) != self.layers:
            rows = rows[:, [self.layers.index(layer) for layer in layers]]
        return rows.flatten(1)
