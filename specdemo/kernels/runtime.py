"""The compiled pass as a decoder: lays out jobs for `layers.go_through`."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdemo.engine.draft_plan import Chain, DraftPlan
from specdemo.engine.forward import ForwardInput, ForwardOutput
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.kernels import cpu_features as processor
from specdemo.kernels.packing import BLOCK, Packed

PIECE = 64  # rows in which a prompt is read


@dataclass(frozen=True, slots=True)
class NativeLayer:
    """One decoder layer; norms float32."""

    input_norm: Tensor
    post_norm: Tensor
    qkv: Packed
    output: Packed
    gate_up: Packed
    down: Packed
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None

    def describe(self) -> list[int]:
        """Its part of a job's table of layers."""
        matrices = (self.qkv, self.output, self.gate_up, self.down)
        optional = (self.qkv.bias, self.query_norm, self.key_norm)
        return [
            self.input_norm.data_ptr(),
            self.post_norm.data_ptr(),
            *(place for one in matrices for place in one.addresses()),
            *(one.data_ptr() if one is not None else 0 for one in optional),
        ]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a stack of layers.

    inner: width between gate and down; group: inputs that share a scale; epsilon: of the norms; scale: of attention's scores
    """

    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    inner: int
    group: int
    epsilon: float
    scale: float


def fits(shape: Shape, words: int = 32) -> bool:
    """Whether the compiled pass takes layers of these sizes, and a head over so many words."""
    attended = shape.heads * shape.head_dim
    inputs = (shape.hidden, shape.inner, attended)
    outputs = (shape.hidden, shape.inner, attended + 2 * shape.kv_heads * shape.head_dim, words)
    return (
        shape.head_dim in (64, 128)
        and shape.group in (32, 64)
        and all(size % 64 == 0 for size in inputs)
        and all(size % 32 == 0 for size in outputs)
    )


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation's rows in a pass.

    caches: (layers, 2) int64 addresses of keys and values, (kv_heads, capacity, head_dim) bfloat16 each
    start: slot of its first row; prefix: slots that every row sees; seen: (rows, start + rows) bool for those behind, or None for all
    """

    rows: int
    start: int
    prefix: int
    seen: Tensor | None
    capacity: int
    caches: np.ndarray


@dataclass(frozen=True, slots=True)
class Added:
    """What comes in between two layers. rows: (n, hidden) float32, added to those from `first` on before layer `layer`"""

    layer: int
    first: int
    rows: Tensor


@dataclass(frozen=True, slots=True)
class Further:
    """Rows of a conversation's own behind those of a 4-bit head. count: how many of them count"""

    matrix: Packed
    count: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """Rows that go through layers together.

    x: (rows, hidden) float32; cos, sin: (rows, head_dim) float32 of their places, signs in the sines
    talks: whose rows they are, one after the other; added: what comes in between; further: what the head has beside
    """

    x: Tensor
    cos: Tensor
    sin: Tensor
    talks: Sequence[Talk]
    added: Added | None = None
    further: Further | None = None


