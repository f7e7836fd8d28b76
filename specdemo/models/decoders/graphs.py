"""CUDA graphs: a lean pass of few rows is recorded once and replayed.

A GPU runs the hundreds of small steps of such a pass faster than a processor can start them one by one. A
recording contains addresses, so its inputs, its results, and the keys and values must stay at theirs; keys and
values are in a static cache. When a conversation ends, the next one reuses its static cache.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdemo.engine.attention import causal, finish, forget
from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import ForwardInput, ForwardOutput
from specdemo.models.decoders.layer import CacheRows
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import Look

GRAPH_ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16)  # rows of recordings; a pass uses the next larger one
SLOTS = 1024  # slots of the smallest static cache; each larger one has twice as many
KEPT_GRAPHS = 64  # recordings

RecordingKey = tuple["StaticCache", int, tuple[int, ...], int | None]
"""Cache, rows, reads and depth, as in `PassGraph`."""
Work = Callable[[], tuple[Tensor, Tensor | None]]
Record = Callable[[Work], Work]  # returns a function that repeats the work, into the same tensors


class StaticCache:
    """Keys and values of all layers at addresses that stay; (1, kv_heads, slots, head_dim) each.

    The last slot is no text's: rows that only fill a recording up are written there.

    owner: the conversation whose keys and values it has, as long as that lives and stays
    """

    def __init__(self, layers: int, like: Tensor, slots: int) -> None:
        """Allocate zeros. like: (1, kv_heads, 1, head_dim), of the dtype and device"""
        _, heads, _, head_dim = like.shape
        self.slots = slots
        self.owner: Callable[[], RollbackCache | None] = lambda: None
        self.parts = [
            (like.new_zeros(1, heads, slots, head_dim), like.new_zeros(1, heads, slots, head_dim))
            for _ in range(layers)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether no conversation's keys and values are in this cache; one that grew or was batched has moved."""
        owner = self.owner()
        return owner is None or owner.layers[0].keys is not self.parts[0][0]

    def adopt(self, cache: RollbackCache) -> None:
        """Move a conversation's keys and values here; its later rows are written here too."""
        for layer, parts in zip(cache.layers, self.parts, strict=True):
            if layer.is_initialized:
                for part, old in zip(parts, (layer.keys, layer.values), strict=True):
                    part[:, :, : cache.start] = old[:, :, : cache.start]
            layer.keys, layer.values = parts
            layer.is_initialized = True
        self.owner = weakref.ref(cache)


