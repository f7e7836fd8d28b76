"""A preallocated key/value cache with rollback in O(1) and selection of one path of a tree."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

BLOCK_SLOTS = 256
SPARE = 4  # times the needed slots: a cache that is larger is shrunk when a shorter text starts


def slots_for(end: int, capacity: int) -> int:
    """Slots to have when there must be `end` and there are `capacity`: a fifth at most is spare, but for a block."""
    return -(-max(end, capacity + capacity // 4) // BLOCK_SLOTS) * BLOCK_SLOTS


@dataclass(slots=True)
class Counted:
    """Number of valid rows of a cache, the same for all its layers.

    skipped: rows after `length` that the next pass must not overwrite
    """

    length: int = 0
    skipped: int = 0


class RollbackLayer(CacheLayerMixin):
    """Keys and values of one layer: (batch, heads, capacity, head_dim); positions behind those that count are spare room."""

    keys: Tensor  # there from the first row on
    values: Tensor

    def __init__(self, counted: Counted) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counted = counted

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = self._grown(key_states, BLOCK_SLOTS)
        self.values = self._grown(value_states, BLOCK_SLOTS)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write rows behind those that count or are skipped, without counting them.

        returns: (1, heads, length + skipped + rows, head_dim) each
        """
        start = self.counted.length + self.counted.skipped
        end = start + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.make_room(end)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def make_room(self, end: int) -> None:
        """Let there be slots up to `end`."""
        if end > self.keys.shape[2]:
            self._resize(slots_for(end, self.keys.shape[2]))

    def shrink(self) -> None:
        """Give back slots that a text of the counted length does not need."""
        self._resize(slots_for(self.counted.length + 1, 0))

    def move(self, start: int, rows: Tensor) -> None:
        """Move `rows` (positions from `start` on, ascending) to the slots right after `start`."""
        for tensor in (self.keys, self.values):
            moved = tensor.index_select(2, (rows + start).to(tensor.device))
            tensor[:, :, start : start + len(rows)] = moved

    def _resize(self, capacity: int) -> None:
        self.keys = self._grown(self.keys, capacity)
        self.values = self._grown(self.values, capacity)

    def _grown(self, tensor: Tensor, capacity: int) -> Tensor:
        grown = tensor.new_zeros((*tensor.shape[:2], capacity, tensor.shape[3]))
        kept = self.counted.length + self.counted.skipped
        grown[:, :, :kept] = tensor[:, :, :kept]
        return grown

    def get_seq_length(self) -> int:
        """Return the number of counted tokens; transformers calls it."""
        return self.counted.length

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        """Return (keys visible to a pass of `query_length` rows, offset of the first); transformers calls it."""
        rows = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.counted.length + self.counted.skipped + rows, 0

    def get_max_length(self) -> int:
        """Return -1 for no limit; transformers calls it."""
        return -1


class RollbackCache(Cache):
    """Keys and values of one conversation, for any model that transformers loads and that has no other state.

    A pass appends through `update`; nothing counts until `gather` says which rows stay, so forgetting
    is setting a number. Positions that a sliding window has left behind stay cached too: a rollback brings
    them back into its reach, and `attention.forget` hides them until then.
    """

    layers: list[RollbackLayer]  # type: ignore[assignment]

    def __init__(self, num_layers: int) -> None:
        self._counted = Counted()
        super().__init__(layers=[RollbackLayer(self._counted) for _ in range(num_layers)])
        self._laid: Tensor | None = None  # the first layer's keys when `_places` was made
        self._places = array("q")

    @property
    def length(self) -> int:
        return self._counted.length

    @property
    def start(self) -> int:
        """Slot of the next pass's first row."""
        return self._counted.length + self._counted.skipped

    def slots(self, end: int, like: Tensor) -> int:
        """Return the address of those of keys and values, (layers, 2) int64, with room up to `end`; valid until the cache grows.

        like: (1, kv_heads, 1, head_dim), for a cache that is still empty
        """
        # All layers grow at the same time as the first.
        if self._laid is None or self._laid is not self.layers[0].keys or end > self.capacity:
            for layer in self.layers:
                if not layer.is_initialized:
                    layer.lazy_initialization(like, like)
                layer.make_room(end)
            places = [one.data_ptr() for layer in self.layers for one in (layer.keys, layer.values)]
            self._laid, self._places = self.layers[0].keys, array("q", places)
        return self._places.buffer_info()[0]

    @property
    def capacity(self) -> int:
        return int(self.layers[0].keys.shape[2])

    @property
    def memory_bytes(self) -> int:
        """Size of keys and values, spare room included; all layers have the same."""
        first = self.layers[0]
        return len(self.layers) * 2 * first.keys.nbytes if first.is_initialized else 0

    def rollback(self, length: int) -> None:
        """Forget every position from `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: {self.length} tokens are cached")
        self._count(length)
        first = self.layers[0]
        # On a GPU, recordings contain the addresses of a cache, which the next conversation reuses.
        if (
            first.is_initialized
            and self.capacity > SPARE * max(BLOCK_SLOTS, length)
            and first.keys.device.type == "cpu"
        ):
            for layer in self.layers:
                layer.shrink()

    def copy(self, other: RollbackCache, length: int) -> None:
        """Append the rows of another cache from this one's length up to `length`, and count them; no rows if it has as many."""
        start = self.length
        if length <= start:
            return
        self.skip(0)
        for own, layer in zip(self.layers, other.layers, strict=True):
            own.update(layer.keys[:, :, start:length], layer.values[:, :, start:length])
        self._count(length)

    def gather(self, rows: Sequence[int]) -> None:
        """Count `rows` of the last pass (ascending, 0 is its first) and drop its others."""
        start = self.length
        if list(rows) != list(range(len(rows))):
            with torch.inference_mode():
                index = torch.tensor(rows)
                for layer in self.layers:
                    layer.move(start, index)
        self._count(start + len(rows))

    def skip(self, rows: int) -> None:
        """Let the next pass write after this many uncounted rows: nodes of a tree that continues to grow."""
        self._counted.skipped = rows

    def _count(self, length: int) -> None:
        self._counted.length, self._counted.skipped = length, 0
