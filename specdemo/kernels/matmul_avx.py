"""Products on vectors (AVX2 or AVX-512), for processors without matrix tiles. The same functions as in `amx`.

Inputs enter 4-bit products as whole numbers of 15 bits, with a step of their own for each group that shares a scale, and
codes as whole numbers of 12: two of them are multiplied and added at once (`vpmaddwd`), 64 of them fit 32 bits, and
whole numbers add up to the same in any order. A bfloat16 matrix becomes such numbers when it is loaded. What is rounded
away is less than inputs in bfloat16 would lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from specdemo.kernels import cpu_features as processor
from specdemo.kernels import llvm as e
from specdemo.kernels import simd as v
from specdemo.kernels.jit import compiled

COLUMNS = 32  # outputs decoded together
CODE_BUFFER = 4096
SMALLEST = 0x0DA24260  # bits of 1e-30, which a group of zeros is divided by
MOST_INPUT, MOST_CODE = 16383, 2047  # 64 products of both are less than 2**31
ROWS = 4 if processor.has_wide_vectors() else 2  # read together: their sums are kept in registers
WHOLE_GROUP = 64  # inputs that share a scale in matrices of 16-bit numbers
DENSITIES = (
    0,
    1,
    4,
)  # lines that two pairs of inputs take: none that follow, 4-bit codes, 16-bit numbers
CHAINS = 8 if processor.has_wide_vectors() else 2  # of sums of one row
KEYS = 4  # scored for few queries together; for many as many as sums in registers allow
MANY_KEYS = 4 if processor.has_wide_vectors() else 1
QUERY = 64 + 4 * KEYS  # bytes of a thread's buffer for queries, for each dimension of a head


def meanings(code: Tensor) -> tuple[Tensor, float]:
    """What `decode` turns codes into, and what that is to be multiplied by. code: (16,)"""
    if code.equal(code.round()):
        return code.short().repeat(2).contiguous(), 1.0
    unit = float(code.abs().max()) / MOST_CODE
    return (code.float() / unit).round().short().repeat(2).contiguous(), unit


def laid_out(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A bfloat16 matrix as codes that mean themselves, and their scales, both in the order of `packing.Packed`."""
    rows, columns = matrix.shape
    codes = torch.empty(
        rows // COLUMNS, columns // WHOLE_GROUP, 2, WHOLE_GROUP // 2, 16, 2, dtype=torch.int16
    )
    scales = torch.empty(rows // COLUMNS, columns // WHOLE_GROUP, COLUMNS)
    for n, block in enumerate(matrix.detach().float().split(COLUMNS)):
        groups = block.view(COLUMNS, -1, WHOLE_GROUP)
        scales[n] = (groups.abs().amax(-1).clamp(min=1e-30) / MOST_CODE).t()
        whole = (groups / scales[n].t()[..., None]).round().short()
        codes[n] = whole.view(2, 16, -1, WHOLE_GROUP // 2, 2).permute(2, 0, 3, 1, 4)
    return codes, scales


@compiled
def begin(settings):
    """Nothing to be set up."""


@compiled
def end():
    """Nothing to be left to others."""


def _at(builder: Any, place: Any, bytes_: int) -> Any:
    return builder.add(place, ir.Constant(e.I64, bytes_))


@intrinsic(prefer_literal=True)
def to_whole(_context, lines, source, into, step, total):
    """`lines` times 16 float32 to as many whole numbers of 16 bits, none beyond MOST_INPUT. lines: a literal

    step, total: places of float32: what one means, and what their sum means
    """
    places = [64 * line for line in range(lines.literal_value)]

    def generate(context, builder, _signature, arguments):
        source, into, step, total = arguments[1:]
        one = ir.FloatType()
        rows = [e.load(builder, _at(builder, source, place), e.FLOATS) for place in places]
        # Sizes of float32 are in the order of their bits.
        unsigned = ir.Constant(e.INTS, [0x7FFFFFFF] * e.LANES)
        sizes = [builder.and_(builder.bitcast(row, e.INTS), unsigned) for row in rows]
        most = reduce(lambda x, y: builder.select(builder.icmp_signed(">", x, y), x, y), sizes)
        greatest = e.call(builder, "llvm.vector.reduce.smax.v16i32", e.I32, (most,))
        least = ir.Constant(e.I32, SMALLEST)
        greatest = builder.select(builder.icmp_signed(">", greatest, least), greatest, least)
        greatest = builder.bitcast(greatest, one)
        limit = ir.Constant(one, float(MOST_INPUT))
        times = e.splat(builder, builder.fdiv(limit, greatest), e.FLOATS)
        whole = []
        for row, place in zip(rows, places, strict=True):
            near = (builder.fmul(row, times),)
            near = e.call(builder, "llvm.nearbyint.v16f32", e.FLOATS, near)
            whole.append(builder.fptosi(near, e.INTS))
            shorts = builder.trunc(whole[-1], e.SHORTS)
            e.store(builder, shorts, _at(builder, into, place // 2))
        meant = builder.fmul(greatest, ir.Constant(one, 1 / MOST_INPUT))
        e.store(builder, meant, step)
        added = (reduce(builder.add, whole),)
        summed = e.call(builder, "llvm.vector.reduce.add.v16i32", e.I32, added)
        e.store(builder, builder.fmul(builder.sitofp(summed, one), meant), total)
        return context.get_dummy_value()

    return types.void(lines, *[e.address] * 4), generate


@compiled
def lay_in(x, stride, into, about, rows, width, group, sums):
    """Inputs as `product` takes them.

    x: float32 rows `stride` bytes apart; into: (rows, width) int16
    about: (2, rows, width // group) float32, what one means in each group, and what their sums mean
    """
    groups = width // group
    for row in range(rows):
        for g in range(groups):
            source, place = x + row * stride + g * group * 4, into + (row * width + g * group) * 2
            step = about + (row * groups + g) * 4
            if group == 64:
                to_whole(4, source, place, step, step + rows * groups * 4)
            else:
                to_whole(2, source, place, step, step + rows * groups * 4)


def _zeros(builder: Any, number: int, zero: Any) -> list[Any]:
    """Places of sums that begin as zero."""
    found = [cgutils.alloca_once(builder, zero.type) for _ in range(number)]
    for one in found:
        builder.store(zero, one)
    return found


def _paired(builder: Any, total: Any, codes: Any, inputs: Any) -> Any:
    """16 int32: total += sums of neighbouring products."""
    if processor.has_wide_vectors():
        found = e.call(builder, "llvm.x86.avx512.pmaddw.d.512", e.INTS, (codes, inputs))
        return builder.add(total, found)
    half, kind = e.LANES // 2, ir.VectorType(e.I32, e.LANES)
    parts = []
    for first in (0, e.LANES):
        picked = ir.Constant(kind, list(range(first, first + e.LANES)))
        both = [builder.shuffle_vector(one, one, picked) for one in (codes, inputs)]
        parts.append(e.call(builder, "llvm.x86.avx2.pmadd.wd", ir.VectorType(e.I32, half), both))
    return builder.add(
        total, builder.shuffle_vector(*parts, ir.Constant(kind, list(range(e.LANES))))
    )


@intrinsic
def add_products(
    _context, rows, x, x_step, codes, pairs, lines, then, steps, groups, sums, scales, zeros, total
):
    """Add the products of one group of inputs of 1 to ROWS rows to their totals.

    x, codes: 16-bit numbers, rows of x `x_step` bytes apart, `pairs` pairs of inputs
    lines, then: how many lines of 64 bytes to ask for with each two pairs, one of DENSITIES, and from where on
    steps, sums: of the first row's group, those of other rows `groups` further; scales, zeros: as in `packing.Packed`
    total: (rows, 32) float32
    """

    def generate(context, builder, _signature, arguments):
        rows, x, x_step, codes, pairs, lines, then, *about = arguments
        done = builder.append_basic_block()
        for density in _ways(builder, lines, DENSITIES):
            for count in _ways(builder, rows, range(1, ROWS + 1)):
                found = _summed(builder, count, x, x_step, codes, pairs, density, then)
                _add_scaled(builder, found, *about)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[e.address] * 13), generate


def _ways(builder: Any, value: Any, cases: Sequence[int]) -> Iterator[int]:
    """Each of the numbers that a value may be, with the builder where it is that number. Each way is to end by itself."""
    last = builder.append_basic_block()
    switch = builder.switch(value, last)
    for case in cases:
        way = last if case == cases[-1] else builder.append_basic_block()
        if way is not last:
            switch.add_case(ir.Constant(e.I64, case), way)
        builder.position_at_end(way)
        yield case


def _add_scaled(
    builder: Any,
    found: list[Any],
    steps: Any,
    groups: Any,
    sums: Any,
    scales: Any,
    zeros: Any,
    total: Any,
) -> None:
    """Whole sums of rows, two halves each, times what they mean, to their totals."""
    beside = [builder.mul(groups, ir.Constant(e.I64, 4 * row)) for row in range(len(found) // 2)]
    one = ir.FloatType()
    parts = []  # of rows, and of both halves of the outputs
    for number, sums_ in enumerate(found):
        step = e.load(builder, builder.add(steps, beside[number // 2]), one)
        whole = builder.sitofp(sums_, e.FLOATS)
        parts.append(builder.fmul(whole, e.splat(builder, step, e.FLOATS)))
    places = [_at(builder, total, 64 * number) for number in range(len(found))]
    with builder.if_else(cgutils.is_not_null(builder, zeros)) as (shifted, scaled):
        with shifted:
            lines = [
                e.to_floats(builder, e.load(builder, _at(builder, place, at), e.SHORTS))
                for place in (scales, zeros)
                for at in (0, 32)
            ]
            for number, (place, part) in enumerate(zip(places, parts, strict=True)):
                sum_ = e.load(builder, builder.add(sums, beside[number // 2]), one)
                so_far = e.load(builder, place, e.FLOATS)
                so_far = e.fma(builder, part, lines[number % 2], so_far)
                shift = e.splat(builder, sum_, e.FLOATS)
                e.store(builder, e.fma(builder, shift, lines[2 + number % 2], so_far), place)
        with scaled:
            lines = [e.load(builder, _at(builder, scales, at), e.FLOATS) for at in (0, 64)]
            for number, (place, part) in enumerate(zip(places, parts, strict=True)):
                so_far = e.load(builder, place, e.FLOATS)
                e.store(builder, e.fma(builder, part, lines[number % 2], so_far), place)


def _summed(
    builder: Any, rows: int, x: Any, x_step: Any, codes: Any, pairs: Any, lines: int, then: Any
) -> list[Any]:
    """Sums of products, 16 int32 each: lower and upper outputs of each row."""
    upper = e.moved(builder, codes, pairs, 6)
    first = [builder.add(x, builder.mul(x_step, ir.Constant(e.I64, row))) for row in range(rows)]
    # As many sums as wait for themselves, each added to once a turn: what LLVM makes of more than once is slower.
    chains = 1 << (CHAINS // rows).bit_length() - 1
    sums = _zeros(builder, 2 * rows * chains, ir.Constant(e.INTS, [0] * e.LANES))
    shift = chains.bit_length() - 1
    with cgutils.for_range(builder, builder.lshr(pairs, ir.Constant(e.I64, shift))) as loop:
        places = [e.moved(builder, place, loop.index, 6 + shift) for place in (codes, upper)]
        inputs = [e.moved(builder, place, loop.index, 2 + shift) for place in first]
        beside = builder.mul(loop.index, ir.Constant(e.I64, 32 * lines * chains))
        for line in range(-(-lines * chains // 2)):
            e.ahead(builder, _at(builder, builder.add(then, beside), 64 * line))
        for pair in range(chains):
            halves = [e.load(builder, _at(builder, one, 64 * pair), e.WORDS) for one in places]
            for row, place in enumerate(inputs):
                both = e.load(builder, _at(builder, place, 4 * pair), e.I32)
                both = builder.bitcast(e.splat(builder, both, e.INTS), e.WORDS)
                for half, values in enumerate(halves):
                    one = sums[2 * rows * pair + 2 * row + half]
                    builder.store(_paired(builder, builder.load(one), values, both), one)
    values = [builder.load(one) for one in sums]
    return [reduce(builder.add, values[i :: 2 * rows]) for i in range(2 * rows)]


@compiled
def product(x, about, rows, width, matrix, table, group, into, stride, first, end, own):
    """Blocks `first` to `end` of 32 outputs of a 4-bit matrix, or of one of 16-bit numbers when there is no table.

    x, about: from `lay_in`; matrix: address of its three addresses; into: (rows, stride) float32; own: the thread's buffers
    """
    parts = carray(v.numbers_at(matrix), 3)
    codes, scales, zeros = parts[0], parts[1], parts[2]
    groups, pairs = width // group, group // 2
    line, total, step = COLUMNS * (2 if zeros else 4), own + CODE_BUFFER, width * 2
    density = 1 if table else 4
    for block in range(first, end):
        v.clear(total, rows * 2)
        for g in range(groups):
            number = block * groups + g
            then = numbers = codes + number * group * 16 * density
            if table:
                v.decode(0, then, table, own, pairs)
                numbers = own
            scale, zero = scales + number * line, (zeros + number * line if zeros else 0)
            for row in range(0, rows, ROWS):
                place, at = x + row * step + g * group * 2, total + row * 128
                steps, here = about + (row * groups + g) * 4, min(ROWS, rows - row)
                sums = steps + rows * groups * 4
                add_products(
                    here,
                    place,
                    step,
                    numbers,
                    pairs,
                    0 if row else density,
                    then,
                    steps,
                    groups,
                    sums,
                    scale,
                    zero,
                    at,
                )
        for row in range(rows):
            v.copy_lines(total + row * 128, into + (row * stride + block * COLUMNS) * 4, 2)


@compiled
def put_query(x, queries, q, width, count):
    """Query `q` of `count`, at most 16, as `scores` takes them. x: float32"""
    lanes = 4 if count <= 4 else 16
    row, table = carray(v.floats_at(x), width), carray(v.floats_at(queries), (width, lanes))
    for i in range(width):
        table[i, q] = row[i]


def _key_rows(builder: Any, keys: Any, width: Any, count: int) -> list[Any]:
    """Where as many rows of float32 begin."""
    numbers = [ir.Constant(e.I64, key) for key in range(count)]
    return [e.moved(builder, keys, builder.mul(width, number), 2) for number in numbers]


@intrinsic
def _score_many(_context, queries, keys, width, into):
    """(MANY_KEYS, 16) float32: what as many rows of float32 have to do with 16 queries, (width, 16).

    Of each four neighbouring products the first are added up, the second and so on: `_score_few` does the same.
    """

    def generate(context, builder, _signature, arguments):
        queries, keys, width, into = arguments
        rows = _key_rows(builder, keys, width, MANY_KEYS)
        found = _zeros(builder, 4 * MANY_KEYS, e.constant(0.0))
        with cgutils.for_range(builder, builder.lshr(width, ir.Constant(e.I64, 2))) as loop:
            place = e.moved(builder, queries, loop.index, 8)
            columns = [e.load(builder, _at(builder, place, 64 * i), e.FLOATS) for i in range(4)]
            for number, one in enumerate(found):
                row = e.moved(builder, rows[number // 4], loop.index, 4)
                value = e.load(builder, _at(builder, row, number % 4 * 4), ir.FloatType())
                value = e.splat(builder, value, e.FLOATS)
                summed = e.fma(builder, value, columns[number % 4], builder.load(one))
                builder.store(summed, one)
        for key in range(MANY_KEYS):
            sums = [builder.load(one) for one in found[4 * key : 4 * key + 4]]
            score = builder.fadd(builder.fadd(sums[0], sums[2]), builder.fadd(sums[1], sums[3]))
            e.store(builder, score, _at(builder, into, 64 * key))
        return context.get_dummy_value()

    return types.void(*[e.address] * 4), generate


@intrinsic
def _score_few(_context, queries, keys, width, into):
    """The same for KEYS rows and four queries, (width, 4): four neighbouring products side by side.

    into: rows of 16, of which four count
    """
    spread = ir.Constant(e.INTS, [lane // 4 for lane in range(e.LANES)])
    turns = [ir.Constant(e.INTS, [(lane + by) % 16 for lane in range(16)]) for by in (8, 4)]

    def generate(context, builder, _signature, arguments):
        queries, keys, width, into = arguments
        rows = _key_rows(builder, keys, width, KEYS)
        found = _zeros(builder, KEYS, e.constant(0.0))
        with cgutils.for_range(builder, builder.lshr(width, ir.Constant(e.I64, 2))) as loop:
            column = e.load(builder, e.moved(builder, queries, loop.index, 6), e.FLOATS)
            for row, one in zip(rows, found, strict=True):
                four = ir.VectorType(ir.FloatType(), 4)
                value = e.load(builder, e.moved(builder, row, loop.index, 4), four)
                value = builder.shuffle_vector(value, value, spread)
                builder.store(e.fma(builder, value, column, builder.load(one)), one)
        for key, one in enumerate(found):
            score = builder.load(one)
            for by in turns:
                score = builder.fadd(score, builder.shuffle_vector(score, score, by))
            e.store(builder, score, _at(builder, into, 64 * key))
        return context.get_dummy_value()

    return types.void(*[e.address] * 4), generate


@compiled
def scores(queries, count, keys, width, length, into):
    """(length, 16) float32: what `count` queries have to do with each key. keys: (length, width) bfloat16

    Reads and writes up to 15 rows further.
    """
    room = queries + width * 64
    for key in range(0, length, KEYS):
        v.fetch(keys + key * width * 2 + e.AHEAD, KEYS * width // 32)
        v.widen(keys + key * width * 2, room, KEYS * width // 16)
        if count <= 4:
            _score_few(queries, room, width, into + key * 64)
        else:
            for i in range(0, KEYS, MANY_KEYS):
                _score_many(queries, room + i * width * 4, width, into + (key + i) * 64)


@compiled
def words(x, count, width, matrix, into, stride, first, end, buffers):
    """Blocks `first` to `end` of 32 outputs of a matrix `laid_out`.

    x: (count, width) float32; matrix: as for `product`; into: (count, stride) float32
    """
    y, about, own = buffers
    lay_in(x, width * 4, y, about, count, width, WHOLE_GROUP, False)
    product(y, about, count, width, matrix, 0, WHOLE_GROUP, into, stride, first, end, own)
