"""Vectors of 16 float32 as functions of addresses: 4-bit decoding, softmax, gates, bfloat16.

Each is an LLVM intrinsic of its own (numba.extending) that uses the features in `cpu_features`.
An address is an integer, so that one compiled function serves tensors of any shape.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from specdemo.kernels import cpu_features, llvm

LINES = (
    4 if cpu_features.has_wide_vectors() else 1
)  # number of lines of 16 columns, whose sums fit into registers


def _table(builder: ir.IRBuilder, address: ir.Value) -> Callable[[ir.Value], list[ir.Value]]:
    """Return a function that decodes 32 bytes of two 4-bit codes each. It returns 16-bit numbers: of the lower codes, of the upper codes."""
    four = ir.Constant(llvm.WIDE_SHORTS, [4] * llvm.WIDE_SHORTS.count)
    if cpu_features.has_wide_vectors():
        values = llvm.load(builder, address, llvm.WIDE_SHORTS)

        def look_up(codes: ir.Value) -> list[ir.Value]:
            lower = builder.zext(codes, llvm.WIDE_SHORTS)
            name = "llvm.x86.avx512.permvar.hi.512"  # reads five bits, so the table is there twice
            both = (lower, builder.lshr(lower, four))
            return [llvm.call(builder, name, llvm.WIDE_SHORTS, (values, one)) for one in both]

        return look_up
    kind = ir.VectorType(llvm.I8, 32)
    values = llvm.load(builder, address, llvm.WIDE_SHORTS)
    eight = ir.Constant(llvm.WIDE_SHORTS, [8] * llvm.WIDE_SHORTS.count)
    tables = [builder.trunc(one, kind) for one in (values, builder.lshr(values, eight))]
    mixed = ir.Constant(ir.VectorType(llvm.I32, 64), [i // 2 + i % 2 * 32 for i in range(64)])

    def look_up_bytes(codes: ir.Value) -> list[ir.Value]:
        found = []
        lower = builder.and_(codes, ir.Constant(kind, [15] * 32))
        for part in (lower, builder.lshr(codes, ir.Constant(kind, [4] * 32))):
            halves = [permuted(builder, table, part) for table in tables]
            found.append(builder.bitcast(builder.shuffle_vector(*halves, mixed), llvm.WIDE_SHORTS))
        return found

    return look_up_bytes


def permuted(builder: ir.IRBuilder, table: ir.Value, codes: ir.Value) -> ir.Value:
    """32 bytes of a table by codes of 4 bits. table: 16 bytes, twice"""
    if cpu_features.has_vectors():
        return llvm.call(builder, "llvm.x86.avx2.pshuf.b", codes.type, (table, codes))
    return llvm.permuted(builder, table, codes)


@intrinsic(prefer_literal=True)
def decode(_context, prefetches, codes, table, into, pairs):
    """4-bit codes of 32 outputs to numbers of 16 bits: `pairs` pairs of inputs.

    prefetches: a literal, whether to prefetch later codes
    codes: 32 bytes a pair, the lower halves for outputs 0 to 15, the upper ones for 16 to 31
    table: values of the 16 codes, twice; into: the pairs of the lower 16 outputs, 64 bytes each, then those of the upper ones
    """

    def generate(context, builder, _signature, arguments):
        codes, table, into, pairs = arguments[1:]
        look_up, upper = _table(builder, table), llvm.offset(builder, into, pairs, 6)
        with cgutils.for_range(builder, pairs) as loop:
            address = llvm.offset(builder, codes, loop.index, 5)
            if prefetches.literal_value:
                llvm.prefetch_ahead(builder, address)
            found = look_up(llvm.load(builder, address, ir.VectorType(llvm.I8, 32)))
            for values, out in zip(found, (into, upper), strict=True):
                llvm.store(builder, values, llvm.offset(builder, out, loop.index, 6))
        return context.get_dummy_value()

    return types.void(prefetches, *[llvm.POINTER] * 4), generate


@intrinsic
def fetch(_context, address, lines):
    """Prefetch `lines` lines of 64 bytes."""

    def generate(context, builder, _signature, arguments):
        hint = [ir.Constant(llvm.I32, value) for value in (0, 2, 1)]
        with cgutils.for_range(builder, arguments[1]) as loop:
            where = builder.inttoptr(llvm.offset(builder, arguments[0], loop.index, 6), llvm.BYTES)
            llvm.call(builder, "llvm.prefetch.p0", ir.VoidType(), (where, *hint))
        return context.get_dummy_value()

    return types.void(llvm.POINTER, llvm.POINTER), generate


@intrinsic
def clear(_context, address, lines):
    """Set `lines` times 64 bytes to zero."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[1]) as loop:
            where = llvm.offset(builder, arguments[0], loop.index, 6)
            llvm.store(builder, ir.Constant(llvm.FLOATS, [0.0] * llvm.WIDTH), where)
        return context.get_dummy_value()

    return types.void(llvm.POINTER, llvm.POINTER), generate


