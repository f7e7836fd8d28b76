"""The entry to the compiled pass: weights of layers, rows of conversations, the buffers of a pass, and the threads that run it."""

from __future__ import annotations

import ctypes
import sys
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from specdemo.kernels import cache as kept
from specdemo.kernels import cpu_features, team
from specdemo.kernels import job as jobs
from specdemo.kernels.blocks import BlockMatrix
from specdemo.kernels.job import Form, JobBuffer, address, num_read
from specdemo.kernels.packing import BLOCK_OUTPUTS, Packed
from specdemo.kernels.plan import Chain, DraftPlan
from specdemo.kernels.team import is_borrowed as is_borrowed
from specdemo.kernels.team import runs_here as runs_here

Matrix = Packed | BlockMatrix
Product = TypeVar("Product")
# The norms of a layer: before and after attention, before and after the MLP, of queries and of keys.
NORMS = ("input_norm", "attended_norm", "post_norm", "gated_norm", "query_norm", "key_norm")
HEAD_DIMS = range(64, 257, 32)  # supported sizes of a head
LINE = 64  # bytes of a cache line
BFLOAT16_BYTES = 2
MOST_BUFFERS = 64  # for jobs of different forms, of each thread


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[Product]):
    """One decoder layer, whose defaults are Llama's. Queries, keys and values are one matrix, gate and up too.

    input_norm, post_norm: before attention and before the MLP, (H,); None for none
    query_norm, key_norm: of each head, (head_dim,), or of all heads together, (heads * head_dim,) and (kv_heads * head_dim,)
    attended_norm, gated_norm: of the outputs of attention and of the MLP, (H,)
    rotary: number of its rotary embedding; -1 for none; window: keys that a row looks back at; 0 for all

    Norms contain their offset. In the compiled pass they are float32, and the matrices are `Matrix`.
    """

    input_norm: Tensor | None
    qkv: Product
    output: Product
    post_norm: Tensor | None
    gate_up: Product
    down: Product
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None
    attended_norm: Tensor | None = None
    gated_norm: Tensor | None = None
    rotary: int = 0
    window: int = 0

    def matrices(self) -> tuple[Product, ...]:
        """Its four products."""
        return self.qkv, self.output, self.gate_up, self.down


def write_layer(layer: LayerWeights[Matrix], record: Any) -> None:
    """Fill the record of a layer, see `job.LAYER`."""
    for name in NORMS:
        setattr(record, name, address(getattr(layer, name)))
    for name in ("qkv", "output", "gate_up", "down"):
        getattr(layer, name).write(getattr(record, name))
    record.qkv_bias = address(layer.qkv.bias)
    record.rotary, record.window = layer.rotary, layer.window


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a stack of layers.

    inner: width between gate and down; group: inputs that share a scale; epsilon: of the norms; scale: of attention scores
    residual: factor of additions to the residual stream; gelu: gates are GELU (tanh) in place of SiLU
    joint_norms: norms of queries and of keys are of all heads together
    """

    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    inner: int
    group: int
    epsilon: float
    scale: float
    residual: float = 1.0
    gelu: bool = False
    joint_norms: bool = False


def fits(shape: Shape, columns: int = BLOCK_OUTPUTS) -> bool:
    """Whether the compiled pass takes layers of these sizes, and a head of so many columns."""
    attended = shape.heads * shape.head_dim
    inputs = (shape.hidden, shape.inner, attended)
    outputs = (shape.hidden, shape.inner, attended + 2 * shape.kv_heads * shape.head_dim, columns)
    return (
        shape.head_dim in HEAD_DIMS
        and shape.group in (32, 64)
        and all(size % 64 == 0 for size in inputs)
        and all(size % BLOCK_OUTPUTS == 0 for size in outputs)
    )


class Slots(Protocol):
    """The cache of one conversation; see `engine.cache.RollbackCache`."""

    @property
    def length(self) -> int:
        """Tokens that count."""

    @property
    def start(self) -> int:
        """Slot of the next pass's first row."""

    @property
    def capacity(self) -> int:
        """Number of slots."""

    def slots(self, end: int, like: Tensor) -> int:
        """Return the address of the (layers, 2) int64 addresses of keys and values, with room up to slot `end`."""


@dataclass(frozen=True, slots=True)
class Injected:
    """States that are added to rows of a conversation before a layer.

    first: of its rows that get one
    rows: (n, hidden) float32 if they are projected; else (n, inputs) bfloat16, which the pass projects, see `Projection`
    """

    first: int
    rows: Tensor
    projected: bool = True


@dataclass(frozen=True, slots=True)
class Projection:
    """A matrix that projects the target's hidden states of a token to the state that is added to its row.

    gain: (inputs,) float32, weights of a norm of each state before it; epsilon: of that norm
    """

    matrix: Matrix
    gain: Tensor
    epsilon: float


