"""Products on bfloat16 matrix tiles (AMX): one to sixteen rows cost alike. The same functions as in `matmul_vectors`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import carray, types
from torch import Tensor

from specdemo.kernels import llvm, simd
from specdemo.kernels.llvm import compiled, loose
from specdemo.kernels.packing import Packed

COLUMNS = 32  # outputs decoded per call
ROW_TILE = 16
STEP = 64  # inputs decoded per call
CODE_BUFFER = 4096
PART_BUFFER = 4096
QUERY = 32  # bytes of a thread's buffer for queries, for each dimension of a head


def meanings(code: Tensor) -> tuple[Tensor, float]:
    """The numbers that `decode` turns codes into, and the factor from them to the code's values. code: (16,)"""
    return code.bfloat16().repeat(2).contiguous(), 1.0


def laid_out(matrix: Tensor) -> Packed:
    """A bfloat16 matrix in the order in which it is read: tiles of 16 rows and 32 columns, two below each other."""
    rows, columns = matrix.shape
    tiles = matrix.detach().view(rows // 32, 2, 16, columns // 32, 32).permute(0, 3, 1, 2, 4)
    return Packed(tiles.contiguous(), None)


@llvm.emits()
def begin(builder, settings):
    """Shape the eight tiles by the 64 bytes at an address."""
    address = builder.inttoptr(settings, llvm.BYTES)
    llvm.call(builder, "llvm.x86.ldtilecfg", ir.VoidType(), (address,))


@llvm.emits()
def end(builder):
    """Release the tiles."""
    llvm.call(builder, "llvm.x86.tilerelease", ir.VoidType(), ())


def _on_tiles(builder: ir.IRBuilder, name: str, tiles: Sequence[int], *more: ir.Value) -> None:
    """Run an instruction on tiles by their numbers."""
    numbers = [ir.Constant(llvm.I8, tile) for tile in tiles]
    llvm.call(builder, f"llvm.x86.{name}", ir.VoidType(), (*numbers, *more))


@llvm.emits(tile=llvm.LITERAL)
def load_tile(builder, tile, address, stride):
    """Read a tile from rows `stride` bytes apart."""
    _on_tiles(builder, "tileloadd64", [tile], builder.inttoptr(address, llvm.BYTES), stride)


@llvm.emits(tile=llvm.LITERAL)
def store_tile(builder, tile, address, stride):
    """Write a tile to rows `stride` bytes apart."""
    _on_tiles(builder, "tilestored64", [tile], builder.inttoptr(address, llvm.BYTES), stride)


@llvm.emits(tile=llvm.LITERAL)
def clear_tile(builder, tile):
    """Set a tile to zero."""
    _on_tiles(builder, "tilezero", [tile])


@llvm.emits(into=llvm.LITERAL, left=llvm.LITERAL, right=llvm.LITERAL)
def multiply_tiles(builder, into, left, right):
    """into (M, 16) float32 += left (M, 32) bfloat16 times right, 16 rows of 16 pairs of bfloat16."""
    _on_tiles(builder, "tdpbf16ps", [into, left, right])


@llvm.emits()
def add_scaled(builder, total, part, scale):
    """16 float32: total += part * scale."""
    so_far, part, scale = (llvm.load(builder, one, llvm.FLOATS) for one in (total, part, scale))
    llvm.store(builder, llvm.fma(builder, part, scale, so_far), total)


@llvm.emits(weight=types.float32)
def add_shifted(builder, total, part, scale, zero, weight):
    """16 float32: total += part * scale + weight * zero, with one weight for all; scale and zero are bfloat16."""
    so_far, part = (llvm.load(builder, address, llvm.FLOATS) for address in (total, part))
    shorts = (llvm.load(builder, address, llvm.SHORTS) for address in (scale, zero))
    scale, zero = (llvm.to_floats(builder, one) for one in shorts)
    so_far = llvm.fma(builder, part, scale, so_far)
    so_far = llvm.fma(builder, llvm.splat(builder, weight, llvm.FLOATS), zero, so_far)
    llvm.store(builder, so_far, total)


@loose
def group_sums(x, into, width, group):
    """Sums of the inputs of each group, in bfloat16 as products read them: (width,) bfloat16 to (width // group,)."""
    values = carray(simd.uint16s_at(x), width)
    sums = carray(simd.float32s_at(into), width // group)
    for number in range(width // group):
        total = np.float32(0.0)
        for i in range(group):
            total += simd.from_bits(np.int32(values[number * group + i]) << np.int32(16))
        sums[number] = total


@compiled
def quantize_inputs(x, stride, into, about, rows, width, group, sums):
    """Convert inputs for `product`: bfloat16.

    x: float32 rows `stride` bytes apart; into: (rows, width) bfloat16
    about: (2, rows, width // group) float32; the second half gets the sums of each group if `sums`
    """
    for row in range(rows):
        simd.round_to_bfloat16(x + row * stride, into + row * width * 2, width // 16)
        if sums:
            address = about + (rows + row) * (width // group) * 4
            group_sums(into + row * width * 2, address, width, group)


@compiled
def product(x, about, rows, width, matrix, table, group, into, stride, first, end, own):
    """Multiply rows by blocks `first` to `end` of 32 outputs of a 4-bit or 8-bit matrix. Tiles are shaped for `rows` rows, at most 16 at a time.

    Each step reads the inputs of two tiles: of one group, or of two that each have accumulators of their own.
    x, about: from `quantize_inputs`; matrix: its record; table: values of 4-bit codes
    into: (rows, stride) float32; own: the thread's buffers
    """
    codes, scales, zeros, bits = matrix.codes, matrix.scales, matrix.zeros, matrix.bits
    groups, each = width // group, STEP // group
    part, total = own + CODE_BUFFER, own + CODE_BUFFER + PART_BUFFER
    line, found_line = COLUMNS * (2 if zeros else 4), COLUMNS * 4 * each
    of_groups = carray(simd.float32s_at(about + rows * groups * 4), rows * groups)
    for block in range(first, end):
        simd.clear(total, rows * 2)
        for g in range(0, groups, each):
            source = codes + (block * groups + g) * group * 4 * bits
            if bits == 4:
                simd.decode(1, source, table, own, STEP // 2)
            else:
                simd.fetch(source + llvm.AHEAD, STEP * COLUMNS // 64)
                simd.bytes_to_bfloat16(source, own, STEP * COLUMNS // 16)
            beside = (block * groups + g) * line
            for row in range(0, rows, ROW_TILE):
                address = x + (row * width + g * group) * 2
                clear_tile(0)
                clear_tile(1)
                load_tile(4, address, width * 2)
                load_tile(5, address + 64, width * 2)
                load_tile(6, own, 64)
                load_tile(7, own + 2048, 64)
                multiply_tiles(0, 4, 6)
                multiply_tiles(1, 4, 7)
                load_tile(6, own + 1024, 64)
                load_tile(7, own + 3072, 64)
                if each == 1:
                    multiply_tiles(0, 5, 6)
                    multiply_tiles(1, 5, 7)
                else:
                    clear_tile(2)
                    clear_tile(3)
                    multiply_tiles(2, 5, 6)
                    multiply_tiles(3, 5, 7)
                    store_tile(2, part + 128, found_line)
                    store_tile(3, part + 192, found_line)
                store_tile(0, part, found_line)
                store_tile(1, part + 64, found_line)
                for i in range(min(ROW_TILE, rows - row)):
                    at, found = total + (row + i) * 128, part + i * found_line
                    for one in range(each):
                        of_scales = scales + beside + one * line
                        of_zeros = zeros + beside + one * line
                        if zeros:
                            weight = of_groups[(row + i) * groups + g + one]
                            add_shifted(at, found, of_scales, of_zeros, weight)
                            add_shifted(at + 64, found + 64, of_scales + 32, of_zeros + 32, weight)
                        else:
                            add_scaled(at, found, of_scales)
                            add_scaled(at + 64, found + 64, of_scales + 64)
                        found += 128
        for row in range(rows):
            simd.copy_lines(total + row * 128, into + (row * stride + block * COLUMNS) * 4, 2)


@compiled
def put_query(x, queries, q, width, count):
    """Query `q` of `count`, at most 16, as `scores` reads them. x: float32, overwritten behind its end"""
    spare = x + 2048
    simd.round_to_bfloat16(x, spare, width // 16)
    pairs = carray(simd.int32s_at(queries), width // 2 * 16)
    halves = carray(simd.int32s_at(spare), width // 2)
    for pair in range(width // 2):
        pairs[pair * 16 + q] = halves[pair]


@compiled
def scores_of_any(queries, keys, width, length, into):
    """`scores` of heads whose queries do not stay in tiles."""
    for key in range(0, length, 16):
        clear_tile(7)
        for step in range(width // 32):
            load_tile(0, queries + step * 1024, 64)
            load_tile(4, keys + key * width * 2 + step * 64, width * 2)
            multiply_tiles(7, 4, 0)
        store_tile(7, into + key * 64, 64)


@compiled
def scores(queries, count, keys, width, length, into):
    """(length, 16) float32: the products of `count` queries with each key. keys: (length, width) bfloat16

    Reads and writes up to 15 rows further.
    """
    bytes_ = width * 2
    if width not in (64, 128):
        scores_of_any(queries, keys, width, length, into)
        return
    load_tile(0, queries, 64)
    load_tile(1, queries + 1024, 64)
    if width == 128:
        load_tile(2, queries + 2048, 64)
        load_tile(3, queries + 3072, 64)
    for key in range(0, length, 16):
        address = keys + key * bytes_
        clear_tile(7)
        load_tile(4, address, bytes_)
        load_tile(5, address + 64, bytes_)
        multiply_tiles(7, 4, 0)
        multiply_tiles(7, 5, 1)
        if width == 128:
            load_tile(4, address + 128, bytes_)
            load_tile(5, address + 192, bytes_)
            multiply_tiles(7, 4, 2)
            multiply_tiles(7, 5, 3)
        store_tile(7, into + key * 64, 64)


@compiled
def wide_product(x, count, width, matrix, into, stride, first, end, buffers):
    """Blocks `first` to `end` of 32 outputs of a matrix of `laid_out`.

    x: (count, width) float32; matrix: as for `product`; into: (count, stride) float32
    """
    own, first_tile = buffers[2], matrix.codes
    tiles = (count + 15) // 16
    inputs = own + 4 * width + 4096
    part = inputs + tiles * width * 32
    simd.clear(inputs, tiles * width // 2)
    for i in range(count):
        simd.round_to_bfloat16(x + i * width * 4, part, width // 16)
        halves = carray(simd.int32s_at(part), width // 2)
        pairs = carray(simd.int32s_at(inputs + i // 16 * width * 32), width * 8)
        for pair in range(width // 2):
            pairs[pair * 16 + i % 16] = halves[pair]
    logits = carray(simd.float32s_at(into), (count, stride))
    for block in range(first, end):
        lower = first_tile + block * 64 * width
        for tile in range(tiles):
            clear_tile(0)
            clear_tile(1)
            for step in range(width // 32):
                simd.fetch(lower + step * 2048 + 2048, 32)
                load_tile(4, lower + step * 2048, 64)
                load_tile(5, lower + step * 2048 + 1024, 64)
                load_tile(6, inputs + tile * width * 32 + step * 1024, 64)
                multiply_tiles(0, 4, 6)
                multiply_tiles(1, 5, 6)
            store_tile(0, part, 64)
            store_tile(1, part + 1024, 64)
            found = carray(simd.float32s_at(part), (32, 16))
            for i in range(min(16, count - tile * 16)):
                for column in range(32):
                    logits[tile * 16 + i, block * 32 + column] = found[column, i]
