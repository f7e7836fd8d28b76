"""Processor instructions that numba has no words for, as functions of addresses: matrix tiles (AMX), 4-bit decoding, bfloat16.

Each is an LLVM intrinsic of its own (numba.extending); they compile only where the processor has them, see `native.runs_here`.
An address is an integer, so that one compiled function serves tensors of any shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
BYTES = I8.as_pointer()
LANES = 16
FLOATS = ir.VectorType(ir.FloatType(), LANES)
INTS = ir.VectorType(I32, LANES)
SHORTS = ir.VectorType(I16, LANES)
WORDS = ir.VectorType(I16, 2 * LANES)
AHEAD = (
    4096  # bytes that weights are fetched ahead: the processor's own fetching stops at each page
)

address = types.intp


def _call(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), list(arguments))


def _pointer(builder: Any, place: Any, kind: Any) -> Any:
    return builder.inttoptr(place, kind.as_pointer())


def _load(builder: Any, place: Any, kind: Any) -> Any:
    return builder.load(_pointer(builder, place, kind), align=1)


def _store(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, _pointer(builder, place, value.type), align=1)


def _moved(builder: Any, place: Any, index: Any, shift: int) -> Any:
    """place + index * 2**shift"""
    return builder.add(place, builder.shl(index, ir.Constant(I64, shift)))


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(
        one, one, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count)
    )


def _fma(builder: Any, one: Any, other: Any, third: Any) -> Any:
    return _call(builder, "llvm.fma.v16f32", FLOATS, (one, other, third))


def _to_floats(builder: Any, shorts: Any) -> Any:
    """bfloat16 is the upper half of float32."""
    wide = builder.shl(builder.zext(shorts, INTS), ir.Constant(INTS, [16] * LANES))
    return builder.bitcast(wide, FLOATS)


def _to_bfloat16(builder: Any, floats: Any) -> Any:
    """Rounded to nearest, ties to even."""
    bits = builder.bitcast(floats, INTS)
    sixteen, one = (ir.Constant(INTS, [value] * LANES) for value in (16, 1))
    odd = builder.and_(builder.lshr(bits, sixteen), one)
    rounded = builder.add(builder.add(bits, ir.Constant(INTS, [0x7FFF] * LANES)), odd)
    return builder.trunc(builder.lshr(rounded, sixteen), SHORTS)


def _constant(value: float) -> Any:
    return ir.Constant(FLOATS, [value] * LANES)


def _choose(builder: Any, test: str, one: Any, other: Any, right: Any, wrong: Any) -> Any:
    return builder.select(builder.fcmp_ordered(test, one, other), right, wrong)


def _exponential(builder: Any, wanted: Any) -> Any:
    """e**x to about 1e-7 (Cephes' polynomial); 0 below -87."""
    low, high, magic = _constant(-87.0), _constant(88.0), _constant(12582912.0)
    x = _choose(builder, ">", wanted, low, wanted, low)
    x = _choose(builder, "<", x, high, x, high)
    shifted = _fma(builder, x, _constant(1.44269504), magic)  # rounds: the fraction falls off
    whole = builder.fsub(shifted, magic)
    x = _fma(builder, whole, _constant(-0.693359375), x)
    x = _fma(builder, whole, _constant(2.12194440e-4), x)
    found = _constant(1.9875691500e-4)
    for value in (
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    ):
        found = _fma(builder, found, x, _constant(value))
    found = _fma(builder, builder.fmul(found, x), x, builder.fadd(x, _constant(1.0)))
    power = builder.add(builder.fptosi(whole, INTS), ir.Constant(INTS, [127] * LANES))
    power = builder.bitcast(builder.shl(power, ir.Constant(INTS, [23] * LANES)), FLOATS)
    return _choose(builder, ">", wanted, low, builder.fmul(found, power), _constant(0.0))


def _tile(number: Any) -> Any:
    return ir.Constant(I8, number.literal_value)


@intrinsic
def configure_tiles(_context, settings):
    """Shape the eight tiles as 64 bytes at an address say."""

    def generate(context, builder, _signature, arguments):
        place = builder.inttoptr(arguments[0], BYTES)
        _call(builder, "llvm.x86.ldtilecfg", ir.VoidType(), (place,))
        return context.get_dummy_value()

    return types.void(address), generate


@intrinsic
def release_tiles(_context):
    """Leave the tiles to others."""

    def generate(context, builder, _signature, _arguments):
        _call(builder, "llvm.x86.tilerelease", ir.VoidType(), ())
        return context.get_dummy_value()

    return types.void(), generate


def _tile_mover(instruction: str) -> Any:
    """A function that moves a tile from or to rows `stride` bytes apart."""

    @intrinsic(prefer_literal=True)
    def move(_context, tile, place, stride):
        def generate(context, builder, signature, arguments):
            where = builder.inttoptr(arguments[1], BYTES)
            values = (_tile(signature.args[0]), where, arguments[2])
            _call(builder, instruction, ir.VoidType(), values)
            return context.get_dummy_value()

        return types.void(tile, address, address), generate

    return move


load_tile = _tile_mover("llvm.x86.tileloadd64")
store_tile = _tile_mover("llvm.x86.tilestored64")


@intrinsic(prefer_literal=True)
def clear_tile(_context, tile):
    """All zeros."""

    def generate(context, builder, signature, _arguments):
        _call(builder, "llvm.x86.tilezero", ir.VoidType(), (_tile(signature.args[0]),))
        return context.get_dummy_value()

    return types.void(tile), generate


@intrinsic(prefer_literal=True)
def multiply_tiles(_context, into, left, right):
    """into (M, 16) float32 += left (M, 32) bfloat16 times right, 16 rows of 16 pairs of bfloat16."""

    def generate(context, builder, signature, _arguments):
        tiles = [_tile(one) for one in signature.args]
        _call(builder, "llvm.x86.tdpbf16ps", ir.VoidType(), tiles)
        return context.get_dummy_value()

    return types.void(into, left, right), generate


@intrinsic
def decode(_context, codes, table, into, pairs):
    """4-bit codes of 32 outputs to bfloat16: `pairs` pairs of inputs, as tiles want them.

    codes: 32 bytes a pair, the lower halves for outputs 0 to 15, the upper ones for 16 to 31
    table: 32 bfloat16, the 16 values twice (the lookup reads five bits); into: first the lower outputs' tiles, then the upper ones'
    """

    def generate(context, builder, _signature, arguments):
        codes, table, into, pairs = arguments
        values = _load(builder, table, WORDS)
        upper = _moved(builder, into, pairs, 6)
        four = ir.Constant(WORDS, [4] * WORDS.count)
        hint = [ir.Constant(I32, value) for value in (0, 3, 1)]
        with cgutils.for_range(builder, pairs) as loop:
            place = _moved(builder, codes, loop.index, 5)
            later = builder.inttoptr(builder.add(place, ir.Constant(I64, AHEAD)), BYTES)
            _call(builder, "llvm.prefetch.p0", ir.VoidType(), (later, *hint))
            both = builder.zext(_load(builder, place, ir.VectorType(I8, 32)), WORDS)
            for part, out in ((both, into), (builder.lshr(both, four), upper)):
                found = _call(builder, "llvm.x86.avx512.permvar.hi.512", WORDS, (values, part))
                _store(builder, found, _moved(builder, out, loop.index, 6))
        return context.get_dummy_value()

    return types.void(address, address, address, address), generate


@intrinsic
def fetch(_context, place, lines):
    """Ask for `lines` lines of 64 bytes before they are needed."""

    def generate(context, builder, _signature, arguments):
        hint = [ir.Constant(I32, value) for value in (0, 2, 1)]
        with cgutils.for_range(builder, arguments[1]) as loop:
            where = builder.inttoptr(_moved(builder, arguments[0], loop.index, 6), BYTES)
            _call(builder, "llvm.prefetch.p0", ir.VoidType(), (where, *hint))
        return context.get_dummy_value()

    return types.void(address, address), generate


@intrinsic
def add_scaled(_context, total, part, scale):
    """16 float32: total += part * scale."""

    def generate(context, builder, _signature, arguments):
        total, part, scale = (_load(builder, place, FLOATS) for place in arguments)
        _store(builder, _fma(builder, part, scale, total), arguments[0])
        return context.get_dummy_value()

    return types.void(address, address, address), generate


@intrinsic
def add_shifted(_context, total, part, scale, zero, weight):
    """16 float32: total += part * scale + weight * zero, with one weight for all; scale and zero are bfloat16."""

    def generate(context, builder, _signature, arguments):
        total, part = (_load(builder, place, FLOATS) for place in arguments[:2])
        scale, zero = (
            _to_floats(builder, _load(builder, place, SHORTS)) for place in arguments[2:4]
        )
        total = _fma(builder, part, scale, total)
        total = _fma(builder, _splat(builder, arguments[4], FLOATS), zero, total)
        _store(builder, total, arguments[0])
        return context.get_dummy_value()

    return types.void(address, address, address, address, types.float32), generate


@intrinsic
def clear(_context, place, lines):
    """`lines` times 64 bytes of zeros."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[1]) as loop:
            where = _moved(builder, arguments[0], loop.index, 6)
            _store(builder, ir.Constant(FLOATS, [0.0] * LANES), where)
        return context.get_dummy_value()

    return types.void(address, address), generate


@intrinsic
def copy_lines(_context, source, into, lines):
    """`lines` times 64 bytes."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            line = _load(builder, _moved(builder, arguments[0], loop.index, 6), FLOATS)
            _store(builder, line, _moved(builder, arguments[1], loop.index, 6))
        return context.get_dummy_value()

    return types.void(address, address, address), generate


@intrinsic
def add_to(_context, total, part, lines):
    """total += part, `lines` times 16 float32."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            where, from_ = (_moved(builder, place, loop.index, 6) for place in arguments[:2])
            summed = builder.fadd(_load(builder, where, FLOATS), _load(builder, from_, FLOATS))
            _store(builder, summed, where)
        return context.get_dummy_value()

    return types.void(address, address, address), generate


@intrinsic
def round_to_bfloat16(_context, source, into, lines):
    """`lines` times 16 float32 to 16 bfloat16."""

    def generate(context, builder, _signature, arguments):
        with cgutils.for_range(builder, arguments[2]) as loop:
            floats = _load(builder, _moved(builder, arguments[0], loop.index, 6), FLOATS)
            _store(
                builder, _to_bfloat16(builder, floats), _moved(builder, arguments[1], loop.index, 5)
            )
        return context.get_dummy_value()

    return types.void(address, address, address), generate


@intrinsic
def soften(_context, scores, keys, scale):
    """Softmax of 16 queries side by side, but for dividing by the sums, which go behind the last key's row.

    scores: (keys + 1, 16) float32; summed in the order of the keys
    """

    def generate(context, builder, _signature, arguments):
        scores, keys, scale = arguments
        best, total = (cgutils.alloca_once(builder, FLOATS) for _ in range(2))
        builder.store(_load(builder, scores, FLOATS), best)
        builder.store(_constant(0.0), total)
        with cgutils.for_range(builder, keys) as loop:
            row, so_far = (
                _load(builder, _moved(builder, scores, loop.index, 6), FLOATS),
                builder.load(best),
            )
            builder.store(_choose(builder, ">", row, so_far, row, so_far), best)
        times = _splat(builder, scale, FLOATS)
        greatest = builder.load(best)
        with cgutils.for_range(builder, keys) as loop:
            place = _moved(builder, scores, loop.index, 6)
            above = builder.fsub(_load(builder, place, FLOATS), greatest)
            weight = _exponential(builder, builder.fmul(above, times))
            _store(builder, weight, place)
            builder.store(builder.fadd(builder.load(total), weight), total)
        _store(builder, builder.load(total), _moved(builder, scores, keys, 6))
        return context.get_dummy_value()

    return types.void(address, address, types.float32), generate


@intrinsic
def exponentials(_context, values, lines, scale):
    """e**((x - the greatest) * scale) of `lines` times 16 float32, in their place."""

    def generate(context, builder, _signature, arguments):
        values, lines, scale = arguments
        best = cgutils.alloca_once(builder, FLOATS)
        builder.store(_load(builder, values, FLOATS), best)
        with cgutils.for_range(builder, lines) as loop:
            row, so_far = (
                _load(builder, _moved(builder, values, loop.index, 6), FLOATS),
                builder.load(best),
            )
            builder.store(_choose(builder, ">", row, so_far, row, so_far), best)
        greatest = _call(
            builder, "llvm.vector.reduce.fmax.v16f32", ir.FloatType(), [builder.load(best)]
        )
        greatest, times = _splat(builder, greatest, FLOATS), _splat(builder, scale, FLOATS)
        with cgutils.for_range(builder, lines) as loop:
            place = _moved(builder, values, loop.index, 6)
            above = builder.fsub(_load(builder, place, FLOATS), greatest)
            _store(builder, _exponential(builder, builder.fmul(above, times)), place)
        return context.get_dummy_value()

    return types.void(address, address, types.float32), generate


@intrinsic
def added_up(_context, values, lines):
    """Sum of `lines` times 16 float32: of each lane in order, then of the lanes."""

    def generate(_context, builder, _signature, arguments):
        values, lines = arguments
        total = cgutils.alloca_once(builder, FLOATS)
        builder.store(_constant(0.0), total)
        with cgutils.for_range(builder, lines) as loop:
            row = _load(builder, _moved(builder, values, loop.index, 6), FLOATS)
            builder.store(builder.fadd(builder.load(total), row), total)
        found = ir.Constant(ir.FloatType(), 0.0)
        lanes = builder.load(total)
        for lane in range(LANES):
            found = builder.fadd(found, builder.extract_element(lanes, ir.Constant(I32, lane)))
        return found

    return types.float32(address, address), generate


@intrinsic
def gate(_context, gates, up, into, lines):
    """SwiGLU (Shazeer 2002.05202), silu(gate) * up: `lines` times 16 float32 each to bfloat16."""

    def generate(context, builder, _signature, arguments):
        gates, up, into, lines = arguments
        with cgutils.for_range(builder, lines) as loop:
            x = _load(builder, _moved(builder, gates, loop.index, 6), FLOATS)
            other = _load(builder, _moved(builder, up, loop.index, 6), FLOATS)
            below = _exponential(builder, builder.fsub(_constant(0.0), x))
            found = builder.fdiv(x, builder.fadd(below, _constant(1.0)))
            found = _to_bfloat16(builder, builder.fmul(found, other))
            _store(builder, found, _moved(builder, into, loop.index, 5))
        return context.get_dummy_value()

    return types.void(address, address, address, address), generate


@intrinsic
def weigh_values(_context, weights, keys, values, stride, into):
    """Sums of 64 columns of `keys` rows of values, for four queries, in the order of the keys.

    weights: 16 float32 a key, of which four are read; values: bfloat16, rows `stride` bytes apart
    into: four rows of 64 float32
    """
    queries, lines = 4, 4

    def generate(context, builder, _signature, arguments):
        weights, keys, values, stride, into = arguments
        sums = [cgutils.alloca_once(builder, FLOATS) for _ in range(queries * lines)]
        for one in sums:
            builder.store(ir.Constant(FLOATS, [0.0] * LANES), one)
        with cgutils.for_range(builder, keys) as loop:
            row = builder.add(values, builder.mul(loop.index, stride))
            parts = [
                _to_floats(
                    builder,
                    _load(builder, builder.add(row, ir.Constant(I64, 32 * line)), SHORTS),
                )
                for line in range(lines)
            ]
            place = _moved(builder, weights, loop.index, 6)
            for query in range(queries):
                at = builder.add(place, ir.Constant(I64, 4 * query))
                weight = _splat(builder, _load(builder, at, ir.FloatType()), FLOATS)
                for line, part in enumerate(parts):
                    one = sums[query * lines + line]
                    builder.store(_fma(builder, part, weight, builder.load(one)), one)
        for number, one in enumerate(sums):
            _store(builder, builder.load(one), builder.add(into, ir.Constant(I64, 64 * number)))
        return context.get_dummy_value()

    return types.void(address, address, address, address, address), generate


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
        return builder.bitcast(arguments[0], I32)

    return types.int32(types.float32), generate


def _pointers(element: Any, kind: Any) -> Any:
    """A function from an address to a pointer to elements of a kind."""

    @intrinsic
    def at(_context, place):
        def generate(_context, builder, _signature, arguments):
            return builder.inttoptr(arguments[0], kind.as_pointer())

        return types.CPointer(element)(address), generate

    return at


floats_at = _pointers(types.float32, ir.FloatType())
doubles_at = _pointers(types.float64, ir.DoubleType())
numbers_at = _pointers(types.int64, I64)
words_at = _pointers(types.int32, I32)
halves_at = _pointers(types.uint16, I16)
bytes_at = _pointers(types.uint8, I8)