@dataclass(frozen=True, slots=True)
class Drafting:
    """A draft that continues after a pass.

    token_ids: (W,) int64, the token of each column of the logits
    penalised: int64, columns of the text's tokens, each once, and room for those that are drafted
    num_penalised: number of the former
    """

    plan: DraftPlan
    token_ids: Tensor
    penalised: array[int]
    num_penalised: int


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The rows of one conversation in a pass.

    positions: of each row in the text; the cache writes them into its slots from `start` on
    seen: (rows, start + rows) bool; None where each row sees all slots up to its own
    answers: how many of the last rows need logits
    added: (added,) int64, tokens whose logits follow those of the head; None for none
    """

    positions: Sequence[int]
    cache: Slots
    seen: Tensor | None = None
    answers: int = 0
    injected: Injected | None = None
    added: Tensor | None = None
    drafting: Drafting | None = None

    @property
    def num_added(self) -> int:
        return 0 if self.added is None else self.added.shape[0]

    @property
    def most(self) -> int:
        """Tokens that it drafts at most."""
        return self.drafting.plan.most if self.drafting else 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass.

    x: (rows, hidden) float32; it is overwritten where a sequence drafts
    cos, sin: (rotary embeddings, positions, rotated channels) float32, the sines with their signs; one needs no first axis
    sequences: the conversations of the rows, one after the other
    inject_layer: layer before which the injected states are added
    embedding: (V, hidden) bfloat16 that drafted tokens are read by
    """

    x: Tensor
    cos: Tensor
    sin: Tensor
    sequences: Sequence[SequenceRows]
    inject_layer: int = 0
    embedding: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """Results of a pass.

    logits: (answers, W) float32 of each sequence
    states: (rows, reads x hidden) bfloat16, if any were requested; final: (rows, hidden) float32 after the last layer, if requested
    chains: the draft of each sequence that drafts
    """

    logits: Sequence[Tensor]
    states: Tensor | None
    final: Tensor | None
    chains: Sequence[Chain | None]


def meanings(code: Tensor) -> tuple[Tensor, float]:
    """The numbers that the compiled pass turns 4-bit codes into, and the factor for the scales that this takes. code: (16,)"""
    found: tuple[Tensor, float] = cpu_features.products().meanings(code)
    return found


