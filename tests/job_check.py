"""Checks a job before it runs: each address range that compiled code will use must lie in the memory that owns it.

For changes of a job's layout or of a kernel: without the check a wrong address reads other data, or ends the process.
`SPECDEMO_CHECK_JOBS=1 pytest tests/kernels` checks every job.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdemo.kernels import job as jobs
from specdemo.kernels.blocks import KINDS, BlockMatrix
from specdemo.kernels.inputs import NORMS, Rows, SequenceRows
from specdemo.kernels.packing import BLOCK_OUTPUTS, GROUP_INPUTS, Packed
from specdemo.kernels.plan import TENTHS
from specdemo.kernels.runtime import CompiledLayers

Memory = tuple[int, int]  # first byte, bytes


class JobError(RuntimeError):
    """A job that would read or write memory that is not its own."""


@dataclass(frozen=True, slots=True)
class Range:
    """What compiled code will use of a field. owner: the memory that it belongs to; sizes: fields that it follows from"""

    field: str
    address: int
    num_bytes: int
    owner: str = ""
    sizes: Mapping[str, int] | None = None


def inspect(stack, rows, masks, logits, states, behind, parts, scratch, job):
    """Check a job before it runs; for `CompiledLayers.inspect`. Raises JobError."""
    owned = owners(stack, rows, masks, logits, states, behind)
    owned |= buffers(rows.sequences, parts, scratch)
    check_job(job, owned, torch.get_num_threads())


def memory(owner: Tensor | np.ndarray[Any, Any]) -> Memory:
    """Where the values of a tensor or an array lie."""
    if isinstance(owner, Tensor):
        return owner.data_ptr(), owner.numel() * owner.element_size()
    return owner.ctypes.data, owner.nbytes


def owners(
    stack: CompiledLayers,
    rows: Rows,
    masks: Sequence[Tensor | None],
    logits: Tensor,
    states: Mapping[int, Tensor],
    behind: Tensor | None,
) -> dict[str, Memory]:
    """The memory that each field of a pass may use, but for this thread's buffers."""
    found: dict[str, Tensor | np.ndarray[Any, Any] | None] = {
        "table": stack.table, "norm": stack.norm, "tiles": stack.tiles, "input": rows.x, "cos": rows.cos,
        "sin": rows.sin, "embedding": rows.embedding, "logits": logits, "final": behind,
        "feedback": stack.feedback,
    }  # fmt: skip
    found |= _parts("head", stack.head)
    found |= {f"states[{index}]": tensor for index, tensor in states.items()}
    for index, layer in enumerate(stack.layers):
        name = f"layers[{index}]"
        found |= {f"{name}.{norm}": getattr(layer, norm) for norm in NORMS}
        found[f"{name}.qkv_bias"] = layer.qkv.bias
        for matrix in MATRICES:
            found |= _parts(f"{name}.{matrix}", getattr(layer, matrix))
    for number, (one, mask) in enumerate(zip(rows.sequences, masks, strict=True)):
        name = f"sequences[{number}]"
        found[f"{name}.seen"] = mask
        found[f"{name}.caches"] = one.cache.slots(0, rows.x)
        for index, kept in enumerate(one.cache.layers):
            found |= {
                f"{name}.caches[{index}].keys": kept.keys,
                f"{name}.caches[{index}].values": kept.values,
            }
        found[f"{name}.injected"] = one.injected.rows if one.injected else None
        if one.extra:
            found |= _parts(f"{name}.extra", one.extra.matrix)
        if one.drafting:
            plan = one.drafting.plan
            found |= {
                f"{name}.draft.word_ids": one.drafting.token_ids,
                f"{name}.draft.rule": plan.rule.numbers,
                f"{name}.draft.uniforms": plan.uniforms,
                f"{name}.draft.penalised": one.drafting.penalised,
            }
    described = (ctypes.addressof(stack.described), ctypes.sizeof(stack.described))
    return {name: memory(one) for name, one in found.items() if one is not None} | {
        "layers": described
    }


MATRICES = ("qkv", "output", "gate_up", "down")