@intrinsic
def copy_lines(_context, source, into, lines):
    """Copy `lines` times 64 bytes."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            line = llvm.load(
                builder, llvm.offset(builder, arguments[0], loop.index, 6), llvm.FLOATS
            )
            llvm.store(builder, line, llvm.offset(builder, arguments[1], loop.index, 6))
        return context.get_dummy_value()

    return types.void(llvm.POINTER, llvm.POINTER, llvm.POINTER), generate


@intrinsic
def add_to(_context, total, part, lines):
    """total += part, `lines` times 16 float32."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            where, from_ = (
                llvm.offset(builder, address, loop.index, 6) for address in arguments[:2]
            )
            summed = builder.fadd(
                llvm.load(builder, where, llvm.FLOATS), llvm.load(builder, from_, llvm.FLOATS)
            )
            llvm.store(builder, summed, where)
        return context.get_dummy_value()

    return types.void(llvm.POINTER, llvm.POINTER, llvm.POINTER), generate


def _conversion(
    convert: Callable[[ir.IRBuilder, ir.Value], ir.Value], kind: ir.Type, sizes: tuple[int, int]
) -> Callable[..., None]:
    """A function of source, into and lines that converts 16 numbers at a time. sizes: log2 of the bytes of 16 numbers, before and after"""

    @intrinsic
    def each(_context, source, into, lines):
        def generate(context, builder, _signature, arguments):
            with cgutils.for_range(builder, arguments[2]) as loop:
                source, into = (
                    llvm.offset(builder, address, loop.index, size)
                    for address, size in zip(arguments[:2], sizes, strict=True)
                )
                llvm.store(builder, convert(builder, llvm.load(builder, source, kind)), into)
            return context.get_dummy_value()

        return types.void(llvm.POINTER, llvm.POINTER, llvm.POINTER), generate

    return each


round_to_bfloat16 = _conversion(
    llvm.to_bfloat16, llvm.FLOATS, (6, 5)
)  # float32, in the order of lines
widen = _conversion(llvm.to_floats, llvm.SHORTS, (5, 6))  # bfloat16 to float32


def _bytes_to_bfloat16(builder: ir.IRBuilder, values: ir.Value) -> ir.Value:
    """8 bits fit into a bfloat16, whose lower half as a float32 is empty then."""
    floats = builder.sitofp(values, llvm.FLOATS)
    bits = builder.lshr(
        builder.bitcast(floats, llvm.INTS), ir.Constant(llvm.INTS, [16] * llvm.WIDTH)
    )
    return builder.trunc(bits, llvm.SHORTS)


bytes_to_bfloat16 = _conversion(_bytes_to_bfloat16, ir.VectorType(llvm.I8, llvm.WIDTH), (4, 5))


