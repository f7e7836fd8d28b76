"""Vectors of 16 float32 as functions of addresses: 4-bit decoding, softmax, gates, bfloat16.

Each is an LLVM intrinsic of its own (numba.extending) of at most what `processor` has.
An address is an integer, so that one compiled function serves tensors of any shape.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from specdemo.kernels import cpu_features as processor
from specdemo.kernels import llvm as e


def _table(builder: Any, place: Any) -> Any:
    """A function from 32 bytes of two 4-bit codes each to the 16-bit numbers of the lower codes, and of the upper ones."""
    four = ir.Constant(e.WORDS, [4] * e.WORDS.count)
    if processor.has_wide_vectors():
        values = e.load(builder, place, e.WORDS)

        def look_up(codes: Any) -> list[Any]:
            lower = builder.zext(codes, e.WORDS)
            name = "llvm.x86.avx512.permvar.hi.512"  # reads five bits, hence the table twice
            both = (lower, builder.lshr(lower, four))
            return [e.call(builder, name, e.WORDS, (values, one)) for one in both]

        return look_up
    kind = ir.VectorType(e.I8, 32)
    values = e.load(builder, place, e.WORDS)
    eight = ir.Constant(e.WORDS, [8] * e.WORDS.count)
    tables = [builder.trunc(one, kind) for one in (values, builder.lshr(values, eight))]
    mixed = ir.Constant(ir.VectorType(e.I32, 64), [i // 2 + i % 2 * 32 for i in range(64)])

    def look_up_bytes(codes: Any) -> list[Any]:
        found = []
        lower = builder.and_(codes, ir.Constant(kind, [15] * 32))
        for part in (lower, builder.lshr(codes, ir.Constant(kind, [4] * 32))):
            halves = [e.call(builder, "llvm.x86.avx2.pshuf.b", kind, (t, part)) for t in tables]
            found.append(builder.bitcast(builder.shuffle_vector(*halves, mixed), e.WORDS))
        return found

    return look_up_bytes


@intrinsic(prefer_literal=True)
def decode(_context, asks, codes, table, into, pairs):
    """4-bit codes of 32 outputs to numbers of 16 bits: `pairs` pairs of inputs.

    asks: a literal, whether to ask for codes that are needed later
    codes: 32 bytes a pair, the lower halves for outputs 0 to 15, the upper ones for 16 to 31
    table: what the 16 codes mean, twice; into: first the pairs of the lower 16 outputs, 64 bytes each, then those of the upper
    """

    def generate(context, builder, _signature, arguments):
        codes, table, into, pairs = arguments[1:]
        look_up, upper = _table(builder, table), e.moved(builder, into, pairs, 6)
        with cgutils.for_range(builder, pairs) as loop:
            place = e.moved(builder, codes, loop.index, 5)
            if asks.literal_value:
                e.ahead(builder, place)
            found = look_up(e.load(builder, place, ir.VectorType(e.I8, 32)))
            for values, out in zip(found, (into, upper), strict=True):
                e.store(builder, values, e.moved(builder, out, loop.index, 6))
        return context.get_dummy_value()

    return types.void(asks, *[e.address] * 4), generate


@intrinsic
def fetch(_context, place, lines):
    """Ask for `lines` lines of 64 bytes before they are needed."""

    def generate(context, builder, _signature, arguments):
        hint = [ir.Constant(e.I32, value) for value in (0, 2, 1)]
        with cgutils.for_range(builder, arguments[1]) as loop:
            where = builder.inttoptr(e.moved(builder, arguments[0], loop.index, 6), e.BYTES)
            e.call(builder, "llvm.prefetch.p0", ir.VoidType(), (where, *hint))
        return context.get_dummy_value()

    return types.void(e.address, e.address), generate


@intrinsic
def clear(_context, place, lines):
    """`lines` times 64 bytes of zeros."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[1]) as loop:
            where = e.moved(builder, arguments[0], loop.index, 6)
            e.store(builder, ir.Constant(e.FLOATS, [0.0] * e.LANES), where)
        return context.get_dummy_value()

    return types.void(e.address, e.address), generate


