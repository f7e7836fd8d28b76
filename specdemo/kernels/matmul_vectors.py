"""Products on vectors (AVX-512, AVX2, or any), for processors without matrix tiles.

Inputs enter 4-bit products as whole numbers of 15 bits, with a step of their own for each group that shares a scale, and
codes as whole numbers of 12: two of them are multiplied and added by one instruction (`vpmaddwd`, see `paired`), 64 of them fit
32 bits, and whole numbers add up to the same in any order. A bfloat16 matrix becomes such numbers when it is loaded. The rounding
error is less than with inputs in bfloat16. Codes of 8 bits are widened as they are read.
"""

from __future__ import annotations

from functools import reduce

import torch
from llvmlite import ir
from numba import carray
from numba.core import cgutils
from torch import Tensor

from specdemo.kernels import cpu_features, llvm, simd
from specdemo.kernels.llvm import compiled
from specdemo.kernels.packing import GROUP_INPUTS, Packed, whole_numbers

COLUMNS = 32  # outputs decoded per call
CODE_BUFFER = 4096
MOST_INPUT, MOST_CODE = 16383, 2047  # 64 products of both are less than 2**31
# rows per call: their sums stay in registers
CALL_ROWS = 4 if cpu_features.has_wide_vectors() else 2
# Layouts of numbers, with the lines to prefetch: 8 * bytes of a number + lines of 64 bytes for two pairs of inputs.
# Decoded 4-bit codes, 8-bit and 16-bit numbers for the first rows; the same without prefetching for further ones.
OF_CODES, OF_BYTES, OF_SHORTS, MORE_BYTES, MORE_SHORTS = FORMS = (17, 10, 20, 8, 16)
CHAINS = 8 if cpu_features.has_wide_vectors() else 2  # independent sums of one row


def meanings(code: Tensor) -> tuple[Tensor, float]:
    """The numbers that `decode` turns codes into, and the factor from them to the code's values. code: (16,)"""
    if code.equal(code.round()):
        return code.short().repeat(2).contiguous(), 1.0
    unit = float(code.abs().max()) / MOST_CODE
    return (code.float() / unit).round().short().repeat(2).contiguous(), unit


def laid_out(matrix: Tensor) -> Packed:
    """A bfloat16 matrix as 16-bit numbers."""
    return whole_numbers(matrix, MOST_CODE, torch.int16)


@compiled
def begin(settings):
    """Vectors need no setting up."""


@compiled
def end():
    """Vectors need no release."""


@llvm.emits(lines=llvm.LITERAL)
def round_to_int16(builder, lines, source, into, step, total):
    """`lines` times 16 float32 to as many whole numbers of 16 bits, none beyond MOST_INPUT.

    step, total: addresses of float32: the value of one, and the value of their sum
    """
    whole, meant = llvm.rounded(builder, source, lines, MOST_INPUT)
    for line, numbers in enumerate(whole):
        shorts = builder.trunc(numbers, llvm.SHORTS)
        llvm.store(builder, shorts, llvm.at(builder, into, 32 * line))
    llvm.store(builder, meant, step)
    added = (reduce(builder.add, whole),)
    summed = llvm.call(builder, "llvm.vector.reduce.add.v16i32", llvm.I32, added)
    total_value = builder.fmul(builder.sitofp(summed, ir.FloatType()), meant)
    llvm.store(builder, total_value, total)


@compiled
def quantize_inputs(x, stride, into, about, rows, width, group, sums):
    """Inputs as `product` reads them.

    x: float32 rows `stride` bytes apart; into: (rows, width) int16
    about: (2, rows, width // group) float32: the value of one in each group, and the value of the group's sum
    """
    groups = width // group
    for row in range(rows):
        for g in range(groups):
            source, address = x + row * stride + g * group * 4, into + (row * width + g * group) * 2
            step = about + (row * groups + g) * 4
            if group == 64:
                round_to_int16(4, source, address, step, step + rows * groups * 4)
            else:
                round_to_int16(2, source, address, step, step + rows * groups * 4)


