"""Checks a job before it runs: each address range that compiled code will use must lie in the memory that owns it.

For changes of a job's layout or of a kernel: without the check a wrong address reads other data, or ends the process.
`SPECDEMO_CHECK_JOBS=1 pytest tests/kernels` checks every job.
"""

import ctypes
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdemo.kernels import job as jobs
from specdemo.kernels.blocks import KINDS, BlockMatrix
from specdemo.kernels.packing import BLOCK_OUTPUTS, GROUP_INPUTS, Packed
from specdemo.kernels.plan import TENTHS
from specdemo.kernels.runtime import NORMS, CompiledLayers, Rows, SequenceRows

Memory = tuple[int, int]  # first byte, bytes


class JobError(RuntimeError):
    """A job that would read or write memory that is not its own."""


@dataclass(frozen=True, slots=True)
class Range:
    """What compiled code will use of a field. owner: the memory that it belongs to; sizes: fields that it follows from"""

    name: str
    address: int
    num_bytes: int
    owner: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)


def inspect(stack, rows, masks, logits, states, behind, parts, scratch, job):
    """Check a job before it runs; for `CompiledLayers.inspect`. Raises JobError."""
    owned = owners(stack, rows, masks, logits, states, behind)
    owned |= buffers(rows.sequences, parts, scratch)
    check_job(job, owned, torch.get_num_threads())