class CompiledLayers:
    """Layers and their head, run by the compiled pass. Shares weights between any number of conversations.

    table: from `meanings`; norm: (hidden,) float32, of the last states; scale: factor of the logits
    head: (V, hidden) bfloat16, converted here, or a matrix of 4 or 8 bits, or in blocks
    feedback: (hidden,) float32, gain per channel on the normed state from which a token was drafted; None for no feedback
    projection: of states of the target; None if the pass projects none
    head_rows: (V, hidden) bfloat16, by which the logits of added tokens are computed; None if no sequence has some
    """

    def __init__(
        self,
        layers: Sequence[LayerWeights[Matrix]],
        shape: Shape,
        table: Tensor,
        head: Tensor | Matrix,
        norm: Tensor,
        feedback: Tensor | None = None,
        projection: Projection | None = None,
        scale: float = 1.0,
        head_rows: Tensor | None = None,
    ) -> None:
        from specdemo.kernels.draft_loop import run_in_team  # compiles

        self._run_in_team = run_in_team
        self.shape, self.layers, self.table = shape, tuple(layers), table
        self.norm, self.head_norm = norm, norm * scale
        self.feedback, self.projection, self.head_rows = feedback, projection, head_rows
        self.head: Matrix = (
            cpu_features.products().laid_out(head) if isinstance(head, Tensor) else head
        )
        self.columns = self.head.outputs
        self.described = (jobs.LayerStructure * len(layers))()
        for record, layer in zip(self.described, layers, strict=True):
            write_layer(layer, record)
        self.tiles = _tile_shapes()
        inputs = len(projection.gain) if projection else 0
        self._room = lru_cache(maxsize=MOST_BUFFERS)(partial(_room, shape, inputs))
        self._like = torch.zeros(1, shape.kv_heads, 1, shape.head_dim, dtype=torch.bfloat16)
        self._own = threading.local()
        self._template = self._fixed()

    def run(
        self,
        rows: Rows,
        first: int = 0,
        last: int | None = None,
        *,
        reads: Sequence[int] = (),
        final: bool = False,
    ) -> Results:
        """Run the rows of all sequences through the layers from `first` to before `last`, and the head.

        reads: numbers of layers before the states to return; those after `last` have passed the norm
        final: whether to return the states after the last layer, without that norm
        """
        sequences = rows.sequences
        form = tuple([(len(one.positions), one.answers, one.most) for one in sequences])
        buffer = self._buffer(form)
        job = buffer.begin()
        logits = torch.empty(buffer.num_logits, max(map(self._width, sequences)))
        behind = torch.empty_like(rows.x) if final else None
        masks = [None if one.seen is None else one.seen.contiguous() for one in sequences]
        states = self._states(buffer, rows.x.shape[0], reads) if reads else None
        self._write(buffer, rows, masks, logits, behind)
        job.first_layer, job.last_layer = first, len(self.layers) if last is None else last
        team.run(self._run_in_team, ctypes.addressof(job), torch.get_num_threads())
        results: list[Tensor] = []
        chains: list[Chain | None] = []
        row = 0
        for number, one in enumerate(sequences):
            columns = self.columns + one.num_added
            results.append(logits[row : row + one.answers, :columns])
            row += one.answers
            chains.append(buffer.chain(number, logits, columns))
        return Results(results, states, behind, chains)

    def _states(self, buffer: JobBuffer, rows: int, reads: Sequence[int]) -> Tensor:
        """Allocate the states that a pass returns, and write their addresses into its job."""
        hidden = self.shape.hidden
        states = torch.empty(rows, len(reads) * hidden, dtype=torch.bfloat16)
        buffer.job.states_bytes = BFLOAT16_BYTES * states.shape[1]
        for place, layers in enumerate(reads):
            buffer.states[layers] = states.data_ptr() + BFLOAT16_BYTES * place * hidden
        return states

    def _width(self, one: SequenceRows) -> int:
        """Return the columns that are written for a sequence: those of the head and, in whole blocks, of its added tokens."""
        return self.columns + -(-one.num_added // BLOCK_OUTPUTS) * BLOCK_OUTPUTS

    def _write(
        self,
        buffer: JobBuffer,
        rows: Rows,
        masks: Sequence[Tensor | None],
        logits: Tensor,
        behind: Tensor | None,
    ) -> None:
        """Write the fields that differ between passes."""
        job, slots = buffer.job, 0
        positions: list[int] = []
        for record, draft, one, mask in zip(
            buffer.sequences, buffer.drafts, rows.sequences, masks, strict=True
        ):
            self._write_sequence(record, one, mask)
            slots = max(slots, record.capacity)
            positions += one.positions
            if one.drafting:
                self._write_draft(draft, one, one.drafting)
        buffer.positions[:] = positions
        job.input, job.cos, job.sin = rows.x.data_ptr(), rows.cos.data_ptr(), rows.sin.data_ptr()
        job.positions_known, job.rotated = rows.cos.shape[-2:]
        job.inject_layer = rows.inject_layer
        job.logits, job.num_columns = logits.data_ptr(), logits.shape[1]
        job.embedding, job.final = address(rows.embedding), address(behind)
        self._write_scratch(job, slots)

    def _write_sequence(self, record: Any, one: SequenceRows, mask: Tensor | None) -> None:
        """Fill the fields of a conversation's record that do not follow from the job's form."""
        start = one.cache.start
        keys = start + len(one.positions)
        record.start, record.num_keys, record.prefix = start, keys, start + 1
        if mask is not None:
            record.prefix, record.seen = min(one.cache.length, start), mask.data_ptr()
        record.caches = one.cache.slots(keys + num_read(one.most), self._like)
        record.capacity = one.cache.capacity
        if one.injected:
            name = "injected" if one.injected.projected else "unprojected"
            setattr(record, name, one.injected.rows.data_ptr())
            record.first_injected, record.num_injected = (
                one.injected.first,
                one.injected.rows.shape[0],
            )
        if one.added is not None:
            record.added, record.num_added = one.added.data_ptr(), one.num_added

    def _write_draft(self, record: Any, one: SequenceRows, drafting: Drafting) -> None:
        """Fill the fields of a draft's record that do not follow from the job's form."""
        plan, token_ids = drafting.plan, drafting.token_ids
        record.num_columns = self._width(one)
        record.word_ids, record.rule = token_ids.data_ptr(), plan.rule.numbers.buffer_info()[0]
        record.survival, record.position = 1.0, one.positions[-1] + 1
        record.inverse_temperature = record.top_p = 1.0
        record.penalty = plan.penalty
        record.penalised = drafting.penalised.buffer_info()[0]
        record.num_penalised = drafting.num_penalised
        if plan.uniforms is not None:
            record.uniforms = plan.uniforms.data_ptr()
        if plan.noise is not None:
            record.coupled, record.noise = 1, plan.noise
        if record.uniforms or record.coupled:
            record.inverse_temperature, record.top_p = 1 / plan.temperature, plan.top_p
            record.top_k = plan.top_k

    def _write_scratch(self, job: Any, slots: int) -> None:
        """Set the addresses of scratch memory. slots: of the largest cache"""
        shared, own = self._room(job.num_rows, job.num_asked, slots)
        size = shared + own * torch.get_num_threads() + LINE
        kept = getattr(self._own, "scratch", None)
        if kept is None or kept.shape[0] < size:
            kept = self._own.scratch = torch.zeros(2 * size, dtype=torch.uint8)
        job.shared = -(-kept.data_ptr() // LINE) * LINE
        job.scratch, job.scratch_bytes = job.shared + shared, own

    def _buffer(self, form: Form) -> JobBuffer:
        """This thread's buffer for jobs of a form."""
        kept: dict[Form, JobBuffer] | None = getattr(self._own, "buffers", None)
        if kept is None or (len(kept) == MOST_BUFFERS and form not in kept):
            kept = self._own.buffers = {}
        found = kept.get(form)
        if found is None:
            found = kept[form] = JobBuffer(self._template, len(self.layers), form)
        return found

    def _fixed(self) -> bytes:
        """Return the bytes of the fields that all jobs share."""
        job, shape = jobs.JobStructure(), self.shape
        for one in fields(shape):
            value = getattr(shape, one.name)
            # Compiled code computes with float32.
            setattr(job, one.name, float(np.float32(value)) if isinstance(value, float) else value)
        job.table, job.layers = self.table.data_ptr(), ctypes.addressof(self.described)
        job.norm, job.head_norm = address(self.norm), address(self.head_norm)
        job.tiles = self.tiles.ctypes.data
        job.head_columns = self.columns
        job.feedback, job.head_rows = address(self.feedback), address(self.head_rows)
        if self.projection:
            job.project_inputs = len(self.projection.gain)
            job.project_gain = address(self.projection.gain)
            job.project_epsilon = self.projection.epsilon
            self.projection.matrix.write(job.project)
        self.head.write(job.head)
        return bytes(job)


@contextmanager
def compiling() -> Iterator[None]:
    """Compile the pass, or load its code from disk, in another thread while the block runs.

    A failure is raised where the pass is first used. After an error in the block, the thread is not waited for.
    """
    if not runs_here():
        yield
        return

    def work() -> None:
        with suppress(Exception):
            import_module("specdemo.kernels.draft_loop")

    thread = threading.Thread(target=work, name="specdemo-compile", daemon=True)
    thread.start()
    yield
    thread.join()


def digest(more: Sequence[Path] = ()) -> str:
    """Names the compiled pass, further files and this processor: with the same name the same is computed."""
    return kept.digest([*kept.sources(), *more])


def loaded(name: str) -> Any:
    """Function of `rows`, for ctypes; None if this process has not loaded the compiled pass, which takes seconds."""
    found = getattr(sys.modules.get("specdemo.kernels.rows"), name, None)
    return found.ctypes if found else None


def rows_of(table: Tensor, token_ids: Sequence[int]) -> Tensor:
    """Look up rows of a table for a compiled pass: (rows, H) float32. Raises IndexError for a token without a row.

    table: (V, H) bfloat16 on the CPU, contiguous
    """
    size, hidden = table.shape
    if not 0 <= min(token_ids) <= max(token_ids) < size:
        raise IndexError(f"a token has no embedding: there are {size}")
    ids, rows = array("q", token_ids), torch.empty(len(token_ids), hidden)
    look_up = loaded("look_up_at")
    look_up(table.data_ptr(), ids.buffer_info()[0], len(ids), hidden, rows.data_ptr())
    return rows


def _room(shape: Shape, projected: int, rows: int, asked: int, slots: int) -> tuple[int, int]:
    """Return the sizes of the buffer that all threads share and of each thread's own, in bytes of whole cache lines; see `llama.run_pass`.

    projected: inputs of the projection
    """
    padded, attended = -(-rows // 16) * 16, shape.heads * shape.head_dim
    all_heads = attended + 2 * shape.kv_heads * shape.head_dim
    widest = max(shape.hidden, shape.inner, attended, projected)
    shared = 4 * padded * (all_heads + attended + shape.hidden + 2 * shape.inner)
    own = padded * (8 * shape.hidden + 2 * widest + widest // 2 + 4 * projected) + max(
        8192 + padded * 128,
        4096 + shape.head_dim * cpu_features.products().QUERY + (slots + 17) * 64,
        8192 + shape.hidden * (6 + -(-asked // 16) * 32),
    )
    return -(-shared // LINE) * LINE, (own + 3 * LINE - 1) // LINE * LINE


def _tile_shapes() -> np.ndarray[Any, Any]:
    """(17, 64) uint8: row r shapes the AMX tiles (palette 1) for products of r rows; row 16 fills them."""
    settings = np.zeros((17, 64), dtype=np.uint8)
    for rows, shapes in enumerate(settings):
        shapes[0] = 1
        shapes[16:32].view(np.uint16)[:] = 64
        shapes[48:56] = [max(rows, 1)] * 6 + [16] * 2
    return settings