def buffers(
    sequences: Sequence[SequenceRows], parts: Sequence[int], scratch: Sequence[Memory]
) -> dict[str, Memory]:
    """The memory of a thread's job buffer and scratch.

    parts: where the parts of the job buffer behind the job begin, and its end; scratch: shared by threads, and of each
    """
    found = dict(zip(("shared", "scratch"), scratch, strict=True))
    bounds = pairwise(parts)
    names = ("states", "asked", "positions", "sequences", "drafts", "tokens")
    found |= {name: (begin, end - begin) for name, (begin, end) in zip(names, bounds, strict=True)}
    (drafts, _), (tokens, _) = found.pop("drafts"), found.pop("tokens")
    for number, one in enumerate(sequences):
        found[f"sequences[{number}].draft"] = drafts, jobs.DRAFT.itemsize
        drafts += jobs.DRAFT.itemsize
        if one.drafting:
            size = one.drafting.plan.most * jobs.TOKEN.itemsize
            found[f"sequences[{number}].draft.tokens"] = tokens, size
            tokens += size
    return found


def check_job(job: Any, owned: Mapping[str, Memory], threads: int) -> None:
    """Raise JobError, with the name of the field, where a job leaves the memory that it owns."""
    for one in _ranges(job, threads):
        begin, size = owned.get(one.owner or one.field, (0, 0))
        if begin <= one.address and one.address + one.num_bytes <= begin + size:
            continue
        sizes = ", ".join(f"{name} = {value}" for name, value in (one.sizes or {}).items())
        raise JobError(
            f"{one.field} of the job uses {one.num_bytes} bytes at {one.address:#x} ({sizes or 'one record'}), "
            f"and owns {size} bytes at {begin:#x}. Nothing was run."
        )


def _ranges(job: Any, threads: int) -> Iterator[Range]:
    """All that compiled code will read or write. A range is given before what lies in it is read."""
    rows = {"num_rows": job.num_rows, "hidden": job.hidden}
    last = {"last_layer": job.last_layer}
    yield Range("input", job.input, _product(rows) * 4, sizes=rows)
    yield Range("positions", job.positions, job.num_rows * 8, sizes={"num_rows": job.num_rows})
    yield Range("asked", job.asked, job.num_asked * 8, sizes={"num_asked": job.num_asked})
    yield Range("states", job.states, (job.last_layer + 1) * 8, sizes=last)
    if job.final:
        yield Range("final", job.final, _product(rows) * 4, sizes=rows)
    for index, address in enumerate(_numbers(job.states, job.last_layer + 1)):
        if address:
            yield Range(f"states[{index}]", int(address), _product(rows) * 2, sizes=rows)
    for index in _numbers(job.asked, job.num_asked):
        yield Range(
            "input",
            job.input + int(index) * job.hidden * 4,
            job.hidden * 4,
            sizes={"asked": int(index)},
        )
    yield Range("table", job.table, 64)
    yield Range("tiles", job.tiles, 17 * 64)
    yield Range("norm", job.norm, job.hidden * 4, sizes={"hidden": job.hidden})
    if job.feedback:
        yield Range("feedback", job.feedback, job.hidden * 4, sizes={"hidden": job.hidden})
    yield from _layers(job)
    head = {"head_columns": job.head_columns, "hidden": job.hidden}
    yield from _matrix("head", job.head, job.head_columns, job.hidden, job.group, head)
    yield from _scratch(job, threads)
    sizes = {"num_asked": job.num_asked, "num_columns": job.num_columns}
    yield Range("logits", job.logits, _product(sizes) * 4, sizes=sizes)
    count = {"num_sequences": job.num_sequences}
    size = job.num_sequences * jobs.SEQUENCE.itemsize
    yield Range("sequences", job.sequences, size, sizes=count)
    written, positions = job.num_asked, [int(one) for one in _numbers(job.positions, job.num_rows)]
    for number in range(job.num_sequences):
        one = jobs.SequenceStructure.from_address(job.sequences + number * jobs.SEQUENCE.itemsize)
        yield from _sequence(job, one, f"sequences[{number}]")
        if one.draft:
            draft = jobs.DraftStructure.from_address(one.draft)
            yield from _draft(job, one, draft, f"sequences[{number}].draft")
            written += draft.most - 1
            positions.append(draft.position + draft.most - 2)
    sizes["rows"] = written
    yield Range("logits", job.logits, written * job.num_columns * 4, sizes=sizes)
    described = [_layer(job, index) for index in range(job.first_layer, job.last_layer)]
    tables = max([0, *(one.rotary for one in described)])
    angles = {
        "positions": tables * job.positions_known + max(positions) + 1, "rotated": job.rotated,
    }  # fmt: skip
    for name in ("cos", "sin"):
        yield Range(name, getattr(job, name), _product(angles) * 4, sizes=angles)
        lowest = getattr(job, name) + min(positions) * job.rotated * 4
        yield Range(name, lowest, 0, sizes={"position": min(positions)})