class NativeLayers:
    """Layers and their head, run by the compiled pass. Shares weights between any number of conversations.

    table: from `meanings`; norm: (hidden,) float32, before the head
    head: (V, hidden) bfloat16, laid out anew here, or a 4-bit matrix of as many words
    """

    def __init__(
        self,
        layers: Sequence[NativeLayer],
        shape: Shape,
        table: Tensor,
        head: Tensor | Packed,
        norm: Tensor,
    ) -> None:
        from specdemo.kernels import llama as compiled
        from specdemo.kernels.draft_loop import in_team

        self._compiled, self._in_team = compiled, in_team
        self.shape, self._layers, self._norm = shape, list(layers), norm
        self._head = head if isinstance(head, Packed) else Packed(*compiled.products.laid_out(head))
        self._words = 32 * len(head.scales) if isinstance(head, Packed) else len(head)
        self._described = np.array([one.describe() for one in layers], dtype=np.int64)
        self._table = table
        self._own = threading.local()
        self._tiles: dict[tuple[int, int], tuple[np.ndarray, int]] = {}
        self._always = self._fixed()

    def run(
        self,
        inputs: Inputs,
        first: int,
        last: int,
        *,
        asked: Sequence[int] = (),
        states: dict[int, Tensor] | None = None,
        final: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Rows of all conversations through the layers from `first` to before `last`; call it in inference mode.

        asked: rows whose logits are wanted; states: bfloat16 tensors to fill, by the number of layers gone through
        returns: (asked, V) float32, and (rows, hidden) float32 behind the last layer when `final`
        """
        words, columns = self._columns(inputs.further)
        logits = torch.empty(len(asked), columns)
        behind = torch.empty_like(inputs.x) if final else inputs.x
        numbers, parts = self._job(inputs, first, last, asked, logits, states or {})
        numbers[self._compiled.FINAL] = behind.data_ptr() if final else 0
        self._go(numbers + parts)
        return logits[:, :words], behind

    def _columns(self, further: Further | None) -> tuple[int, int]:
        """Words that the head says, and columns that it writes, in whole blocks."""
        count = further.count if further else 0
        return self._words + count, self._words + -(-count // BLOCK) * BLOCK

    def draft_on(
        self, inputs: Inputs, guide: DraftPlan, words: ReducedVocabulary, embedding: Tensor
    ) -> Chain:
        """Rows of one conversation through all layers, and a draft after the last of them.

        inputs: x is overwritten; cos and sin are also of the places of all drafted tokens but the last
        words, embedding: what the head speaks, and (V, hidden) bfloat16, what drafted tokens are read by
        """
        c, most = self._compiled, guide.most
        said, columns = self._columns(inputs.further)
        logits = torch.empty(most, columns)
        asked = [len(inputs.x) - 1]
        numbers, parts = self._job(inputs, 0, len(self._layers), asked, logits, {}, most)
        begin = len(numbers) + len(parts)
        heat, uniforms = 1.0, 0
        if guide.uniforms is not None:
            heat, uniforms = 1 / guide.temperature, guide.uniforms.data_ptr()
        numbers[c.MOST : c.DRAFTED + 1] = (
            most, words.ids.data_ptr(), embedding.data_ptr(), uniforms, c.bits(heat),
            guide.rule.numbers.ctypes.data, self._shapes(1, 1)[1], self._desk()[1] + 8 * begin,
        )  # fmt: skip
        desk = self._go(numbers + parts + [0] * most * c.TOKEN)
        told = desk[begin : begin + most * c.TOKEN].reshape(most, c.TOKEN)
        count = int(np.count_nonzero(told[:, c.SECONDS]))
        sure = told[:count, c.SURE].astype(np.int32).view(np.float32).tolist()
        seconds = (told[:count, c.SECONDS] + 1e-9 * told[:count, c.NANOSECONDS]).tolist()
        step = (seconds[-1] - seconds[0]) / (count - 1) if count > 1 else None
        return Chain(told[:count, c.COLUMN].tolist(), logits[:count, :said].unbind(), sure, step)

    def _job(
        self,
        inputs: Inputs,
        first: int,
        last: int,
        asked: Sequence[int],
        logits: Tensor,
        states: dict[int, Tensor],
        further: int = 0,
    ) -> tuple[list[int], list[int]]:
        """A pass as `layers` reads it, and what lies behind it on this thread's desk: states, rows asked, conversations.

        further: keys that are added while it runs
        """
        c, rows, added = self._compiled, len(inputs.x), inputs.added
        wanted = [0] * (len(self._layers) + 1)
        for number, tensor in states.items():
            wanted[number] = tensor.data_ptr()
        table, longest = self._laid_out(inputs.talks)
        parts = [*wanted, *asked, *table]
        at_states = self._desk(c.JOB + len(parts) + further * c.TOKEN)[1] + 8 * c.JOB
        at_asked = at_states + 8 * len(wanted)
        threads = torch.get_num_threads()
        shared, own = self._room(rows, len(asked), longest + further)
        scratch = self._scratch(shared + own * threads + 64)
        numbers = self._always.copy()
        numbers[c.ROWS : c.LAST + 1] = rows, first, last
        numbers[c.INPUT : c.TALK_COUNT + 1] = (
            inputs.x.data_ptr(), inputs.cos.data_ptr(), inputs.sin.data_ptr(),
            at_asked + 8 * len(asked), len(inputs.talks),
        )  # fmt: skip
        numbers[c.TILES : c.ASKED_COUNT + 1] = (
            self._shapes(min(rows, 16), min(max(1, len(asked)), 16))[1],
            scratch, scratch + shared, own, at_states, 0, at_asked, len(asked),
        )  # fmt: skip
        numbers[c.LOGITS], numbers[c.WORDS] = logits.data_ptr(), logits.shape[1]
        if inputs.further is not None:
            own = inputs.further
            numbers[c.OWN_HEAD : c.OWN_COUNT + 1] = *own.matrix.addresses(), own.count
        if added is not None:
            numbers[c.MORE : c.MORE_COUNT + 1] = (
                added.rows.data_ptr(), added.layer, added.first, len(added.rows),
            )  # fmt: skip
        return numbers, parts

    def _go(self, numbers: list[int]) -> np.ndarray:
        """Put a job on the desk and do it. returns: the desk"""
        team, threads = _team(), torch.get_num_threads()
        desk, place = self._desk()
        desk[: len(numbers)] = numbers
        if threads > 1 and team is not None:
            team(ctypes.c_void_p(self._in_team.address), ctypes.c_void_p(place), threads, 0)
        else:
            self._in_team.ctypes(place)
        return desk

    def _fixed(self) -> list[int]:
        """What all jobs have in common."""
        c, shape, job = self._compiled, self.shape, [0] * self._compiled.JOB
        job[c.HEADS : c.LAYERS + 1] = (
            shape.heads, shape.kv_heads, shape.head_dim, shape.hidden, shape.inner, shape.group,
            c.bits(shape.epsilon), c.bits(shape.scale),
            self._table.data_ptr(), self._described.ctypes.data,
        )  # fmt: skip
        job[c.NORM] = self._norm.data_ptr()
        job[c.HEAD : c.HEAD + 3] = self._head.addresses()
        return job

    def _laid_out(self, talks: Sequence[Talk]) -> tuple[list[int], int]:
        """The job's table of conversations, and the most keys of one."""
        begin, longest = 0, 0
        table: list[int] = []
        for one in talks:
            keys, seen = one.start + one.rows, one.seen
            table += (
                begin, one.rows, one.start, keys, keys if seen is None else one.prefix,
                0 if seen is None else seen.data_ptr(), one.capacity, one.caches.ctypes.data,
            )  # fmt: skip
            begin, longest = begin + one.rows, max(longest, keys)
        return table, longest

    def _room(self, rows: int, asked: int, longest: int) -> tuple[int, int]:
        """Bytes of the buffers that all threads share, and of those that each has, in whole lines."""
        shape = self.shape
        padded, attended = -(-rows // 16) * 16, shape.heads * shape.head_dim
        all_heads = attended + 2 * shape.kv_heads * shape.head_dim
        widest = max(shape.hidden, shape.inner, attended)
        shared = 4 * padded * (all_heads + attended + shape.hidden + 2 * shape.inner)
        own = padded * (8 * shape.hidden + 2 * widest + widest // 4) + max(
            8192 + padded * 128,
            4096 + shape.head_dim * self._compiled.products.QUERY + (longest + 17) * 64,
            8192 + shape.hidden * (6 + -(-asked // 16) * 32),
        )
        return -(-shared // 64) * 64, (own + 191) // 64 * 64

    def _scratch(self, size: int) -> int:
        """Address of a buffer of this thread, aligned to a line."""
        kept = getattr(self._own, "buffer", None)
        if kept is None or len(kept) < size + 64:
            kept = self._own.buffer = torch.zeros(2 * size + 64, dtype=torch.uint8)
        return (kept.data_ptr() + 63) // 64 * 64

    def _desk(self, size: int = 0) -> tuple[np.ndarray, int]:
        """This thread's array for jobs, and its address: asking numpy for one takes long."""
        kept = getattr(self._own, "desk", None)
        if kept is None or len(kept[0]) < size:
            array = np.zeros(2 * size, dtype=np.int64)
            kept = self._own.desk = (array, array.ctypes.data)
        return kept

    def _shapes(self, rows: int, asked: int) -> tuple[np.ndarray, int]:
        """Tile configurations and their address: products of `rows` rows, all tiles full, products of `asked` rows. AMX palette 1."""
        if (rows, asked) not in self._tiles:
            settings = np.zeros((3, 64), dtype=np.uint8)
            for shapes, first in zip(settings, (rows, 16, asked), strict=True):
                shapes[0] = 1
                shapes[16:32].view(np.uint16)[:] = 64
                shapes[48:56] = [first] * 6 + [16] * 2
            self._tiles[rows, asked] = settings, settings.ctypes.data
        return self._tiles[rows, asked]


class NativeDecoder:
    """Implements `Decoder`. A row's answer is the same, bit for bit, in whatever passes and company it is read.

    tables: cosines and signed sines for positions up to a length, (length, head_dim) float32
    """

    piece = PIECE

    def __init__(
        self,
        config: Any,
        layers: NativeLayers,
        embedding: Tensor,
        norm: Callable[[Tensor], Tensor],
        tables: Callable[[int], tuple[Tensor, Tensor]],
    ) -> None:
        self.config = config
        self._layers, self._embedding, self._norm, self._tables = layers, embedding, norm, tables
        shape = layers.shape
        self._like = embedding.new_zeros(1, shape.kv_heads, 1, shape.head_dim)

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Answer passes of different conversations together; their `depth` must be the same."""
        depth = passes[0].depth
        layers = self.config.num_hidden_layers
        positions = torch.tensor([place for one in passes for place in one.positions])
        cos, sin = (table[positions] for table in self._tables(int(positions.max()) + 1))
        embedded = self._embedding[torch.tensor([t for one in passes for t in one.token_ids])]
        begins, asked, talks = [], [], []
        begin = 0
        for one in passes:
            begins.append(begin)
            begin += len(one.token_ids)
            asked += range(begin - one.answers, begin) if depth is None else ()
            talks.append(self._talk(one))
        wanted = {layer for one in passes for layer in one.reads}
        states = {0: embedded} | {
            layer: torch.empty_like(embedded) for layer in wanted if 0 < layer < layers
        }
        filled = {layer: tensor for layer, tensor in states.items() if layer}
        final = depth is not None or layers in wanted
        logits, behind = self._layers.run(
            Inputs(embedded.float(), cos, sin, talks), 0, layers if depth is None else depth,
            asked=asked, states=filled, final=final,
        )  # fmt: skip
        if depth is not None:
            behind = behind.to(embedded.dtype)
            return [
                ForwardOutput(torch.empty(0), (behind[at : at + len(one.token_ids)],))
                for one, at in zip(passes, begins, strict=True)
            ]
        if layers in wanted:
            states[layers] = self._norm(behind.to(embedded.dtype))
        parts = logits.split([one.answers for one in passes])
        return [
            ForwardOutput(
                part, tuple(states[layer][at : at + len(one.token_ids)] for layer in one.reads)
            )
            for one, at, part in zip(passes, begins, parts, strict=True)
        ]

    def _talk(self, one: ForwardInput) -> Talk:
        start, rows = one.cache.start, len(one.token_ids)
        seen, prefix = one.seen, one.cache.length
        if seen is None and rows > 1:
            seen, prefix = torch.ones(rows, start + rows, dtype=torch.bool).tril_(start), start
        caches = one.cache.slots(start + rows, self._like)
        return Talk(rows, start, prefix, seen, one.cache.capacity, caches)


@cache
def _team() -> Any:
    """torch's own OpenMP runtime's way to run a function in all threads of the caller's team; None where it is another."""
    library = _openmp()
    if library is None:
        return None
    run = ctypes.CDLL(library).GOMP_parallel
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    run.restype = None
    return run


@cache
def _openmp() -> str | None:
    """GNU's OpenMP library that torch has loaded."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    loaded = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines()}
    found = sorted(path for path in loaded if "libgomp" in Path(path).name)
    beside = [path for path in found if "torch" in path]
    return (beside or found or [None])[0]


@cache
def runs_here() -> bool:
    """Whether this processor and installation have what the compiled pass needs."""
    if sys.platform != "linux" or not processor.has_vectors() or _openmp() is None:
        return False
    import llvmlite.binding as llvm

    llvm.load_library_permanently(_openmp())
    return True