@intrinsic
def copy_lines(_context, source, into, lines):
    """`lines` times 64 bytes."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            line = e.load(builder, e.moved(builder, arguments[0], loop.index, 6), e.FLOATS)
            e.store(builder, line, e.moved(builder, arguments[1], loop.index, 6))
        return context.get_dummy_value()

    return types.void(e.address, e.address, e.address), generate


@intrinsic
def add_to(_context, total, part, lines):
    """total += part, `lines` times 16 float32."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            where, from_ = (e.moved(builder, place, loop.index, 6) for place in arguments[:2])
            summed = builder.fadd(
                e.load(builder, where, e.FLOATS), e.load(builder, from_, e.FLOATS)
            )
            e.store(builder, summed, where)
        return context.get_dummy_value()

    return types.void(e.address, e.address, e.address), generate


def _conversion(convert: Any, kind: Any, sizes: tuple[int, int]) -> Any:
    """A function of source, into and lines, each `sizes` powers of two of bytes: 16 numbers of a kind converted at a time."""

    @intrinsic
    def each(_context, source, into, lines):
        def generate(context, builder, _signature, arguments):
            with cgutils.for_range(builder, arguments[2]) as loop:
                source, into = (
                    e.moved(builder, place, loop.index, size)
                    for place, size in zip(arguments[:2], sizes, strict=True)
                )
                e.store(builder, convert(builder, e.load(builder, source, kind)), into)
            return context.get_dummy_value()

        return types.void(e.address, e.address, e.address), generate

    return each


round_to_bfloat16 = _conversion(e.to_bfloat16, e.FLOATS, (6, 5))  # float32, in the order of lines
widen = _conversion(e.to_floats, e.SHORTS, (5, 6))  # bfloat16 to float32


@intrinsic
def soften(_context, scores, keys, scale):
    """Softmax of 16 queries side by side, but for dividing by the sums, which go behind the last key's row.

    scores: (keys + 1, 16) float32; summed in the order of the keys
    """

    def generate(context, builder, _signature, arguments):
        scores, keys, scale = arguments
        best, total = (cgutils.alloca_once(builder, e.FLOATS) for _ in range(2))
        builder.store(e.load(builder, scores, e.FLOATS), best)
        builder.store(e.constant(0.0), total)
        with cgutils.for_range(builder, keys) as loop:
            row, so_far = (
                e.load(builder, e.moved(builder, scores, loop.index, 6), e.FLOATS),
                builder.load(best),
            )
            builder.store(e.choose(builder, ">", row, so_far, row, so_far), best)
        times = e.splat(builder, scale, e.FLOATS)
        greatest = builder.load(best)
        with cgutils.for_range(builder, keys) as loop:
            place = e.moved(builder, scores, loop.index, 6)
            above = builder.fsub(e.load(builder, place, e.FLOATS), greatest)
            weight = e.exponential(builder, builder.fmul(above, times))
            e.store(builder, weight, place)
            builder.store(builder.fadd(builder.load(total), weight), total)
        e.store(builder, builder.load(total), e.moved(builder, scores, keys, 6))
        return context.get_dummy_value()

    return types.void(e.address, e.address, types.float32), generate


@intrinsic
def exponentials(_context, values, lines, scale):
    """e**((x - the greatest) * scale) of `lines` times 16 float32, in their place."""

    def generate(context, builder, _signature, arguments):
        values, lines, scale = arguments
        best = cgutils.alloca_once(builder, e.FLOATS)
        builder.store(e.load(builder, values, e.FLOATS), best)
        with cgutils.for_range(builder, lines) as loop:
            row, so_far = (
                e.load(builder, e.moved(builder, values, loop.index, 6), e.FLOATS),
                builder.load(best),
            )
            builder.store(e.choose(builder, ">", row, so_far, row, so_far), best)
        greatest = e.call(
            builder, "llvm.vector.reduce.fmax.v16f32", ir.FloatType(), [builder.load(best)]
        )
        greatest, times = e.splat(builder, greatest, e.FLOATS), e.splat(builder, scale, e.FLOATS)
        with cgutils.for_range(builder, lines) as loop:
            place = e.moved(builder, values, loop.index, 6)
            above = builder.fsub(e.load(builder, place, e.FLOATS), greatest)
            e.store(builder, e.exponential(builder, builder.fmul(above, times)), place)
        return context.get_dummy_value()

    return types.void(e.address, e.address, types.float32), generate