def _layers(job: Any) -> Iterator[Range]:
    layers = {"last_layer": job.last_layer}
    yield Range("layers", job.layers, job.last_layer * jobs.LAYER.itemsize, sizes=layers)
    if job.first_layer < 0:
        yield Range(
            "layers",
            job.layers + job.first_layer * jobs.LAYER.itemsize,
            0,
            sizes={"first_layer": job.first_layer},
        )
    attended = job.heads * job.head_dim
    all_heads = attended + 2 * job.kv_heads * job.head_dim
    sizes = {
        name: getattr(job, name)
        for name in ("heads", "kv_heads", "head_dim", "hidden", "inner", "group")
    }
    shapes = {
        "qkv": (all_heads, job.hidden), "output": (job.hidden, attended),
        "gate_up": (2 * job.inner, job.hidden), "down": (job.hidden, job.inner),
    }  # fmt: skip
    heads = (job.heads, job.kv_heads) if job.joint_norms else (1, 1)
    widths = dict(
        zip(NORMS, [job.hidden] * 4 + [count * job.head_dim for count in heads], strict=True)
    )
    for index in range(job.first_layer, job.last_layer):
        layer = _layer(job, index)
        name = f"layers[{index}]"
        for norm, width in widths.items():
            if getattr(layer, norm):
                yield Range(f"{name}.{norm}", getattr(layer, norm), width * 4, sizes=sizes)
        if layer.qkv_bias:
            yield Range(f"{name}.qkv_bias", layer.qkv_bias, all_heads * 4, sizes=sizes)
        for matrix, (outputs, inputs) in shapes.items():
            yield from _matrix(
                f"{name}.{matrix}", getattr(layer, matrix), outputs, inputs, job.group, sizes
            )


def _layer(job: Any, index: int) -> Any:
    return jobs.LayerStructure.from_address(job.layers + index * jobs.LAYER.itemsize)