def paired(builder: ir.IRBuilder, total: ir.Value, codes: ir.Value, inputs: ir.Value) -> ir.Value:
    """16 int32: total += sums of neighbouring products. codes, inputs: 32 int16

    Without AVX2, LLVM finds the instructions (NEON's `mla`).
    """
    if cpu_features.has_wide_vectors():
        found = llvm.call(builder, "llvm.x86.avx512.pmaddw.d.512", llvm.INTS, (codes, inputs))
        return builder.add(total, found)
    if not cpu_features.has_vectors():
        # Both of a pair lie in 32 bits: the first is below the second.
        sixteen = ir.Constant(llvm.INTS, [16] * llvm.WIDTH)
        pairs = [builder.bitcast(one, llvm.INTS) for one in (codes, inputs)]
        lower = [builder.ashr(builder.shl(one, sixteen), sixteen) for one in pairs]
        upper = [builder.ashr(one, sixteen) for one in pairs]
        return builder.add(builder.add(total, builder.mul(*lower)), builder.mul(*upper))
    half = ir.VectorType(llvm.I32, llvm.WIDTH // 2)
    parts = []
    for first in (0, llvm.WIDTH):
        picked = llvm.lanes(first, llvm.WIDTH)
        both = [builder.shuffle_vector(one, one, picked) for one in (codes, inputs)]
        parts.append(llvm.call(builder, "llvm.x86.avx2.pmadd.wd", half, both))
    return builder.add(total, builder.shuffle_vector(*parts, llvm.lanes(0, llvm.WIDTH)))


@llvm.emits()
def add_products(
    builder, rows, x, x_step, codes, pairs, form, then, steps, groups, sums, scales, zeros, total
):
    """Add the products of one group of inputs of 1 to CALL_ROWS rows to their totals.

    x, codes: numbers, rows of x `x_step` bytes apart, `pairs` pairs of inputs
    form, then: one of FORMS, layout of the codes and the lines to prefetch; and from which address
    steps, sums: of the first row's group, those of other rows `groups` further; scales, zeros: as in `packing.Packed`
    total: (rows, 32) float32
    """
    done = builder.append_basic_block()
    for one in llvm.ways(builder, form, FORMS):
        for count in llvm.ways(builder, rows, range(1, CALL_ROWS + 1)):
            found = _summed(builder, count, x, x_step, codes, pairs, one, then)
            _add_scaled(builder, found, steps, groups, sums, scales, zeros, total)
            builder.branch(done)
    builder.position_at_end(done)


def _add_scaled(
    builder: ir.IRBuilder,
    found: list[ir.Value],
    steps: ir.Value,
    groups: ir.Value,
    sums: ir.Value,
    scales: ir.Value,
    zeros: ir.Value,
    total: ir.Value,
) -> None:
    """Add the integer sums of rows, two halves each, times their steps and scales, to the totals."""
    beside = [builder.mul(groups, ir.Constant(llvm.I64, 4 * row)) for row in range(len(found) // 2)]
    one = ir.FloatType()
    parts = []  # one per row and half of the outputs
    for number, sums_ in enumerate(found):
        step = llvm.load(builder, builder.add(steps, beside[number // 2]), one)
        whole = builder.sitofp(sums_, llvm.FLOATS)
        parts.append(builder.fmul(whole, llvm.splat(builder, step, llvm.FLOATS)))
    addresses = [llvm.at(builder, total, 64 * number) for number in range(len(found))]
    with builder.if_else(cgutils.is_not_null(builder, zeros)) as (shifted, scaled):
        with shifted:
            lines = [
                llvm.to_floats(builder, llvm.load(builder, address, llvm.SHORTS, at))
                for address in (scales, zeros)
                for at in (0, 32)
            ]
            for number, (address, part) in enumerate(zip(addresses, parts, strict=True)):
                sum_ = llvm.load(builder, builder.add(sums, beside[number // 2]), one)
                so_far = llvm.load(builder, address, llvm.FLOATS)
                so_far = llvm.fma(builder, part, lines[number % 2], so_far)
                shift = llvm.splat(builder, sum_, llvm.FLOATS)
                llvm.store(
                    builder, llvm.fma(builder, shift, lines[2 + number % 2], so_far), address
                )
        with scaled:
            lines = [llvm.load(builder, scales, llvm.FLOATS, at) for at in (0, 64)]
            for number, (address, part) in enumerate(zip(addresses, parts, strict=True)):
                so_far = llvm.load(builder, address, llvm.FLOATS)
                llvm.store(builder, llvm.fma(builder, part, lines[number % 2], so_far), address)


def _summed(
    builder: ir.IRBuilder,
    rows: int,
    x: ir.Value,
    x_step: ir.Value,
    codes: ir.Value,
    pairs: ir.Value,
    form: int,
    then: ir.Value,
) -> list[ir.Value]:
    """Sums of products, 16 int32 each: lower and upper outputs of each row. form: one of FORMS"""
    size, lines = divmod(form, 8)
    kind = ir.VectorType(ir.IntType(8 * size), 2 * llvm.WIDTH)
    step = 4 + size  # log2 of the bytes of 16 outputs' pair
    upper = llvm.offset(builder, codes, pairs, step)
    first = [builder.add(x, builder.mul(x_step, ir.Constant(llvm.I64, row))) for row in range(rows)]
    # As many sums as hide the latency of an addition, each added to once a turn: more than once is slower.
    chains = 1 << (CHAINS // rows).bit_length() - 1
    sums = llvm.variables(builder, 2 * rows * chains, ir.Constant(llvm.INTS, [0] * llvm.WIDTH))
    shift = chains.bit_length() - 1
    with cgutils.for_range(builder, builder.lshr(pairs, ir.Constant(llvm.I64, shift))) as loop:
        addresses = [
            llvm.offset(builder, address, loop.index, step + shift) for address in (codes, upper)
        ]
        inputs = [llvm.offset(builder, address, loop.index, 2 + shift) for address in first]
        beside = builder.mul(loop.index, ir.Constant(llvm.I64, 32 * lines * chains))
        for line in range(-(-lines * chains // 2)):
            ahead = llvm.at(builder, builder.add(then, beside), 64 * line + llvm.AHEAD)
            llvm.prefetch(builder, ahead)
        for pair in range(chains):
            halves = [llvm.load(builder, one, kind, pair << step) for one in addresses]
            if size == 1:
                halves = [builder.sext(one, llvm.WIDE_SHORTS) for one in halves]
            for row, address in enumerate(inputs):
                both = llvm.load(builder, address, llvm.I32, 4 * pair)
                both = builder.bitcast(llvm.splat(builder, both, llvm.INTS), llvm.WIDE_SHORTS)
                for half, values in enumerate(halves):
                    one = sums[2 * rows * pair + 2 * row + half]
                    builder.store(paired(builder, builder.load(one), values, both), one)
    values = [builder.load(one) for one in sums]
    return [reduce(builder.add, values[i :: 2 * rows]) for i in range(2 * rows)]


@compiled
def product(x, about, rows, width, matrix, table, group, into, stride, first, end, own):
    """Multiply rows by blocks `first` to `end` of 32 outputs of a matrix.

    x, about: from `quantize_inputs`; matrix: its record; table: values of 4-bit codes
    into: (rows, stride) float32; own: the thread's buffers
    """
    codes, scales, zeros, bits = matrix.codes, matrix.scales, matrix.zeros, matrix.bits
    groups, pairs = width // group, group // 2
    line, total, step = COLUMNS * (2 if zeros else 4), own + CODE_BUFFER, width * 2
    form = OF_CODES if bits == 4 else (OF_BYTES if bits == 8 else OF_SHORTS)
    more = MORE_BYTES if bits == 8 else MORE_SHORTS
    for block in range(first, end):
        simd.clear(total, rows * 2)
        for g in range(groups):
            number = block * groups + g
            then = numbers = codes + number * group * 4 * bits
            if bits == 4:
                simd.decode(0, then, table, own, pairs)
                numbers = own
            scale, zero = scales + number * line, (zeros + number * line if zeros else 0)
            for row in range(0, rows, CALL_ROWS):
                address, at = x + row * step + g * group * 2, total + row * 128
                steps, here = about + (row * groups + g) * 4, min(CALL_ROWS, rows - row)
                sums = steps + rows * groups * 4
                kind = more if row else form
                add_products(
                    here, address, step, numbers, pairs, kind, then, steps, groups, sums, scale, zero, at
                )  # fmt: skip
        for row in range(rows):
            simd.copy_lines(total + row * 128, into + (row * stride + block * COLUMNS) * 4, 2)


@compiled
def wide_product(x, count, width, matrix, into, stride, first, end, buffers):
    """Blocks `first` to `end` of 32 outputs of a matrix of `laid_out`.

    x: (count, width) float32; matrix: as for `product`; into: (count, stride) float32
    """
    y, about, own = buffers
    quantize_inputs(x, width * 4, y, about, count, width, GROUP_INPUTS, False)
    product(y, about, count, width, matrix, 0, GROUP_INPUTS, into, stride, first, end, own)


# Attention: the products of queries and keys, in float32.
KEYS = 4  # keys per call for few queries; for many, the number of sums that fit into registers
MANY_KEYS = 4 if cpu_features.has_wide_vectors() else 1
FEW_QUERIES = 8  # up to so many, four at a time are fewer products than 16
QUERY = 64 + 4 * KEYS  # bytes of a thread's buffer for queries, for each dimension of a head


@compiled
def put_query(x, queries, q, width, count):
    """Query `q` of `count`, at most 16, as `scores` reads them. x: float32"""
    row = carray(simd.float32s_at(x), width)
    if count > FEW_QUERIES:
        table, lane = carray(simd.float32s_at(queries), (width, 16)), q
    else:
        table, lane = carray(simd.float32s_at(queries + q // 4 * width * 16), (width, 4)), q % 4
    for i in range(width):
        table[i, lane] = row[i]


def _key_rows(builder: ir.IRBuilder, keys: ir.Value, width: ir.Value, count: int) -> list[ir.Value]:
    """Addresses of `count` rows of float32."""
    numbers = [ir.Constant(llvm.I64, key) for key in range(count)]
    return [llvm.offset(builder, keys, builder.mul(width, number), 2) for number in numbers]


@llvm.emits()
def _score_many(builder, queries, keys, width, into):
    """(MANY_KEYS, 16) float32: the products of as many rows of float32 with 16 queries, (width, 16).

    There are four sums, of each fourth product, in the same order as in `_score_few`.
    """
    rows = _key_rows(builder, keys, width, MANY_KEYS)
    found = llvm.variables(builder, 4 * MANY_KEYS, llvm.constant(0.0))
    with cgutils.for_range(builder, builder.lshr(width, ir.Constant(llvm.I64, 2))) as loop:
        address = llvm.offset(builder, queries, loop.index, 8)
        columns = [llvm.load(builder, address, llvm.FLOATS, 64 * i) for i in range(4)]
        for number, one in enumerate(found):
            row = llvm.offset(builder, rows[number // 4], loop.index, 4)
            value = llvm.load(builder, row, ir.FloatType(), number % 4 * 4)
            value = llvm.splat(builder, value, llvm.FLOATS)
            summed = llvm.fma(builder, value, columns[number % 4], builder.load(one))
            builder.store(summed, one)
    for key in range(MANY_KEYS):
        sums = [builder.load(one) for one in found[4 * key : 4 * key + 4]]
        score = builder.fadd(builder.fadd(sums[0], sums[2]), builder.fadd(sums[1], sums[3]))
        llvm.store(builder, score, llvm.at(builder, into, 64 * key))


@llvm.emits(parts=llvm.LITERAL)
def _score_few(builder, parts, queries, keys, width, into):
    """The same for KEYS rows and four queries or eight, (parts, width, 4): four neighbouring products side by side.

    into: rows of 16, of which 4 * parts count
    """
    spread = ir.Constant(llvm.INTS, [lane // 4 for lane in range(llvm.WIDTH)])
    turns = [ir.Constant(llvm.INTS, [(lane + by) % 16 for lane in range(16)]) for by in (8, 4)]
    # The sums of a key repeat in each four lanes.
    sides = ir.Constant(llvm.INTS, [lane % 4 + lane // 4 % 2 * llvm.WIDTH for lane in range(16)])
    rows = _key_rows(builder, keys, width, KEYS)
    tables = [
        llvm.offset(builder, queries, builder.mul(width, ir.Constant(llvm.I64, part)), 4)
        for part in range(parts)
    ]
    found = llvm.variables(builder, parts * KEYS, llvm.constant(0.0))
    with cgutils.for_range(builder, builder.lshr(width, ir.Constant(llvm.I64, 2))) as loop:
        columns = [
            llvm.load(builder, llvm.offset(builder, one, loop.index, 6), llvm.FLOATS)
            for one in tables
        ]
        for key, row in enumerate(rows):
            four = ir.VectorType(ir.FloatType(), 4)
            value = llvm.load(builder, llvm.offset(builder, row, loop.index, 4), four)
            value = builder.shuffle_vector(value, value, spread)
            for part, column in enumerate(columns):
                one = found[parts * key + part]
                builder.store(llvm.fma(builder, value, column, builder.load(one)), one)
    for key in range(KEYS):
        scores = [builder.load(one) for one in found[parts * key : parts * (key + 1)]]
        for by in turns:
            scores = [builder.fadd(one, builder.shuffle_vector(one, one, by)) for one in scores]
        side_by_side = builder.shuffle_vector(scores[0], scores[-1], sides)
        llvm.store(builder, side_by_side, llvm.at(builder, into, 64 * key))


@compiled
def scores(queries, count, keys, width, length, into):
    """(length, 16) float32: the products of `count` queries with each key. keys: (length, width) bfloat16

    Reads and writes up to 15 rows further.
    """
    room = queries + width * 64
    for key in range(0, length, KEYS):
        simd.fetch(keys + key * width * 2 + llvm.AHEAD, KEYS * width // 32)
        simd.widen(keys + key * width * 2, room, KEYS * width // 16)
        if count <= 4:
            _score_few(1, queries, room, width, into + key * 64)
        elif count <= FEW_QUERIES:
            _score_few(2, queries, room, width, into + key * 64)
        else:
            for i in range(0, KEYS, MANY_KEYS):
                _score_many(queries, room + i * width * 4, width, into + (key + i) * 64)