@intrinsic
def softmax(_context, scores, keys, scale):
    """Softmax of 16 queries side by side. It does not divide by the sums: they are written behind the last key's row.

    scores: (keys + 1, 16) float32; summed in the order of the keys
    """

    def generate(context, builder, _signature, arguments):
        scores, keys, scale = arguments
        best, total = (cgutils.alloca_once(builder, llvm.FLOATS) for _ in range(2))
        builder.store(llvm.load(builder, scores, llvm.FLOATS), best)
        builder.store(llvm.constant(0.0), total)
        with cgutils.for_range(builder, keys) as loop:
            row, so_far = (
                llvm.load(builder, llvm.offset(builder, scores, loop.index, 6), llvm.FLOATS),
                builder.load(best),
            )
            builder.store(llvm.choose(builder, ">", row, so_far, row, so_far), best)
        times = llvm.splat(builder, scale, llvm.FLOATS)
        greatest = builder.load(best)
        with cgutils.for_range(builder, keys) as loop:
            address = llvm.offset(builder, scores, loop.index, 6)
            above = builder.fsub(llvm.load(builder, address, llvm.FLOATS), greatest)
            weight = llvm.exponential(builder, builder.fmul(above, times))
            llvm.store(builder, weight, address)
            builder.store(builder.fadd(builder.load(total), weight), total)
        llvm.store(builder, builder.load(total), llvm.offset(builder, scores, keys, 6))
        return context.get_dummy_value()

    return types.void(llvm.POINTER, llvm.POINTER, types.float32), generate


@intrinsic
def exponentials(_context, values, lines, scale):
    """Compute e**((x - maximum) * scale) of `lines` times 16 float32, in place."""

    def generate(context, builder, _signature, arguments):
        values, lines, scale = arguments
        best = cgutils.alloca_once(builder, llvm.FLOATS)
        builder.store(llvm.load(builder, values, llvm.FLOATS), best)
        with cgutils.for_range(builder, lines) as loop:
            row, so_far = (
                llvm.load(builder, llvm.offset(builder, values, loop.index, 6), llvm.FLOATS),
                builder.load(best),
            )
            builder.store(llvm.choose(builder, ">", row, so_far, row, so_far), best)
        greatest = llvm.call(
            builder, "llvm.vector.reduce.fmax.v16f32", ir.FloatType(), [builder.load(best)]
        )
        greatest, times = (
            llvm.splat(builder, greatest, llvm.FLOATS),
            llvm.splat(builder, scale, llvm.FLOATS),
        )
        with cgutils.for_range(builder, lines) as loop:
            address = llvm.offset(builder, values, loop.index, 6)
            above = builder.fsub(llvm.load(builder, address, llvm.FLOATS), greatest)
            llvm.store(builder, llvm.exponential(builder, builder.fmul(above, times)), address)
        return context.get_dummy_value()

    return types.void(llvm.POINTER, llvm.POINTER, types.float32), generate


@intrinsic
def sum_of(_context, values, lines):
    """Sum of `lines` times 16 float32: of each lane in order, then of the lanes."""

    def generate(_context, builder, _signature, arguments):
        values, lines = arguments
        total = cgutils.alloca_once(builder, llvm.FLOATS)
        builder.store(llvm.constant(0.0), total)
        with cgutils.for_range(builder, lines) as loop:
            row = llvm.load(builder, llvm.offset(builder, values, loop.index, 6), llvm.FLOATS)
            builder.store(builder.fadd(builder.load(total), row), total)
        return llvm.sum_of_lanes(builder, builder.load(total))

    return types.float32(llvm.POINTER, llvm.POINTER), generate


@intrinsic
def sum_from(_context, values, lines, least):
    """Sum of those of `lines` times 16 float32 that are not below `least`: of each lane in order, then of the lanes."""

    def generate(_context, builder, _signature, arguments):
        values, lines, least = arguments
        total = cgutils.alloca_once(builder, llvm.FLOATS)
        none = llvm.constant(0.0)
        builder.store(none, total)
        least = llvm.splat(builder, least, llvm.FLOATS)
        with cgutils.for_range(builder, lines) as loop:
            row = llvm.load(builder, llvm.offset(builder, values, loop.index, 6), llvm.FLOATS)
            row = llvm.choose(builder, "<", row, least, none, row)
            builder.store(builder.fadd(builder.load(total), row), total)
        return llvm.sum_of_lanes(builder, builder.load(total))

    return types.float32(llvm.POINTER, llvm.POINTER, types.float32), generate


