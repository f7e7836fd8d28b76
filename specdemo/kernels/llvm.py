"""Short names for the LLVM code that `simd` and `matmul_*` generate: loads, sums and exponentials of 16 float32.

Vectors of 16 float32 or 32 numbers of 16 bits are one register with AVX-512, two with AVX2 and four with NEON: LLVM splits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce, wraps
from inspect import signature

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from specdemo.kernels import cpu_features

# Decorators of functions that are compiled when they are first called.
compiled = partial(njit, nogil=True, error_model="numpy")
# Sums of these may be computed in another order than written, always the same one.
loose = partial(compiled, fastmath={"contract", "reassoc", "arcp", "nsz"})

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
BYTES = I8.as_pointer()
WIDTH = 16
FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
INTS = ir.VectorType(I32, WIDTH)
SHORTS = ir.VectorType(I16, WIDTH)
WIDE_SHORTS = ir.VectorType(I16, 2 * WIDTH)
AHEAD = 4096  # bytes that are prefetched ahead: the processor's own prefetching stops at each page

POINTER = types.intp
LITERAL = None  # kind of an argument that is a number in the source


def emits(result: types.Type = types.void, **kinds: types.Type | None) -> Callable[..., object]:
    """Make a function that emits code an intrinsic of numba, which compiled code calls with all arguments but the first.

    The function gets the builder, and the value of each argument; the number itself of a LITERAL one.
    result: type of the returned value; kinds: type of each argument that is no address and no count
    """

    def decorate(emit: Callable[..., ir.Value | None]) -> object:
        expected = [kinds.get(name, POINTER) for name in list(signature(emit).parameters)[1:]]

        def generate(context, builder, given, values):
            numbers = [
                one.literal_value if kind is LITERAL else value
                for kind, one, value in zip(expected, given.args, values, strict=True)
            ]
            found = emit(builder, *numbers)
            return context.get_dummy_value() if result is types.void else found

        @wraps(emit)
        def typed(_context, *given):
            kinds = zip(expected, given, strict=True)
            return result(*(one if kind is LITERAL else kind for kind, one in kinds)), generate

        return intrinsic(prefer_literal=True)(typed)

    return decorate


def call(
    builder: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[ir.Value]
) -> ir.Value:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), list(arguments))


def pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())


def load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type, beyond: int = 0) -> ir.Value:
    """The value that begins `beyond` bytes after an address."""
    return builder.load(pointer(builder, at(builder, address, beyond), kind), align=1)


def store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value) -> None:
    builder.store(value, pointer(builder, address, value.type), align=1)


def offset(builder: ir.IRBuilder, address: ir.Value, index: ir.Value, shift: int) -> ir.Value:
    """address + index * 2**shift"""
    return builder.add(address, builder.shl(index, ir.Constant(I64, shift)))


def splat(builder: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> ir.Value:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(
        one, one, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count)
    )


def fma(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, third: ir.Value) -> ir.Value:
    """one * other + third: fused, or on a processor without AVX2 as it multiplies and adds fastest."""
    name = "llvm.fma.v16f32" if cpu_features.has_vectors() else "llvm.fmuladd.v16f32"
    return call(builder, name, FLOATS, (one, other, third))


def to_floats(builder: ir.IRBuilder, shorts: ir.Value) -> ir.Value:
    """bfloat16 is the upper half of float32."""
    wide = builder.shl(builder.zext(shorts, INTS), ir.Constant(INTS, [16] * WIDTH))
    return builder.bitcast(wide, FLOATS)


def to_bfloat16(builder: ir.IRBuilder, floats: ir.Value) -> ir.Value:
    """Rounded to nearest, ties to even."""
    bits = builder.bitcast(floats, INTS)
    sixteen, one = (ir.Constant(INTS, [value] * WIDTH) for value in (16, 1))
    odd = builder.and_(builder.lshr(bits, sixteen), one)
    rounded = builder.add(builder.add(bits, ir.Constant(INTS, [0x7FFF] * WIDTH)), odd)
    return builder.trunc(builder.lshr(rounded, sixteen), SHORTS)


def constant(value: float) -> ir.Value:
    return ir.Constant(FLOATS, [value] * WIDTH)


def choose(
    builder: ir.IRBuilder,
    test: str,
    one: ir.Value,
    other: ir.Value,
    right: ir.Value,
    wrong: ir.Value,
) -> ir.Value:
    return builder.select(builder.fcmp_ordered(test, one, other), right, wrong)


def sum_of_lanes(builder: ir.IRBuilder, values: ir.Value) -> ir.Value:
    """Sum the elements of a vector of FLOATS, one after the other."""
    total = ir.Constant(ir.FloatType(), 0.0)
    for lane in range(WIDTH):
        total = builder.fadd(total, builder.extract_element(values, ir.Constant(I32, lane)))
    return total


def exponential(builder: ir.IRBuilder, wanted: ir.Value) -> ir.Value:
    """e**x to about 1e-7 (Cephes' polynomial); 0 below -87."""
    low, high, magic = constant(-87.0), constant(88.0), constant(12582912.0)
    x = choose(builder, ">", wanted, low, wanted, low)
    x = choose(builder, "<", x, high, x, high)
    shifted = fma(builder, x, constant(1.44269504), magic)  # rounds to a whole number
    whole = builder.fsub(shifted, magic)
    x = fma(builder, whole, constant(-0.693359375), x)
    x = fma(builder, whole, constant(2.12194440e-4), x)
    found = constant(1.9875691500e-4)
    for value in (
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    ):
        found = fma(builder, found, x, constant(value))
    found = fma(builder, builder.fmul(found, x), x, builder.fadd(x, constant(1.0)))
    power = builder.add(builder.fptosi(whole, INTS), ir.Constant(INTS, [127] * WIDTH))
    power = builder.bitcast(builder.shl(power, ir.Constant(INTS, [23] * WIDTH)), FLOATS)
    return choose(builder, ">", wanted, low, builder.fmul(found, power), constant(0.0))


def half_to_floats(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    """16 float16, as 16-bit numbers, to float32: exact."""
    if cpu_features.has("f16c"):
        kind = ir.VectorType(ir.HalfType(), WIDTH)
        return builder.fpext(builder.bitcast(halves, kind), FLOATS)
    bits = builder.zext(halves, INTS)
    size, sign, up = (ir.Constant(INTS, [value] * WIDTH) for value in (0x7FFF, 0x8000, 13))
    value = builder.shl(builder.and_(bits, size), up)
    # Exponents of float16 begin 112 later.
    scaled = builder.fmul(builder.bitcast(value, FLOATS), constant(2.0**112))
    signs = builder.shl(builder.and_(bits, sign), ir.Constant(INTS, [16] * WIDTH))
    return builder.bitcast(builder.or_(builder.bitcast(scaled, INTS), signs), FLOATS)


def rounded(
    builder: ir.IRBuilder, source: ir.Value, lines: int, most: int
) -> tuple[list[ir.Value], ir.Value]:
    """Round `lines` times 16 float32 to whole numbers from -most to most. returns: INTS of each line, and float32 of the step"""
    rows = [load(builder, source, FLOATS, 64 * line) for line in range(lines)]
    # Without their signs, float32 are in the order of their bits.
    unsigned = ir.Constant(INTS, [0x7FFFFFFF] * WIDTH)
    sizes = [builder.and_(builder.bitcast(row, INTS), unsigned) for row in rows]
    largest = reduce(lambda x, y: builder.select(builder.icmp_signed(">", x, y), x, y), sizes)
    greatest = call(builder, "llvm.vector.reduce.smax.v16i32", I32, (largest,))
    bound = ir.Constant(I32, 0x0DA24260)  # bits of 1e-30, so that a group of zeros can be divided
    greatest = builder.select(builder.icmp_signed(">", greatest, bound), greatest, bound)
    one = ir.FloatType()
    greatest = builder.bitcast(greatest, one)
    times = splat(builder, builder.fdiv(ir.Constant(one, float(most)), greatest), FLOATS)
    scaled = [builder.fmul(row, times) for row in rows]
    near = [call(builder, "llvm.nearbyint.v16f32", FLOATS, (row,)) for row in scaled]
    return [builder.fptosi(row, INTS) for row in near], builder.fmul(
        greatest, ir.Constant(one, 1 / most)
    )


def ways(builder: ir.IRBuilder, value: ir.Value, cases: Sequence[int]) -> Iterator[int]:
    """A switch: gives each case with the builder placed in its block. The caller ends each block."""
    last = builder.append_basic_block()
    switch = builder.switch(value, last)
    for case in cases:
        way = last if case == cases[-1] else builder.append_basic_block()
        if way is not last:
            switch.add_case(ir.Constant(I64, case), way)
        builder.position_at_end(way)
        yield case


@contextmanager
def each_line(
    builder: ir.IRBuilder, lines: ir.Value, *addresses: ir.Value
) -> Iterator[list[ir.Value]]:
    """A loop over `lines` lines of 64 bytes: gives the addresses of a turn, one for each of the first line."""
    with cgutils.for_range(builder, lines) as loop:
        yield [offset(builder, address, loop.index, 6) for address in addresses]


def prefetch(builder: ir.IRBuilder, address: ir.Value, nearness: int = 3) -> None:
    """Prefetch the line of an address. nearness: of the cache, 3 for the nearest one"""
    hint = [ir.Constant(I32, value) for value in (0, nearness, 1)]
    where = builder.inttoptr(address, BYTES)
    call(builder, "llvm.prefetch.p0", ir.VoidType(), (where, *hint))


def at(builder: ir.IRBuilder, address: ir.Value, bytes_: int) -> ir.Value:
    """An address so many bytes further."""
    return builder.add(address, ir.Constant(I64, bytes_))


def variables(builder: ir.IRBuilder, number: int, zero: ir.Value) -> list[ir.Value]:
    """Variables for sums, set to zero."""
    found = [cgutils.alloca_once(builder, zero.type) for _ in range(number)]
    for one in found:
        builder.store(zero, one)
    return found


def lanes(first: int, count: int) -> ir.Value:
    """`count` lanes from `first` on, for `shuffle_vector`."""
    return ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
