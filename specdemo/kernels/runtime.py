"""The door to the compiled pass: layers and their head, the buffers of a pass, and the threads that run it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdemo.engine.draft_plan import Chain
from specdemo.kernels import check
from specdemo.kernels import job as jobs
from specdemo.kernels.packing import BLOCK, Packed
from specdemo.kernels.rows import Drafting, ExtraHead, Injected, Results, Rows, SequenceRows
from specdemo.kernels.team import parallel, runs_here
from specdemo.kernels.weights import LayerWeights, Shape, fits, write_matrix

__all__ = [
    "CHECK_JOBS", "CompiledLayers", "Drafting", "ExtraHead", "Injected", "LayerWeights", "Results", "Rows",
    "SequenceRows", "Shape", "fits", "runs_here",
]  # fmt: skip

CHECK_JOBS = "SPECDEMO_CHECK_JOBS"  # environment variable: check each job before it runs
LINE = 64  # bytes of a cache line
NUMBER = 8  # bytes of each field of a record


class CompiledLayers:
    """Layers and their head, run by the compiled pass. Shares weights between any number of conversations.

    table: from `packing.meanings`; norm: (hidden,) float32, before the head
    head: (V, hidden) bfloat16, laid out anew here, or a 4-bit matrix
    """

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        shape: Shape,
        table: Tensor,
        head: Tensor | Packed,
        norm: Tensor,
    ) -> None:
        self._run_in_team, products = _compiled()
        self.shape, self.layers, self.norm, self.table = shape, tuple(layers), norm, table
        self.head = head if isinstance(head, Packed) else Packed(*products.laid_out(head))
        self.columns = BLOCK * len(self.head.codes)
        self.described = (jobs.LayerStructure * len(layers))()
        for record, layer in zip(self.described, layers, strict=True):
            layer.write(record)
        self.tiles = _tile_shapes()
        self._query_bytes = products.QUERY
        self._like = torch.zeros(1, shape.kv_heads, 1, shape.head_dim, dtype=torch.bfloat16)
        self._checks = os.environ.get(CHECK_JOBS, "") not in ("", "0")
        self._own = threading.local()
        self._template = self._fixed()

    def run(
        self,
        rows: Rows,
        first: int = 0,
        last: int | None = None,
        *,
        states: Mapping[int, Tensor] | None = None,
        final: bool = False,
    ) -> Results:
        """Rows of all sequences through the layers from `first` to before `last`, and the head; call it in inference mode.

        states: (rows, hidden) bfloat16 tensors to fill, by the number of layers gone through
        final: whether the states behind the last layer are wanted
        """
        sequences = rows.sequences
        asked = sum(one.answers for one in sequences)
        logits = torch.empty(
            asked + sum(one.more for one in sequences), max(map(self._width, sequences))
        )
        behind = torch.empty_like(rows.x) if final else None
        masks = [_mask(one) for one in sequences]
        job, tokens = self._write(rows, masks, logits, states or {}, behind)
        job.first_layer, job.last_layer = first, len(self.layers) if last is None else last
        if self._checks:
            owners = check.owners(self, rows, masks, logits, states or {}, behind)
            buffers = check.buffers(sequences, *self._own.layout)
            check.check_job(job, owners | buffers, torch.get_num_threads())
        self._go(job)
        words = [self.columns + (one.extra.count if one.extra else 0) for one in sequences]
        drafts = sum(one is not None for one in tokens)
        parts = logits[:asked].split([one.answers for one in sequences])
        return Results(
            [part[:, :count] for part, count in zip(parts, words, strict=True)],
            behind,
            [
                _chain(one, logits[:, :count], drafts) if one is not None else None
                for one, count in zip(tokens, words, strict=True)
            ],
        )

    def _width(self, one: SequenceRows) -> int:
        """Columns that are written for a sequence: those of the head, and whole blocks of its own."""
        return self.columns + (-(-one.extra.count // BLOCK) * BLOCK if one.extra else 0)

    def _write(
        self,
        rows: Rows,
        masks: Sequence[Tensor | None],
        logits: Tensor,
        states: Mapping[int, Tensor],
        behind: Tensor | None,
    ) -> tuple[Any, list[tuple[Any, np.ndarray[Any, Any]] | None]]:
        """Write the job of a pass into this thread's buffer. returns: the job, and each sequence's draft and its tokens"""
        sequences = rows.sequences
        counts = [len(one.positions) for one in sequences]
        num_rows, asked = sum(counts), sum(one.answers for one in sequences)
        mosts = [one.more + 1 if one.drafting else 0 for one in sequences]
        # The parts of the buffer, in numbers: see README.md.
        sizes = (
            len(self._template) // NUMBER, len(self.layers) + 1, asked, num_rows,
            len(sequences) * jobs.SEQUENCE.itemsize // NUMBER,
            len(sequences) * jobs.DRAFT.itemsize // NUMBER,
            sum(mosts) * jobs.TOKEN.itemsize // NUMBER,
        )  # fmt: skip
        parts = list(accumulate(sizes))
        at_states, at_asked, at_positions, at_sequences, at_drafts, at_tokens, end = parts
        numbers, base = self._job_buffer(end)
        ctypes.memmove(base, self._template, len(self._template))
        job = jobs.JobStructure.from_address(base)
        table = (jobs.SequenceStructure * len(sequences)).from_address(base + NUMBER * at_sequences)
        drafts = (jobs.DraftStructure * len(sequences)).from_address(base + NUMBER * at_drafts)
        tokens: list[tuple[Any, np.ndarray[Any, Any]] | None] = []
        wanted: list[int] = []
        row = 0
        for number, (one, count, mask, most) in enumerate(
            zip(sequences, counts, masks, mosts, strict=True)
        ):
            record = table[number]
            self._write_sequence(record, one, mask)
            record.first_row, record.num_rows, record.first_asked = row, count, len(wanted)
            row += count
            wanted += range(row - one.answers, row)
            if one.drafting:
                record.draft = base + NUMBER * at_drafts + number * jobs.DRAFT.itemsize
                drafts[number].tokens = base + NUMBER * at_tokens
                self._write_draft(drafts[number], one, one.drafting)
                job.drafts += 1
                size = most * jobs.TOKEN.itemsize // NUMBER
                part = numbers[at_tokens : at_tokens + size].view(jobs.TOKEN)
                tokens.append((drafts[number], part))
                at_tokens += size
            else:
                tokens.append(None)
        numbers[at_states:at_asked] = 0
        for index, tensor in states.items():
            numbers[at_states + index] = tensor.data_ptr()
        numbers[at_asked:at_positions] = wanted
        numbers[at_positions:at_sequences] = [p for one in sequences for p in one.positions]
        job.num_rows, job.num_sequences, job.num_asked = num_rows, len(sequences), asked
        job.states, job.asked = base + NUMBER * at_states, base + NUMBER * at_asked
        job.positions, job.sequences = base + NUMBER * at_positions, base + NUMBER * at_sequences
        job.input, job.cos, job.sin = rows.x.data_ptr(), rows.cos.data_ptr(), rows.sin.data_ptr()
        job.inject_layer = rows.inject_layer
        job.logits, job.num_columns = logits.data_ptr(), logits.shape[1]
        job.embedding = 0 if rows.embedding is None else rows.embedding.data_ptr()
        job.final = 0 if behind is None else behind.data_ptr()
        longest = max(
            one.cache.start + count + one.more for one, count in zip(sequences, counts, strict=True)
        )
        self._own.layout = (
            [base + NUMBER * part for part in parts],
            self._write_scratch(job, longest),
        )
        return job, tokens

    def _write_sequence(self, record: Any, one: SequenceRows, mask: Tensor | None) -> None:
        """Fill a conversation's record, but for where its rows lie."""
        start = one.cache.start
        keys = start + len(one.positions)
        record.start, record.num_keys, record.num_asked = start, keys, one.answers
        record.prefix, record.seen = keys, 0
        if mask is not None:
            record.prefix, record.seen = min(one.cache.length, start), mask.data_ptr()
        slots = one.cache.slots(keys + one.more, self._like)
        record.caches, record.capacity = slots.__array_interface__["data"][0], one.cache.capacity
        record.injected = record.num_extra = record.draft = 0
        if one.injected:
            record.injected = one.injected.rows.data_ptr()
            record.first_injected, record.num_injected = one.injected.first, len(one.injected.rows)
        if one.extra:
            write_matrix(record.extra, one.extra.matrix)
            record.num_extra = one.extra.count

    def _write_draft(self, record: Any, one: SequenceRows, drafting: Drafting) -> None:
        """Fill a draft's record, but for where its tokens go."""
        plan, words = drafting.plan, drafting.words
        record.most, record.taken, record.num_columns = plan.most, 0, self._width(one)
        record.word_ids, record.rule = words.ids.data_ptr(), plan.rule.numbers.ctypes.data
        record.survival, record.position = 1.0, one.positions[-1] + 1
        record.uniforms, record.inverse_temperature = 0, 1.0
        if plan.uniforms is not None:
            record.uniforms = plan.uniforms.data_ptr()
            record.inverse_temperature = 1 / plan.temperature

    def _write_scratch(self, job: Any, longest: int) -> tuple[check.Memory, check.Memory]:
        """Say where scratch memory lies. returns: the part that threads share, and the parts of each

        longest: keys of a conversation at most, those that are drafted included
        """
        shared, own = self._room(job.num_rows, job.num_asked, longest)
        size = shared + own * torch.get_num_threads() + LINE
        kept = getattr(self._own, "scratch", None)
        if kept is None or len(kept) < size:
            kept = self._own.scratch = torch.zeros(2 * size, dtype=torch.uint8)
        job.shared = -(-kept.data_ptr() // LINE) * LINE
        job.scratch, job.scratch_bytes = job.shared + shared, own
        return (job.shared, shared), (job.scratch, own * torch.get_num_threads())

    def _room(self, rows: int, asked: int, longest: int) -> tuple[int, int]:
        """Bytes of the buffers that all threads share, and of those that each has, in whole lines; see `llama.run_pass`."""
        shape = self.shape
        padded, attended = -(-rows // 16) * 16, shape.heads * shape.head_dim
        all_heads = attended + 2 * shape.kv_heads * shape.head_dim
        widest = max(shape.hidden, shape.inner, attended)
        shared = 4 * padded * (all_heads + attended + shape.hidden + 2 * shape.inner)
        own = padded * (8 * shape.hidden + 2 * widest + widest // 4) + max(
            8192 + padded * 128,
            4096 + shape.head_dim * self._query_bytes + (longest + 17) * 64,
            8192 + shape.hidden * (6 + -(-asked // 16) * 32),
        )
        return -(-shared // LINE) * LINE, (own + 3 * LINE - 1) // LINE * LINE

    def _job_buffer(self, size: int) -> tuple[np.ndarray[Any, Any], int]:
        """This thread's array for jobs, of at least so many numbers, and its address: numpy takes long to say it."""
        kept = getattr(self._own, "job", None)
        if kept is None or len(kept[0]) < size:
            array = np.zeros(2 * size, dtype=np.int64)
            kept = self._own.job = (array, array.ctypes.data)
        return kept

    def _fixed(self) -> bytes:
        """What all jobs have in common."""
        job, shape = jobs.JobStructure(), self.shape
        for name in (
            "heads",
            "kv_heads",
            "head_dim",
            "hidden",
            "inner",
            "group",
            "epsilon",
            "scale",
        ):
            setattr(job, name, getattr(shape, name))
        # Compiled code computes with float32.
        job.epsilon, job.scale = float(np.float32(shape.epsilon)), float(np.float32(shape.scale))
        job.table, job.layers = self.table.data_ptr(), ctypes.addressof(self.described)
        job.norm, job.tiles, job.head_columns = (
            self.norm.data_ptr(),
            self.tiles.ctypes.data,
            self.columns,
        )
        write_matrix(job.head, self.head)
        return bytes(job)

    def _go(self, job: Any) -> None:
        """Run a job in this thread's team."""
        team, threads = parallel(), torch.get_num_threads()
        place = ctypes.addressof(job)
        if threads > 1 and team is not None:
            team(self._run_in_team.address, place, threads, 0)
        else:
            self._run_in_team.ctypes(place)


@cache
def _compiled() -> tuple[Any, Any]:
    """The compiled function, and the kind of products that it uses. Raises RuntimeError where it reads other records."""
    from specdemo.kernels.attention import products  # type: ignore[attr-defined]
    from specdemo.kernels.draft_loop import run_in_team
    from specdemo.kernels.records import record_sizes

    sizes = np.zeros(len(jobs.RECORDS), dtype=np.int64)
    record_sizes.ctypes(sizes.ctypes.data)
    jobs.check_sizes(tuple(sizes.tolist()))
    return run_in_team, products


def _mask(one: SequenceRows) -> Tensor | None:
    """(rows, keys) bool; None where all rows see all keys."""
    rows, start = len(one.positions), one.cache.start
    if one.seen is not None:
        return one.seen.contiguous()
    return torch.ones(rows, start + rows, dtype=torch.bool).tril_(start) if rows > 1 else None


def _chain(draft: tuple[Any, np.ndarray[Any, Any]], logits: Tensor, runs: int) -> Chain:
    """A draft that compiled code has written: its record and its tokens.

    logits: all rows that were written; runs: how many drafted together
    """
    record, tokens = draft
    taken = tokens[: record.taken]
    seconds = (taken["seconds"] + 1e-9 * taken["nanoseconds"]).tolist()
    step = (seconds[-1] - seconds[0]) / (len(taken) - 1) / runs if len(taken) > 1 else None
    rows = [logits[row] for row in taken["row"].tolist()]
    return Chain(taken["column"].tolist(), rows, taken["confidence"].tolist(), step, runs)


def _tile_shapes() -> np.ndarray[Any, Any]:
    """(17, 64) uint8: row r shapes the AMX tiles (palette 1) for products of r rows; row 16 fills them."""
    settings = np.zeros((17, 64), dtype=np.uint8)
    for rows, shapes in enumerate(settings):
        shapes[0] = 1
        shapes[16:32].view(np.uint16)[:] = 64
        shapes[48:56] = [max(rows, 1)] * 6 + [16] * 2
    return settings