@intrinsic
def added_up(_context, values, lines):
    """Sum of `lines` times 16 float32: of each lane in order, then of the lanes."""

    def generate(_context, builder, _signature, arguments):
        values, lines = arguments
        total = cgutils.alloca_once(builder, e.FLOATS)
        builder.store(e.constant(0.0), total)
        with cgutils.for_range(builder, lines) as loop:
            row = e.load(builder, e.moved(builder, values, loop.index, 6), e.FLOATS)
            builder.store(builder.fadd(builder.load(total), row), total)
        found = ir.Constant(ir.FloatType(), 0.0)
        lanes = builder.load(total)
        for lane in range(e.LANES):
            found = builder.fadd(found, builder.extract_element(lanes, ir.Constant(e.I32, lane)))
        return found

    return types.float32(e.address, e.address), generate


@intrinsic
def gate(_context, gates, up, into, lines):
    """SwiGLU (Shazeer 2002.05202), silu(gate) * up, of `lines` times 16 float32 each; `into` may be one of them."""

    def generate(context, builder, _signature, arguments):
        gates, up, into, lines = arguments
        with cgutils.for_range(builder, lines) as loop:
            x = e.load(builder, e.moved(builder, gates, loop.index, 6), e.FLOATS)
            other = e.load(builder, e.moved(builder, up, loop.index, 6), e.FLOATS)
            below = e.exponential(builder, builder.fsub(e.constant(0.0), x))
            found = builder.fdiv(x, builder.fadd(below, e.constant(1.0)))
            found = builder.fmul(found, other)
            e.store(builder, found, e.moved(builder, into, loop.index, 6))
        return context.get_dummy_value()

    return types.void(e.address, e.address, e.address, e.address), generate


@intrinsic
def weigh_values(_context, weights, keys, values, stride, into):
    """Sums of 64 columns of `keys` rows of values, for four queries, in the order of the keys.

    weights: 16 float32 a key, of which four are read; values: bfloat16, rows `stride` bytes apart
    into: four rows of 64 float32
    """
    queries, lines = 4, 4

    def generate(context, builder, _signature, arguments):
        weights, keys, values, stride, into = arguments
        sums = [cgutils.alloca_once(builder, e.FLOATS) for _ in range(queries * lines)]
        for one in sums:
            builder.store(ir.Constant(e.FLOATS, [0.0] * e.LANES), one)
        with cgutils.for_range(builder, keys) as loop:
            row = builder.add(values, builder.mul(loop.index, stride))
            for line in range(lines // 2):
                e.ahead(builder, builder.add(row, ir.Constant(e.I64, 64 * line)))
            parts = [
                e.to_floats(
                    builder,
                    e.load(builder, builder.add(row, ir.Constant(e.I64, 32 * line)), e.SHORTS),
                )
                for line in range(lines)
            ]
            place = e.moved(builder, weights, loop.index, 6)
            for query in range(queries):
                at = builder.add(place, ir.Constant(e.I64, 4 * query))
                weight = e.splat(builder, e.load(builder, at, ir.FloatType()), e.FLOATS)
                for line, part in enumerate(parts):
                    one = sums[query * lines + line]
                    builder.store(e.fma(builder, part, weight, builder.load(one)), one)
        for number, one in enumerate(sums):
            e.store(builder, builder.load(one), builder.add(into, ir.Constant(e.I64, 64 * number)))
        return context.get_dummy_value()

    return types.void(e.address, e.address, e.address, e.address, e.address), generate


@intrinsic
def from_bits(_context, bits):
    """The float32 of 32 bits."""

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def to_bits(_context, value):
    """The 32 bits of a float32."""

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], e.I32)

    return types.int32(types.float32), generate


def _pointers(element: Any, kind: Any) -> Any:
    """A function from an e.address to a pointer to elements of a kind."""

    @intrinsic
    def at(_context, place):
        def generate(_context, builder, _signature, arguments):
            return builder.inttoptr(arguments[0], kind.as_pointer())

        return types.CPointer(element)(e.address), generate

    return at


floats_at = _pointers(types.float32, ir.FloatType())
doubles_at = _pointers(types.float64, ir.DoubleType())
numbers_at = _pointers(types.int64, e.I64)
words_at = _pointers(types.int32, e.I32)
halves_at = _pointers(types.uint16, e.I16)
bytes_at = _pointers(types.uint8, e.I8)
