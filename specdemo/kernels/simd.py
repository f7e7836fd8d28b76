"""Vectors of 16 float32 as functions of addresses: 4-bit decoding, softmax, gates, bfloat16.

Each is an LLVM intrinsic of its own (`llvm.emits`) that uses the features in `cpu_features`.
An address is an integer, so that one compiled function serves tensors of any shape.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from specdemo.kernels import cpu_features, llvm

# Number of lines of 16 columns, whose sums fit into registers.
LINES = 4 if cpu_features.has_wide_vectors() else 1
ENTRIES = 16  # of a table of bytes


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
    """32 bytes of a table by codes of 4 bits. table: 16 bytes, twice

    Without AVX2 it is one extraction for each entry: LLVM joins sixteen of them into one instruction if the processor has
    it (NEON's `tbl`).
    """
    if cpu_features.has_vectors():
        return llvm.call(builder, "llvm.x86.avx2.pshuf.b", codes.type, (table, codes))
    kind = ir.VectorType(llvm.I8, ENTRIES)
    entries = builder.shuffle_vector(table, table, llvm.lanes(0, ENTRIES))
    parts = []
    for first in range(0, codes.type.count, ENTRIES):
        wanted = builder.shuffle_vector(codes, codes, llvm.lanes(first, ENTRIES))
        found = ir.Constant(kind, ir.Undefined)
        for lane in range(ENTRIES):
            number = ir.Constant(llvm.I32, lane)
            code = builder.zext(builder.extract_element(wanted, number), llvm.I32)
            entry = builder.extract_element(entries, code)
            found = builder.insert_element(found, entry, number)
        parts.append(found)
    return builder.shuffle_vector(*parts, llvm.lanes(0, codes.type.count))


@llvm.emits(prefetches=llvm.LITERAL)
def decode(builder, prefetches, codes, table, into, pairs):
    """4-bit codes of 32 outputs to numbers of 16 bits: `pairs` pairs of inputs.

    prefetches: whether to prefetch later codes
    codes: 32 bytes a pair, the lower halves for outputs 0 to 15, the upper ones for 16 to 31
    table: values of the 16 codes, twice; into: the pairs of the lower 16 outputs, 64 bytes each, then those of the upper ones
    """
    look_up, upper = _table(builder, table), llvm.offset(builder, into, pairs, 6)
    with cgutils.for_range(builder, pairs) as loop:
        address = llvm.offset(builder, codes, loop.index, 5)
        if prefetches:
            llvm.prefetch(builder, llvm.at(builder, address, llvm.AHEAD))
        found = look_up(llvm.load(builder, address, ir.VectorType(llvm.I8, 32)))
        for values, out in zip(found, (into, upper), strict=True):
            llvm.store(builder, values, llvm.offset(builder, out, loop.index, 6))


@llvm.emits()
def fetch(builder, address, lines):
    """Prefetch `lines` lines of 64 bytes."""
    with llvm.each_line(builder, lines, address) as (line,):
        llvm.prefetch(builder, line, nearness=2)


@llvm.emits()
def clear(builder, address, lines):
    """Set `lines` times 64 bytes to zero."""
    with llvm.each_line(builder, lines, address) as (line,):
        llvm.store(builder, llvm.constant(0.0), line)


@llvm.emits()
def copy_lines(builder, source, into, lines):
    """Copy `lines` times 64 bytes."""
    with llvm.each_line(builder, lines, source, into) as (line, copied):
        llvm.store(builder, llvm.load(builder, line, llvm.FLOATS), copied)


@llvm.emits(factor=types.float32)
def add_to(builder, total, part, factor, lines):
    """total += part * factor, `lines` times 16 float32."""
    factor = llvm.splat(builder, factor, llvm.FLOATS)
    with llvm.each_line(builder, lines, total, part) as addresses:
        sums, parts = (llvm.load(builder, one, llvm.FLOATS) for one in addresses)
        llvm.store(builder, llvm.fma(builder, parts, factor, sums), addresses[0])


def _conversion(
    convert: Callable[[ir.IRBuilder, ir.Value], ir.Value], kind: ir.Type, sizes: tuple[int, int]
) -> Callable[..., None]:
    """A function of source, into and lines that converts 16 numbers at a time. sizes: log2 of the bytes of 16 numbers, before and after"""

    @llvm.emits()
    def each(builder, source, into, lines):
        with cgutils.for_range(builder, lines) as loop:
            source, into = (
                llvm.offset(builder, address, loop.index, size)
                for address, size in zip((source, into), sizes, strict=True)
            )
            llvm.store(builder, convert(builder, llvm.load(builder, source, kind)), into)

    return each


# float32, in the order of lines
round_to_bfloat16 = _conversion(llvm.to_bfloat16, llvm.FLOATS, (6, 5))
widen = _conversion(llvm.to_floats, llvm.SHORTS, (5, 6))  # bfloat16 to float32


def _bytes_to_bfloat16(builder: ir.IRBuilder, values: ir.Value) -> ir.Value:
    """8 bits fit into a bfloat16, whose lower half as a float32 is empty then."""
    floats = builder.sitofp(values, llvm.FLOATS)
    bits = builder.lshr(
        builder.bitcast(floats, llvm.INTS), ir.Constant(llvm.INTS, [16] * llvm.WIDTH)
    )
    return builder.trunc(bits, llvm.SHORTS)


bytes_to_bfloat16 = _conversion(_bytes_to_bfloat16, ir.VectorType(llvm.I8, llvm.WIDTH), (4, 5))


def _greatest(builder: ir.IRBuilder, values: ir.Value, lines: ir.Value) -> ir.Value:
    """The largest value of each lane of `lines` times 16 float32."""
    (best,) = llvm.variables(builder, 1, llvm.load(builder, values, llvm.FLOATS))
    with llvm.each_line(builder, lines, values) as (line,):
        row, so_far = llvm.load(builder, line, llvm.FLOATS), builder.load(best)
        builder.store(llvm.choose(builder, ">", row, so_far, row, so_far), best)
    return builder.load(best)


def _raised(builder: ir.IRBuilder, line: ir.Value, greatest: ir.Value, times: ir.Value) -> ir.Value:
    """Compute e**((x - greatest) * times) of 16 float32, in place."""
    above = builder.fsub(llvm.load(builder, line, llvm.FLOATS), greatest)
    found = llvm.exponential(builder, builder.fmul(above, times))
    llvm.store(builder, found, line)
    return found


@llvm.emits(scale=types.float32)
def softmax(builder, scores, keys, scale):
    """Softmax of 16 queries side by side. It does not divide by the sums: they are written behind the last key's row.

    scores: (keys + 1, 16) float32; summed in the order of the keys
    """
    (total,) = llvm.variables(builder, 1, llvm.constant(0.0))
    greatest, times = _greatest(builder, scores, keys), llvm.splat(builder, scale, llvm.FLOATS)
    with llvm.each_line(builder, keys, scores) as (line,):
        weight = _raised(builder, line, greatest, times)
        builder.store(builder.fadd(builder.load(total), weight), total)
    llvm.store(builder, builder.load(total), llvm.offset(builder, scores, keys, 6))


@llvm.emits(scale=types.float32)
def exponentials(builder, values, lines, scale):
    """Compute e**((x - maximum) * scale) of `lines` times 16 float32, in place."""
    lanes = _greatest(builder, values, lines)
    one = llvm.call(builder, "llvm.vector.reduce.fmax.v16f32", ir.FloatType(), [lanes])
    greatest, times = (llvm.splat(builder, each, llvm.FLOATS) for each in (one, scale))
    with llvm.each_line(builder, lines, values) as (line,):
        _raised(builder, line, greatest, times)


@llvm.emits(result=types.float32)
def dot(builder, values, row, lines):
    """Return the dot product of 16 * lines float32 and as many bfloat16. Each lane is summed in order, then the lanes are summed."""
    (total,) = llvm.variables(builder, 1, llvm.constant(0.0))
    with cgutils.for_range(builder, lines) as loop:
        floats = llvm.load(builder, llvm.offset(builder, values, loop.index, 6), llvm.FLOATS)
        shorts = llvm.load(builder, llvm.offset(builder, row, loop.index, 5), llvm.SHORTS)
        so_far = builder.load(total)
        builder.store(llvm.fma(builder, floats, llvm.to_floats(builder, shorts), so_far), total)
    return llvm.sum_of_lanes(builder, builder.load(total))


@llvm.emits(least=types.float32, result=types.float32)
def sum_from(builder, values, lines, least):
    """Sum the numbers that are at least `least`, of `lines` lines of 16 float32: first each lane in order, then the lanes."""
    none, least = llvm.constant(0.0), llvm.splat(builder, least, llvm.FLOATS)
    (total,) = llvm.variables(builder, 1, none)
    with llvm.each_line(builder, lines, values) as (line,):
        row = llvm.load(builder, line, llvm.FLOATS)
        row = llvm.choose(builder, "<", row, least, none, row)
        builder.store(builder.fadd(builder.load(total), row), total)
    return llvm.sum_of_lanes(builder, builder.load(total))


def _gate(slope: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Callable[..., None]:
    """A function of gates, up, into and lines: x * sigmoid(slope(x)) * up, of `lines` times 16 float32 each; `into` may be one of them."""

    @llvm.emits()
    def gate(builder, gates, up, into, lines):
        with llvm.each_line(builder, lines, gates, up, into) as (*inputs, result):
            x, other = (llvm.load(builder, one, llvm.FLOATS) for one in inputs)
            negative = builder.fsub(llvm.constant(0.0), slope(builder, x))
            below = llvm.exponential(builder, negative)
            found = builder.fdiv(x, builder.fadd(below, llvm.constant(1.0)))
            llvm.store(builder, builder.fmul(found, other), result)

    return gate


def _gelu_slope(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """GELU's approximation by tanh (Hendrycks 1606.08415) is x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x ** 3))."""
    square = builder.fmul(x, x)
    factor = llvm.fma(builder, square, llvm.constant(0.0713548163), llvm.constant(1.5957691216))
    return builder.fmul(x, factor)


gate = _gate(lambda _builder, x: x)  # SwiGLU (Shazeer 2002.05202), silu(gate) * up
gelu_gate = _gate(_gelu_slope)  # GEGLU


@llvm.emits()
def add_values(builder, weights, keys, values, stride, into):
    """Add LINES times 16 columns of `keys` rows of values to the sums of four queries, in the order of the keys.

    weights: 16 float32 a key, of which four are read; values: bfloat16, rows `stride` bytes apart
    into: four rows of 64 float32
    """
    queries, lines = 4, LINES
    places = [
        llvm.at(builder, into, 256 * query + 64 * line)
        for query in range(queries)
        for line in range(lines)
    ]
    sums = [cgutils.alloca_once(builder, llvm.FLOATS) for _ in places]
    for one, place in zip(sums, places, strict=True):
        builder.store(llvm.load(builder, place, llvm.FLOATS), one)
    with cgutils.for_range(builder, keys) as loop:
        row = builder.add(values, builder.mul(loop.index, stride))
        for line in range(0, lines, 2):
            llvm.prefetch(builder, llvm.at(builder, row, 32 * line + llvm.AHEAD))
        shorts = [llvm.load(builder, row, llvm.SHORTS, 32 * line) for line in range(lines)]
        parts = [llvm.to_floats(builder, one) for one in shorts]
        address = llvm.offset(builder, weights, loop.index, 6)
        for query in range(queries):
            weight = llvm.load(builder, address, ir.FloatType(), 4 * query)
            weight = llvm.splat(builder, weight, llvm.FLOATS)
            for line, part in enumerate(parts):
                one = sums[query * lines + line]
                builder.store(llvm.fma(builder, part, weight, builder.load(one)), one)
    for one, place in zip(sums, places, strict=True):
        llvm.store(builder, builder.load(one), place)


@llvm.emits(bits=types.int32, result=types.float32)
def from_bits(builder, bits):
    """The float32 of 32 bits."""
    return builder.bitcast(bits, ir.FloatType())


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