def _gate(slope: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Callable[..., None]:
    """A function of gates, up, into and lines: x * sigmoid(slope(x)) * up, of `lines` times 16 float32 each; `into` may be one of them."""

    @intrinsic
    def gate(_context, gates, up, into, lines):
        def generate(context, builder, _signature, arguments):
            gates, up, into, lines = arguments
            with cgutils.for_range(builder, lines) as loop:
                x = llvm.load(builder, llvm.offset(builder, gates, loop.index, 6), llvm.FLOATS)
                other = llvm.load(builder, llvm.offset(builder, up, loop.index, 6), llvm.FLOATS)
                negative = builder.fsub(llvm.constant(0.0), slope(builder, x))
                below = llvm.exponential(builder, negative)
                found = builder.fdiv(x, builder.fadd(below, llvm.constant(1.0)))
                found = builder.fmul(found, other)
                llvm.store(builder, found, llvm.offset(builder, into, loop.index, 6))
            return context.get_dummy_value()

        return types.void(llvm.POINTER, llvm.POINTER, llvm.POINTER, llvm.POINTER), generate

    return gate


def _gelu_slope(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """GELU's approximation by tanh (Hendrycks 1606.08415) is x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x ** 3))."""
    square = builder.fmul(x, x)
    factor = llvm.fma(builder, square, llvm.constant(0.0713548163), llvm.constant(1.5957691216))
    return builder.fmul(x, factor)


gate = _gate(lambda _builder, x: x)  # SwiGLU (Shazeer 2002.05202), silu(gate) * up
gelu_gate = _gate(_gelu_slope)  # GEGLU


@intrinsic
def add_values(_context, weights, keys, values, stride, into):
    """Add LINES times 16 columns of `keys` rows of values to the sums of four queries, in the order of the keys.

    weights: 16 float32 a key, of which four are read; values: bfloat16, rows `stride` bytes apart
    into: four rows of 64 float32
    """
    queries, lines = 4, LINES

    def generate(context, builder, _signature, arguments):
        weights, keys, values, stride, into = arguments
        places = [
            builder.add(into, ir.Constant(llvm.I64, 256 * query + 64 * line))
            for query in range(queries)
            for line in range(lines)
        ]
        sums = [cgutils.alloca_once(builder, llvm.FLOATS) for _ in places]
        for one, place in zip(sums, places, strict=True):
            builder.store(llvm.load(builder, place, llvm.FLOATS), one)
        with cgutils.for_range(builder, keys) as loop:
            row = builder.add(values, builder.mul(loop.index, stride))
            for line in range(0, lines, 2):
                llvm.prefetch_ahead(builder, builder.add(row, ir.Constant(llvm.I64, 32 * line)))
            parts = [
                llvm.to_floats(
                    builder,
                    llvm.load(
                        builder, builder.add(row, ir.Constant(llvm.I64, 32 * line)), llvm.SHORTS
                    ),
                )
                for line in range(lines)
            ]
            address = llvm.offset(builder, weights, loop.index, 6)
            for query in range(queries):
                at = builder.add(address, ir.Constant(llvm.I64, 4 * query))
                weight = llvm.splat(builder, llvm.load(builder, at, ir.FloatType()), llvm.FLOATS)
                for line, part in enumerate(parts):
                    one = sums[query * lines + line]
                    builder.store(llvm.fma(builder, part, weight, builder.load(one)), one)
        for one, place in zip(sums, places, strict=True):
            llvm.store(builder, builder.load(one), place)
        return context.get_dummy_value()

    return types.void(
        llvm.POINTER, llvm.POINTER, llvm.POINTER, llvm.POINTER, llvm.POINTER
    ), generate


@intrinsic
def from_bits(_context, bits):
    """The float32 of 32 bits."""

    def generate(_context, builder, _signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


def pointers_to(element: types.Type) -> Callable[..., object]:
    """A function from an address to a pointer to elements of a numba type."""
    kind = types.CPointer(element)

    @intrinsic
    def at(_context, address):
        def generate(context, builder, _signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(kind))

        return kind(llvm.POINTER), generate

    return at


float32s_at = pointers_to(types.float32)
float64s_at = pointers_to(types.float64)
int64s_at = pointers_to(types.int64)
int32s_at = pointers_to(types.int32)
uint16s_at = pointers_to(types.uint16)
uint8s_at = pointers_to(types.uint8)
