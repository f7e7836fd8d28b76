"""Attention scores on vectors (AVX-512, AVX2, or any): the products of queries and keys, in float32."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from specdemo.kernels import cpu_features, llvm, simd
from specdemo.kernels.cache import compiled

KEYS = 4  # keys per call for few queries; for many, the number of sums that fit into registers
MANY_KEYS = 4 if cpu_features.has_wide_vectors() else 1
QUERY = 64 + 4 * KEYS  # bytes of a thread's buffer for queries, for each dimension of a head


@compiled
def put_query(x, queries, q, width, count):
    """Query `q` of `count`, at most 16, as `scores` reads them. x: float32"""
    lanes = 4 if count <= 4 else 16
    row, table = (
        carray(simd.float32s_at(x), width),
        carray(simd.float32s_at(queries), (width, lanes)),
    )
    for i in range(width):
        table[i, q] = row[i]


def _key_rows(builder: Any, keys: Any, width: Any, count: int) -> list[Any]:
    """Addresses of `count` rows of float32."""
    numbers = [ir.Constant(llvm.I64, key) for key in range(count)]
    return [llvm.offset(builder, keys, builder.mul(width, number), 2) for number in numbers]


@intrinsic
def _score_many(_context, queries, keys, width, into):
    """(MANY_KEYS, 16) float32: the products of as many rows of float32 with 16 queries, (width, 16).

    There are four sums, of each fourth product, in the same order as in `_score_few`.
    """

    def generate(context, builder, _signature, arguments):
        queries, keys, width, into = arguments
        rows = _key_rows(builder, keys, width, MANY_KEYS)
        found = llvm.variables(builder, 4 * MANY_KEYS, llvm.constant(0.0))
        with cgutils.for_range(builder, builder.lshr(width, ir.Constant(llvm.I64, 2))) as loop:
            address = llvm.offset(builder, queries, loop.index, 8)
            columns = [
                llvm.load(builder, llvm.at(builder, address, 64 * i), llvm.FLOATS) for i in range(4)
            ]
            for number, one in enumerate(found):
                row = llvm.offset(builder, rows[number // 4], loop.index, 4)
                value = llvm.load(builder, llvm.at(builder, row, number % 4 * 4), ir.FloatType())
                value = llvm.splat(builder, value, llvm.FLOATS)
                summed = llvm.fma(builder, value, columns[number % 4], builder.load(one))
                builder.store(summed, one)
        for key in range(MANY_KEYS):
            sums = [builder.load(one) for one in found[4 * key : 4 * key + 4]]
            score = builder.fadd(builder.fadd(sums[0], sums[2]), builder.fadd(sums[1], sums[3]))
            llvm.store(builder, score, llvm.at(builder, into, 64 * key))
        return context.get_dummy_value()

    return types.void(*[llvm.POINTER] * 4), generate


@intrinsic
def _score_few(_context, queries, keys, width, into):
    """The same for KEYS rows and four queries, (width, 4): four neighbouring products side by side.

    into: rows of 16, of which four count
    """
    spread = ir.Constant(llvm.INTS, [lane // 4 for lane in range(llvm.WIDTH)])
    turns = [ir.Constant(llvm.INTS, [(lane + by) % 16 for lane in range(16)]) for by in (8, 4)]

    def generate(context, builder, _signature, arguments):
        queries, keys, width, into = arguments
        rows = _key_rows(builder, keys, width, KEYS)
        found = llvm.variables(builder, KEYS, llvm.constant(0.0))
        with cgutils.for_range(builder, builder.lshr(width, ir.Constant(llvm.I64, 2))) as loop:
            column = llvm.load(builder, llvm.offset(builder, queries, loop.index, 6), llvm.FLOATS)
            for row, one in zip(rows, found, strict=True):
                four = ir.VectorType(ir.FloatType(), 4)
                value = llvm.load(builder, llvm.offset(builder, row, loop.index, 4), four)
                value = builder.shuffle_vector(value, value, spread)
                builder.store(llvm.fma(builder, value, column, builder.load(one)), one)
        for key, one in enumerate(found):
            score = builder.load(one)
            for by in turns:
                score = builder.fadd(score, builder.shuffle_vector(score, score, by))
            llvm.store(builder, score, llvm.at(builder, into, 64 * key))
        return context.get_dummy_value()

    return types.void(*[llvm.POINTER] * 4), generate


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
            _score_few(queries, room, width, into + key * 64)
        else:
            for i in range(0, KEYS, MANY_KEYS):
                _score_many(queries, room + i * width * 4, width, into + (key + i) * 64)