def memory(owner: Tensor | array | np.ndarray[Any, Any]) -> Memory:
    """Where the values of a tensor or an array lie."""
    if isinstance(owner, Tensor):
        return owner.data_ptr(), owner.numel() * owner.element_size()
    if isinstance(owner, array):
        return owner.buffer_info()[0], len(owner) * owner.itemsize
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
    found: dict[str, Tensor | array | np.ndarray[Any, Any] | None] = {
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
        begin, size = owned.get(one.owner or one.name, (0, 0))
        if begin <= one.address and one.address + one.num_bytes <= begin + size:
            continue
        sizes = ", ".join(f"{name} = {value}" for name, value in one.sizes.items())
        raise JobError(
            f"{one.name} of the job uses {one.num_bytes} bytes at {one.address:#x} ({sizes or 'one record'}), "
            f"and owns {size} bytes at {begin:#x}. Nothing was run."
        )


# Of each record its addresses (with ? those that may be 0) and the bytes behind them; for places in another field's
# memory also the address and that field. Names are fields of the record, or of those that contain it.
ROW = "hidden * 4"
JOB = (
    ("input", f"num_rows * {ROW}"),
    ("positions", "num_rows * 8"),
    ("asked", "num_asked * 8"),
    ("states", "(last_layer + 1) * 8"),
    ("final?", f"num_rows * {ROW}"),
    ("table", "64"),
    ("tiles", "17 * 64"),
    ("norm", ROW),
    ("feedback?", ROW),
    ("layers", f"last_layer * {jobs.LAYER.itemsize}"),
    ("layers", "0", f"layers + min(first_layer, 0) * {jobs.LAYER.itemsize}", "layers"),
    # The buffers that `llama.run_pass` divides its scratch memory into.
    ("shared", "-(-num_rows // 16) * 64 * ((2 * heads + 2 * kv_heads) * head_dim + hidden + 2 * inner)"),
    ("scratch", "scratch_bytes * threads"),
    ("logits", "num_asked * num_columns * 4"),
    ("sequences", f"num_sequences * {jobs.SEQUENCE.itemsize}"),
)  # fmt: skip
HEADS_NORM = "(heads if joint_norms else 1) * head_dim * 4"
KEYS_NORM = "(kv_heads if joint_norms else 1) * head_dim * 4"
LAYER = (
    *zip((f"{norm}?" for norm in NORMS), (*[ROW] * 4, HEADS_NORM, KEYS_NORM), strict=True),
    ("qkv_bias?", "(heads + 2 * kv_heads) * head_dim * 4"),
)
SHAPES = {  # outputs and inputs
    "qkv": ("(heads + 2 * kv_heads) * head_dim", "hidden"),
    "output": ("hidden", "heads * head_dim"),
    "gate_up": ("2 * inner", "hidden"),
    "down": ("hidden", "inner"),
}
SEQUENCE = (
    ("draft?", f"{jobs.DRAFT.itemsize}"),
    ("first_row", f"num_rows * {ROW}", f"input + first_row * {ROW}", "input"),
    ("first_asked", "num_asked * 8", "asked + first_asked * 8", "asked"),
    ("seen?", "num_rows * num_keys"),
    ("caches", "last_layer * 16"),
)
INJECTED = (
    ("injected", f"num_injected * {ROW}"),
    ("first_injected", f"num_injected * {ROW}", f"input + (first_row + first_injected) * {ROW}", "input"),
)  # fmt: skip
# The last head's rows end where the cache ends; a conversation that is longer than its capacity goes beyond.
FILLED = "max(start + num_rows, num_keys, prefix) + drafted"
CACHE = f"((kv_heads - 1) * capacity + max(capacity, {FILLED}) - min(start, 0)) * head_dim * 2"
DRAFT = (
    ("tokens", f"most * {jobs.TOKEN.itemsize}"),
    ("rule", f"({TENTHS} + 1 + most) * 8"),
    ("uniforms?", "most * 8"),
    ("penalised", "(num_penalised + most) * 8"),
    ("word_ids", "(head_columns + num_extra) * 8"),
    ("num_columns", "num_columns * 4", "logits", "logits"),
)


class Values(dict):
    """The fields of records, the innermost first, that an expression reads."""

    def __init__(self, *records: Any, **more: int) -> None:
        super().__init__(more)
        self.records = records

    def __missing__(self, name: str) -> int:
        found = [one for one in self.records if hasattr(one, name)]
        if not found:
            raise KeyError(name)
        self[name] = getattr(found[0], name)
        return self[name]


def _spans(ranges: Any, name: str, *records: Any, **more: int) -> Iterator[Range]:
    """The ranges of a record by its table. name: of the record, with a point"""
    for name_of, size, *place in ranges:
        own = name_of.rstrip("?")
        address = getattr(records[0], own, 0)
        if name_of.endswith("?") and not address:
            continue
        values = Values(*records, **more)
        if place:
            address = eval(place[0], None, values)
        num_bytes = eval(size, None, values)
        yield Range(f"{name}{own}", address, num_bytes, *place[1:], sizes=dict(values))


def _ranges(job: Any, threads: int) -> Iterator[Range]:
    """All that compiled code will read or write. A range is given before what lies in it is read."""
    yield from _spans(JOB, "", job, threads=threads)
    for index, at in enumerate(_numbers(job.states, job.last_layer + 1)):
        if at:
            row = (f"states[{index}]", "num_rows * hidden * 2", "at", f"states[{index}]")
            yield from _spans([row], "", job, at=int(at))
    for index in _numbers(job.asked, job.num_asked):
        row = ("input", ROW, f"input + index * {ROW}", "input")
        yield from _spans([row], "", job, index=int(index))
    for index in range(job.first_layer, job.last_layer):
        layer = _layer(job, index)
        yield from _spans(LAYER, f"layers[{index}].", layer, job)
        for matrix, shape in SHAPES.items():
            yield from _matrix(f"layers[{index}].{matrix}.", getattr(layer, matrix), *shape, job)
    yield from _matrix("head.", job.head, "head_columns", "hidden", job)
    written, positions = job.num_asked, [int(one) for one in _numbers(job.positions, job.num_rows)]
    for number in range(job.num_sequences):
        one = jobs.SequenceStructure.from_address(job.sequences + number * jobs.SEQUENCE.itemsize)
        yield from _sequence(job, one, f"sequences[{number}].")
        if one.draft:
            draft = jobs.DraftStructure.from_address(one.draft)
            yield from _spans(DRAFT, f"sequences[{number}].draft.", draft, one, job)
            highest = int(_numbers(draft.word_ids, job.head_columns + one.num_extra).max())
            row = ("embedding", "(highest + 1) * hidden * 2")
            yield from _spans([row], "", job, highest=highest)
            written += draft.most - 1
            positions.append(draft.position + draft.most - 2)
    yield from _spans([("logits", "rows * num_columns * 4")], "", job, rows=written)
    tables = [_layer(job, index).rotary for index in range(job.first_layer, job.last_layer)]
    known = {"tables": max([0, *tables]), "first": min(positions), "last": max(positions)}
    for name in ("cos", "sin"):
        all_angles = (name, "(tables * positions_known + last + 1) * rotated * 4")
        lowest = (name, "0", f"{name} + first * rotated * 4", name)
        yield from _spans([all_angles, lowest], "", job, **known)


def _layer(job: Any, index: int) -> Any:
    return jobs.LayerStructure.from_address(job.layers + index * jobs.LAYER.itemsize)


def _matrix(name: str, record: Any, outputs: str, inputs: str, *outer: Any) -> Iterator[Range]:
    """A matrix of 4 bits; or a head of 8, or of 16, which may have no scales."""
    if record.parts:
        yield from _block_parts(name, record, eval(inputs, None, Values(*outer)))
        return
    scales = f"{outputs} * ({inputs} // {'group' if record.bits == 4 else GROUP_INPUTS})"
    rows = [("codes", f"{outputs} * {inputs} * bits // 8"), ("zeros?", f"{scales} * 2")]
    rows += [("scales" if record.bits < 16 else "scales?", f"{scales} * (2 if zeros else 4)")]
    yield from _spans(rows, name, record, *outer)


def _sequence(job: Any, one: Any, name: str) -> Iterator[Range]:
    yield from _spans(SEQUENCE, name, one, job)
    drafted = jobs.DraftStructure.from_address(one.draft).most - 1 if one.draft else 0
    for index in range(job.first_layer, job.last_layer):
        places = zip(("keys", "values"), _numbers(one.caches + index * 16, 2), strict=True)
        for part, at in places:
            owner = f"{name}caches[{index}].{part}"
            row = (f"caches[{index}].{part}", CACHE, "at + min(start, 0) * head_dim * 2", owner)
            yield from _spans([row], name, one, job, at=int(at), drafted=drafted)
    yield from _spans(INJECTED if one.injected else (), name, one, job)
    if one.num_extra:
        blocks = f"-(-num_extra // {BLOCK_OUTPUTS}) * {BLOCK_OUTPUTS}"
        yield from _matrix(f"{name}extra.", one.extra, blocks, "hidden", one, job)


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
    yield from _spans([("codes", f"parts * {jobs.PART.itemsize}")], name, record)
    parts = (jobs.PartStructure * record.parts).from_address(record.codes)
    for number, part in enumerate(parts):
        kind, weights = KINDS[part.kind], part.blocks * 32 * inputs
        units = weights // kind.span * (4 if kind.pairs else 2)
        sizes = (weights * kind.bits // 8, units, units, weights // 16)
        for one, size in zip(ARRAYS, sizes, strict=True):
            if getattr(part, one):
                yield Range(f"{name.rstrip('.')}[{number}].{one}", getattr(part, one), size)


def _numbers(address: int, count: int) -> np.ndarray[Any, Any]:
    """int64 at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))
