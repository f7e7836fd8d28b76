"""Products with 8-bit activations over weights in blocks of 32 inputs, see `blocks.KINDS`.

Activations become whole numbers of 8 bits with a step for each row and 32 inputs, as in llama.cpp. Their products with the
codes add up to the same 32-bit integer in any order; the sums over the blocks are float32, in the order of the blocks.
So a row's result does not depend on the other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir
from numba.core import cgutils

from specdemo.kernels import cpu_features, llvm, simd
from specdemo.kernels.blocks import INPUTS, KINDS, Kind
from specdemo.kernels.llvm import compiled
from specdemo.kernels.matmul_vectors import paired

MOST = 127  # of an activation
# Rows per call: their sums of a block of inputs and of all blocks stay in registers.
CALL_ROWS = 6 if cpu_features.has_wide_vectors() else 2
# Up to so many rows wait for memory, so codes are prefetched into the nearest cache. For more rows they are prefetched into the
# next one, and earlier: the nearest cache is left to the activations.
FEW_ROWS = 3
ABOUT = 16  # bytes about a block of activations: its step, its value, and minus the sums of its numbers and of the first half
OUTPUTS = 32
BYTE_LANES = ir.VectorType(llvm.I8, 4 * llvm.WIDTH)  # four inputs of 16 outputs
QUADS = INPUTS // 4


@llvm.emits()
def round_to_int8(builder, source, into, about):
    """Convert INPUTS float32 to as many whole numbers of 8 bits. about: address of four numbers of 32 bits, see ABOUT"""
    whole, step = llvm.rounded(builder, source, INPUTS // llvm.WIDTH, MOST)
    sums = []
    for line, numbers in enumerate(whole):
        bytes_ = builder.trunc(numbers, ir.VectorType(llvm.I8, llvm.WIDTH))
        llvm.store(builder, bytes_, llvm.at(builder, into, llvm.WIDTH * line))
        name = "llvm.vector.reduce.add.v16i32"
        sums.append(builder.neg(llvm.call(builder, name, llvm.I32, (numbers,))))
    both = builder.add(*sums)
    value = builder.fneg(builder.fmul(builder.sitofp(both, ir.FloatType()), step))
    for number, found in enumerate((step, value, both, sums[0])):
        llvm.store(builder, found, llvm.at(builder, about, 4 * number))


@compiled
def quantize_inputs(x, stride, into, about, rows, width):
    """Convert inputs for `product`. x: float32 rows `stride` bytes apart; into: (rows, width) int8; about: (rows, width // 32) of ABOUT"""
    for row in range(rows):
        for g in range(width // INPUTS):
            number = row * (width // INPUTS) + g
            round_to_int8(
                x + row * stride + g * 128, into + number * INPUTS, about + number * ABOUT
            )


def _summed(builder: ir.IRBuilder, total: ir.Value, codes: ir.Value, inputs: ir.Value) -> ir.Value:
    """Return total + sums of four products each, 16 int32. codes: BYTE_LANES without signs; inputs: 32 bits of four signed bytes"""
    values = llvm.splat(builder, inputs, llvm.INTS)
    if cpu_features.has("avx512vnni") and cpu_features.has_wide_vectors():
        return llvm.call(
            builder,
            "llvm.x86.avx512.vpdpbusd.512",
            llvm.INTS,
            (total, builder.bitcast(codes, llvm.INTS), values),
        )
    if cpu_features.has("avxvnni"):
        kind = ir.VectorType(llvm.I32, 8)
        halves = []
        for first in (0, 8):
            parts = [
                builder.shuffle_vector(one, one, llvm.lanes(first, 8))
                for one in (total, builder.bitcast(codes, llvm.INTS), values)
            ]
            halves.append(llvm.call(builder, "llvm.x86.avx512.vpdpbusd.256", kind, parts))
        return builder.shuffle_vector(*halves, llvm.lanes(0, 16))
    eight = ir.Constant(llvm.WIDE_SHORTS, [8] * llvm.WIDE_SHORTS.count)
    codes, values = (builder.bitcast(one, llvm.WIDE_SHORTS) for one in (codes, values))
    lower = builder.and_(codes, ir.Constant(llvm.WIDE_SHORTS, [255] * llvm.WIDE_SHORTS.count))
    even = builder.ashr(builder.shl(values, eight), eight)
    total = paired(builder, total, lower, even)
    return paired(builder, total, builder.lshr(codes, eight), builder.ashr(values, eight))


def _codes(builder: ir.IRBuilder, kind: Kind, address: ir.Value) -> list[ir.Value]:
    """Load the codes of four inputs. returns: BYTE_LANES of the lower 16 outputs, and of the upper ones"""
    if kind.bits == 8:
        return [llvm.load(builder, address, BYTE_LANES, at) for at in (0, 64)]
    both = llvm.load(builder, address, BYTE_LANES)
    low = ir.Constant(BYTE_LANES, [15] * BYTE_LANES.count)
    # Shifts of bytes are shifts of 16 bits without what crosses.
    wide = builder.bitcast(both, llvm.WIDE_SHORTS)
    shifted = builder.lshr(wide, ir.Constant(llvm.WIDE_SHORTS, [4] * llvm.WIDE_SHORTS.count))
    codes = [builder.and_(one, low) for one in (both, builder.bitcast(shifted, BYTE_LANES))]
    return [_looked_up(builder, kind, one) for one in codes] if kind.values else codes


def _looked_up(builder: ir.IRBuilder, kind: Kind, codes: ir.Value) -> ir.Value:
    """Replace 4-bit codes by their values plus the kind's offset, BYTE_LANES without signs."""
    entries = [value + kind.offset for value in kind.values]
    if cpu_features.has_wide_vectors():
        table = ir.Constant(BYTE_LANES, entries * 4)
        return llvm.call(builder, "llvm.x86.avx512.pshuf.b.512", BYTE_LANES, (table, codes))
    half = ir.VectorType(llvm.I8, BYTE_LANES.count // 2)
    table = ir.Constant(half, entries * 2)
    parts = []
    for first in (0, half.count):
        part = builder.shuffle_vector(codes, codes, llvm.lanes(first, half.count))
        parts.append(simd.permuted(builder, table, part))
    return builder.shuffle_vector(*parts, llvm.lanes(0, BYTE_LANES.count))


def _floats(builder: ir.IRBuilder, address: ir.Value, half: int) -> ir.Value:
    """Load half of 32 float16 as float32."""
    stored = llvm.load(builder, address, llvm.SHORTS, 32 * half)
    return llvm.half_to_floats(builder, stored)


def _small(builder: ir.IRBuilder, address: ir.Value, half: int, *, signed: bool) -> ir.Value:
    """Load half of 32 bytes as float32."""
    stored = llvm.load(builder, address, ir.VectorType(llvm.I8, 16), 16 * half)
    return (builder.sitofp if signed else builder.uitofp)(stored, llvm.FLOATS)


@dataclass(frozen=True, slots=True)
class _Group:
    """Addresses of the data of 32 inputs.

    inputs, facts: of each row, as `quantize_inputs` writes them; the others: of 32 outputs, see `blocks.Part`
    """

    inputs: Sequence[ir.Value]
    facts: Sequence[ir.Value]
    codes: ir.Value
    units: ir.Value
    zeros: ir.Value
    steps: ir.Value


def _sums(builder: ir.IRBuilder, kind: Kind, at: _Group, part: int) -> list[list[ir.Value]]:
    """Compute the integer sums over inputs that share a step. returns: for each row, 16 int32 for each half of the outputs"""
    parts = INPUTS // kind.step
    found = []
    for facts in at.facts:
        start = ir.Constant(llvm.INTS, [0] * llvm.WIDTH)
        if kind.offset:
            total = llvm.load(builder, facts, llvm.I32, 8)
            if parts == 2:
                first = llvm.load(builder, facts, llvm.I32, 12)
                total = first if part == 0 else builder.sub(total, first)
            shift = ir.Constant(llvm.I32, kind.offset.bit_length() - 1)
            start = llvm.splat(builder, builder.shl(total, shift), llvm.INTS)
        found.append(llvm.variables(builder, 2, start))
    count, size = QUADS // parts, 4 * OUTPUTS * kind.bits // 8
    with cgutils.for_range(builder, ir.Constant(llvm.I64, count)) as loop:
        quad = builder.add(loop.index, ir.Constant(llvm.I64, part * count))
        place = llvm.offset(builder, at.codes, quad, size.bit_length() - 1)
        decoded = _codes(builder, kind, place)
        for sums, address in zip(found, at.inputs, strict=True):
            four = llvm.load(builder, llvm.offset(builder, address, quad, 2), llvm.I32)
            for total, half in zip(sums, decoded, strict=True):
                builder.store(_summed(builder, builder.load(total), half, four), total)
    return [[builder.load(total) for total in sums] for sums in found]


def _add_group(builder: ir.IRBuilder, kind: Kind, at: _Group, totals: Sequence[ir.Value]) -> None:
    """Add the products of one group of inputs to the totals: two halves of the outputs for each row."""
    units = [_floats(builder, at.units, half) for half in range(2)]
    halved = kind.step < INPUTS
    for part in range(INPUTS // kind.step):
        sums, scales = _sums(builder, kind, at, part), units
        if kind.steps:
            place = llvm.at(builder, at.steps, OUTPUTS * part)
            small = [_small(builder, place, half, signed=halved) for half in range(2)]
            scales = [builder.fmul(*both) for both in zip(units, small, strict=True)]
        for row, facts in enumerate(at.facts):
            one = llvm.load(builder, facts, ir.FloatType())
            if kind.values:
                one = builder.fmul(one, ir.Constant(ir.FloatType(), kind.value))
            step = llvm.splat(builder, one, llvm.FLOATS)
            for half, scale in enumerate(scales):
                found = builder.fmul(builder.sitofp(sums[row][half], llvm.FLOATS), step)
                _add(builder, totals[2 * row + half], found, scale)
    if not kind.zeros:
        return
    for half in range(2):
        zero = _floats(builder, at.zeros, half)
        if kind.steps:
            place = llvm.at(builder, at.steps, OUTPUTS)
            zero = builder.fmul(zero, _small(builder, place, half, signed=False))
        for row, facts in enumerate(at.facts):
            value = llvm.load(builder, facts, ir.FloatType(), 4)
            _add(builder, totals[2 * row + half], llvm.splat(builder, value, llvm.FLOATS), zero)


def _add(builder: ir.IRBuilder, total: ir.Value, one: ir.Value, other: ir.Value) -> None:
    builder.store(llvm.fma(builder, one, other, builder.load(total)), total)


def _block(builder: ir.IRBuilder, kind: Kind, rows: int, given: Sequence[ir.Value]) -> None:
    """Multiply some rows by one block of 32 outputs. given: the arguments of `multiply_block` from `x` on"""
    x, about, groups, block, codes, units, zeros, steps, into, stride, ahead = given

    def times(value: ir.Value, number: int) -> ir.Value:
        return builder.mul(value, ir.Constant(llvm.I64, number))

    size, span = QUADS * OUTPUTS * kind.bits // 2, (kind.span // INPUTS).bit_length() - 1
    before, unit_span = builder.mul(block, groups), ir.Constant(llvm.I64, span)
    codes, steps = (
        builder.add(begin, times(before, each)) for begin, each in ((codes, size), (steps, 64))
    )
    units_before = builder.lshr(before, unit_span)
    x_rows = [builder.add(x, times(groups, INPUTS * row)) for row in range(rows)]
    about_rows = [builder.add(about, times(groups, ABOUT * row)) for row in range(rows)]
    totals = llvm.variables(builder, 2 * rows, llvm.constant(0.0))
    nearness, ahead = (3, ahead) if rows <= FEW_ROWS else (2, times(ahead, 2))
    with cgutils.for_range(builder, groups) as loop:
        group, here = loop.index, builder.add(codes, times(loop.index, size))
        unit = builder.add(units_before, builder.lshr(group, unit_span))
        later = builder.add(here, ahead)
        for line in range(size // 64):
            llvm.prefetch(builder, llvm.at(builder, later, 64 * line), nearness)
        at = _Group(
            [llvm.offset(builder, one, group, 5) for one in x_rows],
            [llvm.offset(builder, one, group, 4) for one in about_rows],
            here,
            llvm.offset(builder, units, unit, 6),
            llvm.offset(builder, zeros, unit, 6),
            llvm.offset(builder, steps, group, 6),
        )
        _add_group(builder, kind, at, totals)
    for row in range(rows):
        line = builder.add(into, builder.mul(stride, ir.Constant(llvm.I64, 4 * row)))
        for half in range(2):
            found = builder.load(totals[2 * row + half])
            llvm.store(builder, found, llvm.at(builder, line, 64 * half))


@llvm.emits()
def multiply_block(
    builder, kind, rows, x, about, groups, block, codes, units, zeros, steps, into, stride, ahead
):
    """Multiply 1 to CALL_ROWS rows by 32 outputs of a matrix.

    kind: number of KINDS; x, about: of the first row; groups: of 32 inputs; block: number of the outputs' block
    codes, units, zeros, steps: as in `blocks.Part`; into: (rows, stride) float32; ahead: bytes to prefetch ahead
    """
    given = (x, about, groups, block, codes, units, zeros, steps, into, stride, ahead)
    done = builder.append_basic_block()
    for number in llvm.ways(builder, kind, range(len(KINDS))):
        for count in llvm.ways(builder, rows, range(1, CALL_ROWS + 1)):
            _block(builder, KINDS[number], count, given)
            builder.branch(done)
    builder.position_at_end(done)


@compiled
def product(x, about, rows, width, part, into, stride, first, end):
    """Multiply rows by blocks `first` to `end` of 32 outputs. x, about: from `quantize_inputs`; part: its record; into: (rows, stride) float32"""
    groups = width // INPUTS
    # Equal parts: a call for one or two rows decodes for longer than it multiplies.
    calls = (rows + CALL_ROWS - 1) // CALL_ROWS
    each = (rows + calls - 1) // calls
    for block in range(first, end):
        for row in range(0, rows, each):
            multiply_block(
                part.kind,
                min(each, rows - row),
                x + row * width,
                about + row * groups * ABOUT,
                groups,
                block,
                part.codes,
                part.units,
                part.zeros,
                part.steps,
                into + (row * stride + block * OUTPUTS) * 4,
                stride,
                0 if row else llvm.AHEAD,
            )