def _matrix(
    name: str, record: Any, outputs: int, inputs: int, group: int, sizes: Mapping[str, int]
) -> Iterator[Range]:
    """A matrix of 4 bits; or a head of 8, or of 16, which may have no scales."""
    if record.parts:
        yield from _block_parts(name, record, inputs)
        return
    bits = record.bits
    sizes = {**sizes, "bits": bits}
    yield Range(f"{name}.codes", record.codes, outputs * inputs * bits // 8, sizes=sizes)
    scales = outputs * (inputs // (group if bits == 4 else GROUP_INPUTS))
    if record.scales or bits < 16:
        yield Range(
            f"{name}.scales", record.scales, scales * (2 if record.zeros else 4), sizes=sizes
        )
    if record.zeros:
        yield Range(f"{name}.zeros", record.zeros, scales * 2, sizes=sizes)


def _scratch(job: Any, threads: int) -> Iterator[Range]:
    """The buffers that `llama.run_pass` divides its scratch memory into."""
    padded, attended = -(-job.num_rows // 16) * 16, job.heads * job.head_dim
    all_heads = attended + 2 * job.kv_heads * job.head_dim
    shared = 4 * padded * (all_heads + attended + job.hidden + 2 * job.inner)
    sizes = {
        name: getattr(job, name)
        for name in ("num_rows", "hidden", "inner", "heads", "scratch_bytes")
    }
    yield Range("shared", job.shared, shared, sizes=sizes)
    yield Range("scratch", job.scratch, job.scratch_bytes * threads, sizes=sizes)


def _sequence(job: Any, one: Any, name: str) -> Iterator[Range]:
    """One conversation's record."""
    if one.draft:
        yield Range(f"{name}.draft", one.draft, jobs.DRAFT.itemsize)
    more = jobs.DraftStructure.from_address(one.draft).most - 1 if one.draft else 0
    rows = {"first_row": one.first_row, "num_rows": one.num_rows}
    yield Range(
        f"{name}.first_row",
        job.input + one.first_row * job.hidden * 4,
        one.num_rows * job.hidden * 4,
        "input",
        rows,
    )
    asked = {"first_asked": one.first_asked, "num_asked": one.num_asked}
    yield Range(
        f"{name}.first_asked", job.asked + one.first_asked * 8, one.num_asked * 8, "asked", asked
    )
    if one.seen:
        keys = {"num_rows": one.num_rows, "num_keys": one.num_keys}
        yield Range(f"{name}.seen", one.seen, _product(keys), sizes=keys)
    yield Range(
        f"{name}.caches", one.caches, job.last_layer * 16, sizes={"last_layer": job.last_layer}
    )
    row_bytes = job.head_dim * 2
    sizes = {
        "capacity": one.capacity,
        "start": one.start,
        "num_keys": one.num_keys,
        "prefix": one.prefix,
        "drafted": more,
    }
    filled = max(one.start + one.num_rows, one.num_keys, one.prefix) + more
    # The last head's rows end where the cache ends; a conversation that is longer than its capacity goes beyond.
    end = (job.kv_heads - 1) * one.capacity + max(one.capacity, filled)
    for index in range(job.first_layer, job.last_layer):
        keys_at, values_at = _numbers(one.caches + index * 16, 2)
        first = min(one.start, 0) * row_bytes
        for part, address in (("keys", keys_at), ("values", values_at)):
            yield Range(
                f"{name}.caches[{index}].{part}",
                int(address) + first,
                end * row_bytes - first,
                sizes=sizes,
            )
    if one.injected:
        injected = {"num_injected": one.num_injected, "hidden": job.hidden}
        yield Range(f"{name}.injected", one.injected, _product(injected) * 4, sizes=injected)
        first = job.input + (one.first_row + one.first_injected) * job.hidden * 4
        yield Range(f"{name}.first_injected", first, _product(injected) * 4, "input", injected)
    if one.num_extra:
        blocks = -(-one.num_extra // BLOCK_OUTPUTS) * BLOCK_OUTPUTS
        extra = {"num_extra": one.num_extra, "hidden": job.hidden}
        yield from _matrix(f"{name}.extra", one.extra, blocks, job.hidden, job.group, extra)


def _draft(job: Any, one: Any, draft: Any, name: str) -> Iterator[Range]:
    """What a conversation drafts with."""
    most, words = {"most": draft.most}, job.head_columns + one.num_extra
    yield Range(f"{name}.tokens", draft.tokens, draft.most * jobs.TOKEN.itemsize, sizes=most)
    yield Range(f"{name}.rule", draft.rule, (TENTHS + 1 + draft.most) * 8, sizes=most)
    if draft.uniforms:
        yield Range(f"{name}.uniforms", draft.uniforms, draft.most * 8, sizes=most)
    penalised = {"num_penalised": draft.num_penalised, **most}
    size = sum(penalised.values()) * 8
    yield Range(f"{name}.penalised", draft.penalised, size, sizes=penalised)
    yield Range(
        f"{name}.word_ids", draft.word_ids, words * 8, sizes={"head_columns": job.head_columns}
    )
    columns = {"num_columns": draft.num_columns}
    yield Range(f"{name}.num_columns", job.logits, draft.num_columns * 4, "logits", columns)
    highest = int(_numbers(draft.word_ids, words).max())
    yield Range(
        "embedding", job.embedding, (highest + 1) * job.hidden * 2, sizes={"hidden": job.hidden}
    )


def _parts(
    name: str, matrix: Packed | BlockMatrix
) -> dict[str, Tensor | np.ndarray[Any, Any] | None]:
    if isinstance(matrix, BlockMatrix):
        found = {f"{name}.codes": np.frombuffer(matrix.records, np.int64)}
        for number, part in enumerate(matrix.parts):
            found |= {f"{name}[{number}].{one}": getattr(part, one) for one in ARRAYS}
        return found
    return {
        f"{name}.codes": matrix.codes,
        f"{name}.scales": matrix.scales,
        f"{name}.zeros": matrix.zeros,
    }


ARRAYS = ("codes", "units", "zeros", "steps")


def _block_parts(name: str, record: Any, inputs: int) -> Iterator[Range]:
    """The arrays of a matrix in blocks."""
    yield Range(f"{name}.codes", record.codes, record.parts * jobs.PART.itemsize)
    parts = (jobs.PartStructure * record.parts).from_address(record.codes)
    for number, part in enumerate(parts):
        kind, weights = KINDS[part.kind], part.blocks * 32 * inputs
        units = weights // kind.span * (4 if kind.pairs else 2)
        sizes = (weights * kind.bits // 8, units, units, weights // 16)
        for one, size in zip(ARRAYS, sizes, strict=True):
            if getattr(part, one):
                yield Range(f"{name}[{number}].{one}", getattr(part, one), size)


def _numbers(address: int, count: int) -> np.ndarray[Any, Any]:
    """int64 at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))


def _product(sizes: Mapping[str, int]) -> int:
    return int(np.prod(list(sizes.values())))