@dataclass(frozen=True, slots=True)
class StaticLayer:
    """One layer of a static cache as a recording sees it. slots: (rows,) where its rows are written"""

    keys: Tensor
    values: Tensor
    slots: Tensor

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write rows, (1, kv_heads, rows, head_dim) each. returns: all slots; the mask selects those in use"""
        self.keys.index_copy_(2, self.slots, keys)
        self.values.index_copy_(2, self.slots, values)
        return self.keys, self.values


class PassGraph:
    """A pass of so many rows over one static cache.

    reads, depth: as in `ForwardInput`
    """

    def __init__(
        self,
        lean: LeanDecoder,
        record: Record,
        static: StaticCache,
        rows: int,
        reads: Sequence[int],
        depth: int | None,
    ) -> None:
        device = lean.embedding.device
        self._rows, self._last = rows, static.slots - 1
        # Token ids, positions, slots: numbers that are right for a recording without any text.
        self._numbers = torch.zeros(3, rows, dtype=torch.int64, device=device)
        self._numbers[2] = self._last
        self._seen = torch.zeros(rows, static.slots, dtype=torch.bool, device=device)
        self._seen[:, self._last] = True
        layers = [StaticLayer(*parts, self._numbers[2]) for parts in static.parts]
        group = lean.sizes.heads // lean.sizes.kv_heads

        def placed(window: int) -> CacheRows:
            seen = forget(self._seen, window) if window else self._seen
            mask = torch.zeros(rows, static.slots, dtype=lean.embedding.dtype, device=device)
            mask = mask.masked_fill(~seen, -torch.inf)
            folded = mask[:, None].expand(rows, group, static.slots).reshape(1, 1, -1, static.slots)
            return CacheRows(0, rows, layers, Look(folded, folded=True))

        def work() -> tuple[Tensor, Tensor | None]:
            at = {window: [placed(window)] for window in {*lean.form.windows}}
            token_ids, positions, _ = self._numbers
            x, states = lean.through(token_ids, positions, at, reads, depth)
            return x if depth is not None else lean.logits(x), states

        self._again = record(work)

    def run(self, one: ForwardInput) -> ForwardOutput:
        """Answer a pass of at most as many rows."""
        rows, start = len(one.token_ids), one.cache.start
        filling = self._rows - rows
        numbers = (
            [*one.token_ids, *[0] * filling],
            [*one.positions, *[0] * filling],
            [*range(start, start + rows), *[self._last] * filling],
        )
        seen = torch.zeros(self._seen.shape, dtype=torch.bool)
        seen[:rows, : start + rows] = causal(rows, start) if one.seen is None else one.seen
        seen[rows:, self._last] = True
        self._numbers.copy_(torch.tensor(numbers))
        self._seen.copy_(seen)
        first, states = self._again()
        # The next replay writes into the same tensors.
        if one.depth is not None:
            return ForwardOutput(torch.empty(0), first[:rows].clone())
        logits = first[rows - one.answers : rows].clone()
        return ForwardOutput(logits, None if states is None else states[:rows].clone())


class GraphDecoder:
    """Implements `Decoder`: passes of few rows of one conversation are replayed, others use the lean pass.

    lean: computes passes that are not recorded; record: `cuda_graph` of the model's device
    records: whether recording has worked so far
    """

    def __init__(self, lean: LeanDecoder, record: Record) -> None:
        self.config, self.chunk = lean.config, lean.chunk
        self.records = True
        self.lean, self._record = lean, record
        self._lock = threading.Lock()
        self._static: list[StaticCache] = []
        self._recordings: OrderedDict[RecordingKey, PassGraph] = OrderedDict()
        self._table: Tensor | None = None  # rotary table whose address the recordings contain

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Answer passes of different conversations; their `depth` must be the same."""
        with self._lock:
            answers = self._answers(passes)
            finish(self.lean.embedding.device)
            return answers

    def _answers(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        caches = [self._static_cache(one) for one in passes]
        if len(passes) == 1 and len(passes[0].token_ids) <= GRAPH_ROWS[-1] and self.records:
            recording = self._recording(passes[0], caches[0])
            if recording is not None:
                return [recording.run(passes[0])]
        return self.lean.run(passes)

    def _recording(self, one: ForwardInput, static: StaticCache) -> PassGraph | None:
        """Return the recording that answers a pass; None if this device, or this build of a model, cannot be recorded."""
        table = self.lean.rotary.tables(max(one.positions) + 1)[0]
        if table is not self._table:
            self._recordings.clear()
            self._table = table
        rows = GRAPH_ROWS[bisect_left(GRAPH_ROWS, len(one.token_ids))]
        key = (static, rows, tuple(one.reads), one.depth)
        if key not in self._recordings:
            try:
                self._recordings[key] = PassGraph(self.lean, self._record, *key)
            except RuntimeError:
                # A step waits for the GPU (as LLM.int8's does), or memory is full.
                self.records = False
                self._recordings.clear()
                return None
            if len(self._recordings) > KEPT_GRAPHS:
                self._recordings.popitem(last=False)
        self._recordings.move_to_end(key)
        return self._recordings[key]

    def _static_cache(self, one: ForwardInput) -> StaticCache:
        """Return the static cache of a conversation, with room for its next rows."""
        cache, end = one.cache, one.cache.start + len(one.token_ids)
        own = (static for static in self._static if static.owner() is cache and not static.is_empty)
        static = next(own, None)
        if static is None or end >= static.slots:
            static = self._vacant(end)
            static.adopt(cache)
        return static

    def _vacant(self, end: int) -> StaticCache:
        fitting = [static for static in self._static if static.is_empty and end < static.slots]
        if fitting:
            return min(fitting, key=lambda one: one.slots)
        slots = SLOTS
        while slots <= end:
            slots *= 2
        lean = self.lean
        like = lean.embedding.new_zeros(1, lean.sizes.kv_heads, 1, lean.sizes.head_dim)
        try:
            new = StaticCache(len(lean.layers), like, slots)
        except torch.OutOfMemoryError:
            self._free()
            new = StaticCache(len(lean.layers), like, slots)
        self._static.append(new)
        return new

    def _free(self) -> None:
        """Free the static caches that no conversation uses, with the recordings that contain their addresses."""
        for key in [key for key in self._recordings if key[0].is_empty]:
            del self._recordings[key]
        self._static = [static for static in self._static if not static.is_empty]
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def cuda_graph(device: torch.device) -> Record:
    """Return a function that records work on a GPU. Recording raises RuntimeError for work that waits for the GPU."""
    pool = torch.cuda.graph_pool_handle()

    def record(work: Work) -> Work:
        with torch.cuda.device(device):
            # Run once on another stream: libraries choose kernels and allocate memory before the recording starts.
            before, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(before)
            with torch.cuda.stream(aside):
                work()
            before.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                    answers = work()
            finally:
                torch.cuda.set_stream(before)  # a recording that fails leaves its own stream set

        def again() -> tuple[Tensor, Tensor | None]:
            with torch.cuda.device(device):
                graph.replay()
            return answers

        return again

    return record
