"""All layers of a Llama-like model in one compiled function: 4-bit products on matrix tiles, attention, norms, gates, head.

Threads of torch's own team go through it side by side and meet five times a layer. Every sum has an order
that does not depend on how many rows are read together, so a row's logits are the same, bit for bit,
whether it is read alone, in a draft or in a tree, and whoever shares the pass.

A job is an array of int64: sizes and addresses, at the places named below. Matrices are packed as
bitsandbytes packs NF4 for its CPU kernel (`vector.decode`); activations enter products as bfloat16 and
are float32 elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types

from specdemo.engine.guide import TENTHS
from specdemo.models import vector as v

# The job. Of the head: a bfloat16 matrix, or codes, scales and zeros of a 4-bit one. MORE: float32 rows that are added to
# those from MORE_ROW on before a layer (0: none). Of a draft: tokens at most (0: none is drafted), what words' ids and the
# target's embedding are, `guide.Guide`, tiles for one row, and where drafted tokens go.
(
    ROWS, FIRST, LAST, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, GROUP, EPSILON, SCALE, TABLE, LAYERS,
    INPUT, COS, SIN, TALKS, TALK_COUNT, TILES, SHARED, SCRATCH, SCRATCH_BYTES,
    STATES, FINAL, ASKED, ASKED_COUNT, NORM, WORDS, LOGITS, HEAD, HEAD_SCALES, HEAD_ZEROS,
    MORE, MORE_LAYER, MORE_ROW, MORE_COUNT,
    MOST, WORD_IDS, EMBEDDING, UNIFORMS, HEAT, RULE, ONE_ROW, DRAFTED, JOB,
) = range(45)  # fmt: skip
# A layer: norms, then address of codes, scales and zeros of each matrix, biases and norms of queries and keys (0: none).
INPUT_NORM, POST_NORM, QKV, OUTPUT, GATE_UP, DOWN, QKV_BIAS, QUERY_NORM, KEY_NORM = (
    0, 1, 2, 5, 8, 11, 14, 15, 16,
)  # fmt: skip
LAYER = 17
# A conversation: its rows among all, the slot of the first, keys in all, keys that all rows see, who sees what of the rest.
BEGIN, COUNT, START, KEYS, PREFIX, SEEN, CAPACITY, CACHES = range(8)
TALK = 8
# A drafted token: its column and the bits of its confidence, when it was there.
COLUMN, SURE, SECONDS, NANOSECONDS = range(4)
TOKEN = 4

COLUMNS = 32  # outputs decoded together
ROW_TILE = 16
STEP = 64  # inputs decoded together
CODE_BUFFER = 4096
PART_BUFFER = 4096

VECTOR = "67955aa7fce6f88a"  # of vector.py: numba looks only at this file to see whether what it keeps is old

_float = np.float32
_fast = {"contract", "reassoc", "arcp", "nsz"}

barrier = types.ExternalFunction("GOMP_barrier", types.void())
thread_number = types.ExternalFunction("omp_get_thread_num", types.int32())
clock = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
thread_count = types.ExternalFunction("omp_get_num_threads", types.int32())


def _kept(compiler: Any, *kind: Any, **options: Any) -> Any:
    """A decorator that keeps what it compiles on disk, where there is a folder to write to."""

    def compile_(function: Any) -> Any:
        try:
            return compiler(*kind, cache=True, **options)(function)
        except RuntimeError:
            # numba found no such folder: it compiles at every start, some ten seconds.
            return compiler(*kind, **options)(function)

    return compile_


_compiled = _kept(njit, nogil=True, error_model="numpy")
# Sums may be taken in another order than written, always the same one.
_loose = _kept(njit, nogil=True, error_model="numpy", fastmath=_fast)


@_loose
def normed(x, weight, into, width, epsilon):
    """RMS norm (Zhang 1910.07467) of one row; x, weight and into are float32, `into` may be x."""
    row, gain = carray(v.floats_at(x), width), carray(v.floats_at(weight), width)
    out = carray(v.floats_at(into), width)
    total = _float(0.0)
    for i in range(width):
        total += row[i] * row[i]
    factor = _float(1.0) / np.sqrt(total / _float(width) + epsilon)
    for i in range(width):
        out[i] = row[i] * factor * gain[i]


@_loose
def group_sums(x, into, rows, width, group):
    """Sums of neighbouring inputs as products see them: (rows, width) bfloat16 to (rows, width // group)."""
    values = carray(v.halves_at(x), rows * width)
    sums = carray(v.floats_at(into), rows * width // group)
    for place in range(rows * width // group):
        total = _float(0.0)
        for i in range(group):
            total += v.from_bits(np.int32(values[place * group + i]) << np.int32(16))
        sums[place] = total


@_compiled
def product(x, rows, width, matrix, table, group, sums, into, stride, first, end, own):
    """Blocks `first` to `end` of 32 outputs of a 4-bit matrix. Tiles are shaped for `rows` rows, at most 16 at a time.

    Two tiles' worth of inputs go together: of one group, or of two that each have accumulators of their own.
    x: (rows, width) bfloat16; matrix: address of its three addresses; into: (rows, stride) float32; own: the thread's buffers
    """
    parts = carray(v.numbers_at(matrix), 3)
    codes, scales, zeros = parts[0], parts[1], parts[2]
    groups, each = width // group, STEP // group
    part, total = own + CODE_BUFFER, own + CODE_BUFFER + PART_BUFFER
    line, found_line = COLUMNS * (2 if zeros else 4), COLUMNS * 4 * each
    of_groups = carray(v.floats_at(sums), rows * groups)
    for block in range(first, end):
        v.clear(total, rows * 2)
        for g in range(0, groups, each):
            v.decode(codes + (block * groups + g) * group * 16, table, own, STEP // 2)
            beside = (block * groups + g) * line
            for row in range(0, rows, ROW_TILE):
                place = x + (row * width + g * group) * 2
                v.clear_tile(0)
                v.clear_tile(1)
                v.load_tile(4, place, width * 2)
                v.load_tile(5, place + 64, width * 2)
                v.load_tile(6, own, 64)
                v.load_tile(7, own + 2048, 64)
                v.multiply_tiles(0, 4, 6)
                v.multiply_tiles(1, 4, 7)
                v.load_tile(6, own + 1024, 64)
                v.load_tile(7, own + 3072, 64)
                if each == 1:
                    v.multiply_tiles(0, 5, 6)
                    v.multiply_tiles(1, 5, 7)
                else:
                    v.clear_tile(2)
                    v.clear_tile(3)
                    v.multiply_tiles(2, 5, 6)
                    v.multiply_tiles(3, 5, 7)
                    v.store_tile(2, part + 128, found_line)
                    v.store_tile(3, part + 192, found_line)
                v.store_tile(0, part, found_line)
                v.store_tile(1, part + 64, found_line)
                for i in range(min(ROW_TILE, rows - row)):
                    at, found = total + (row + i) * 128, part + i * found_line
                    for one in range(each):
                        of_scales, of_zeros = (
                            scales + beside + one * line,
                            zeros + beside + one * line,
                        )
                        if zeros:
                            weight = of_groups[(row + i) * groups + g + one]
                            v.add_shifted(at, found, of_scales, of_zeros, weight)
                            v.add_shifted(
                                at + 64, found + 64, of_scales + 32, of_zeros + 32, weight
                            )
                        else:
                            v.add_scaled(at, found, of_scales)
                            v.add_scaled(at + 64, found + 64, of_scales + 64)
                        found += 128
        for row in range(rows):
            v.copy_lines(total + row * 128, into + (row * stride + block * COLUMNS) * 4, 2)


@_loose
def turned(x, cos, sin, into, width):
    """Rotary embedding (RoFormer 2104.09864) of one head."""
    a, out = carray(v.floats_at(x), width), carray(v.floats_at(into), width)
    c, s = carray(v.floats_at(cos), width), carray(v.floats_at(sin), width)
    half = width // 2
    for i in range(half):
        out[i] = a[i] * c[i] + a[half + i] * s[i]
        out[half + i] = a[half + i] * c[half + i] + a[i] * s[half + i]


@_compiled
def head_of(job, norm, x, row, into):
    """One head of queries or keys, normed if wanted and turned. x: its float32; into: float32"""
    width = job[HEAD_DIM]
    source = x
    if norm:
        normed(x, norm, into + width * 4, width, v.from_bits(np.int32(job[EPSILON])))
        source = into + width * 4
    turned(source, job[COS] + row * width * 4, job[SIN] + row * width * 4, into, width)


@_compiled
def hide(scores, keys, prefix, seen, first, count, group):
    """Take what is not seen out of 16 queries' scores, (keys, 16) float32.

    seen: bytes, row r looks at key k where seen[r * keys + k] is set; keys before `prefix` are seen by all
    """
    table = carray(v.floats_at(scores), (keys, 16))
    for query in range(count):
        sees = carray(v.bytes_at(seen + (first + query) // group * keys), keys)
        for key in range(prefix, keys):
            if not sees[key]:
                table[key, query] = _float(-1e30)


@_compiled
def attention(job, layer, caches, talk, head, first, count, qkv, out, own):
    """At most 16 queries of one key head of one conversation; writes the keys and values of its new rows too.

    first, count: queries, counted through rows and the heads of a group; qkv: float32; out: bfloat16
    """
    heads, kv_heads, width = job[HEADS], job[KV_HEADS], job[HEAD_DIM]
    group, all_heads, keys = heads // kv_heads, heads + 2 * kv_heads, talk[KEYS]
    bytes_ = width * 2
    key_rows = caches[0] + head * talk[CAPACITY] * bytes_
    value_rows = caches[1] + head * talk[CAPACITY] * bytes_
    spare, queries = own, own + 4096
    for i in range(talk[COUNT]):
        row = talk[BEGIN] + i
        place = qkv + (row * all_heads + heads + head) * width * 4
        head_of(job, layer[KEY_NORM], place, row, spare)
        v.round_to_bfloat16(spare, key_rows + (talk[START] + i) * bytes_, width // 16)
        v.round_to_bfloat16(
            place + kv_heads * width * 4, value_rows + (talk[START] + i) * bytes_, width // 16
        )
    v.clear(queries, width // 2)
    pairs = carray(v.words_at(queries), width // 2 * 16)
    for q in range(count):
        row = talk[BEGIN] + (first + q) // group
        place = qkv + (row * all_heads + head * group + (first + q) % group) * width * 4
        head_of(job, layer[QUERY_NORM], place, row, spare)
        v.round_to_bfloat16(spare, spare + 2048, width // 16)
        halves = carray(v.words_at(spare + 2048), width // 2)
        for pair in range(width // 2):
            pairs[pair * 16 + q] = halves[pair]
    scores = own + 4096 + width * 32
    v.load_tile(0, queries, 64)
    v.load_tile(1, queries + 1024, 64)
    if width == 128:
        v.load_tile(2, queries + 2048, 64)
        v.load_tile(3, queries + 3072, 64)
    for key in range(0, keys, 16):
        place = key_rows + key * bytes_
        v.clear_tile(7)
        v.load_tile(4, place, bytes_)
        v.load_tile(5, place + 64, bytes_)
        v.multiply_tiles(7, 4, 0)
        v.multiply_tiles(7, 5, 1)
        if width == 128:
            v.load_tile(4, place + 128, bytes_)
            v.load_tile(5, place + 192, bytes_)
            v.multiply_tiles(7, 4, 2)
            v.multiply_tiles(7, 5, 3)
        v.store_tile(7, scores + key * 64, 64)
    if talk[PREFIX] < keys:
        hide(scores, keys, talk[PREFIX], talk[SEEN], first, count, group)
    v.soften(scores, keys, v.from_bits(np.int32(job[SCALE])))
    sums = carray(v.floats_at(scores + keys * 64), 16)
    for q in range(0, count, 4):
        for part in range(0, width, 64):
            v.weigh_values(scores + q * 4, keys, value_rows + part * 2, bytes_, spare)
            for i in range(q, min(q + 4, count)):
                row = talk[BEGIN] + (first + i) // group
                place = out + (row * heads + head * group + (first + i) % group) * bytes_ + part * 2
                found = carray(v.floats_at(spare + (i - q) * 256), 64)
                for j in range(64):
                    found[j] = found[j] / sums[i]
                v.round_to_bfloat16(spare + (i - q) * 256, place, 4)


@_compiled
def attentions(job, index, layer, qkv, out, own, thread, threads):
    """This thread's share of all conversations, key heads and groups of 16 queries."""
    group = job[HEADS] // job[KV_HEADS]
    talks = carray(v.numbers_at(job[TALKS]), (job[TALK_COUNT], TALK))
    units = 0
    for number in range(job[TALK_COUNT]):
        units += job[KV_HEADS] * ((talks[number, COUNT] * group + 15) // 16)
    begin, end = units * thread // threads, units * (thread + 1) // threads
    unit = 0
    for number in range(job[TALK_COUNT]):
        talk = talks[number]
        caches = carray(v.numbers_at(talk[CACHES] + index * 16), 2)
        queries = talk[COUNT] * group
        for head in range(job[KV_HEADS]):
            for first in range(0, queries, 16):
                if begin <= unit < end:
                    count = min(16, queries - first)
                    attention(job, layer, caches, talk, head, first, count, qkv, out, own)
                unit += 1


@_compiled
def normed_rows(job, x, weight, into, spare):
    """(rows, hidden) float32 to normed bfloat16."""
    hidden = job[HIDDEN]
    for row in range(job[ROWS]):
        normed(x + row * hidden * 4, weight, spare, hidden, v.from_bits(np.int32(job[EPSILON])))
        v.round_to_bfloat16(spare, into + row * hidden * 2, hidden // 16)


@_compiled
def biased(into, bias, rows, stride, first, end):
    for row in range(rows):
        v.add_to(into + (row * stride + first) * 4, bias + first * 4, (end - first) // 16)


@_compiled
def meet(threads):
    """Wait for the other threads."""
    if threads > 1:
        barrier()


@_compiled
def head(job, x, thread, threads, own):
    """Logits of the asked rows from a bfloat16 matrix of left tiles, see `native`. x: (rows, hidden) float32"""
    hidden, words, count = job[HIDDEN], job[WORDS], job[ASKED_COUNT]
    asked = carray(v.numbers_at(job[ASKED]), count)
    tiles = (count + 15) // 16
    spare, inputs = own, own + 4 * hidden + 4096
    part = inputs + tiles * hidden * 32
    v.clear(inputs, tiles * hidden // 2)
    for i in range(count):
        normed(
            x + asked[i] * hidden * 4, job[NORM], spare, hidden, v.from_bits(np.int32(job[EPSILON]))
        )
        v.round_to_bfloat16(spare, part, hidden // 16)
        halves = carray(v.words_at(part), hidden // 2)
        pairs = carray(v.words_at(inputs + i // 16 * hidden * 32), hidden * 8)
        for pair in range(hidden // 2):
            pairs[pair * 16 + i % 16] = halves[pair]
    logits = carray(v.floats_at(job[LOGITS]), (count, words))
    blocks = words // 32
    for block in range(blocks * thread // threads, blocks * (thread + 1) // threads):
        lower = job[HEAD] + block * 64 * hidden
        for tile in range(tiles):
            v.clear_tile(0)
            v.clear_tile(1)
            for step in range(hidden // 32):
                v.fetch(lower + step * 2048 + 2048, 32)
                v.load_tile(4, lower + step * 2048, 64)
                v.load_tile(5, lower + step * 2048 + 1024, 64)
                v.load_tile(6, inputs + tile * hidden * 32 + step * 1024, 64)
                v.multiply_tiles(0, 4, 6)
                v.multiply_tiles(1, 5, 6)
            v.store_tile(0, part, 64)
            v.store_tile(1, part + 1024, 64)
            found = carray(v.floats_at(part), (32, 16))
            for i in range(min(16, count - tile * 16)):
                for word in range(32):
                    logits[tile * 16 + i, block * 32 + word] = found[word, i]


@_compiled
def packed_head(job, matrix, x, y, sums, thread, threads, own):
    """Logits of the asked rows from a 4-bit matrix. x: (rows, hidden) float32; y: room for as many bfloat16"""
    hidden, words, count, group = job[HIDDEN], job[WORDS], job[ASKED_COUNT], job[GROUP]
    asked = carray(v.numbers_at(job[ASKED]), count)
    epsilon = v.from_bits(np.int32(job[EPSILON]))
    for i in range(count):
        normed(x + asked[i] * hidden * 4, job[NORM], own, hidden, epsilon)
        v.round_to_bfloat16(own, y + i * hidden * 2, hidden // 16)
    if job[HEAD_ZEROS]:
        group_sums(y, sums, count, hidden, group)
    blocks = words // COLUMNS
    first, end = blocks * thread // threads, blocks * (thread + 1) // threads
    product(
        y, count, hidden, matrix, job[TABLE], group, sums, job[LOGITS], words, first, end, own,
    )  # fmt: skip


@_compiled
def go_through(place, thread, threads):
    """One thread's part of the pass that the job at an address describes."""
    job = carray(v.numbers_at(place), JOB)
    rows, hidden, inner = job[ROWS], job[HIDDEN], job[INNER]
    all_heads = job[HEADS] + 2 * job[KV_HEADS]
    attended = job[HEADS] * job[HEAD_DIM]
    group = job[GROUP]
    padded = (rows + 15) // 16 * 16
    # Shared buffers, then those of each thread.
    qkv = job[SHARED]
    heads_out = qkv + padded * all_heads * job[HEAD_DIM] * 4
    out = heads_out + padded * attended * 2
    gates = out + padded * hidden * 4
    inside = gates + padded * 2 * inner * 4
    x = job[SCRATCH] + thread * job[SCRATCH_BYTES]
    y = x + padded * hidden * 4
    sums = y + padded * hidden * 2
    own = sums + padded * max(hidden, inner, attended) // 32 * 4
    own = (own + 63) // 64 * 64
    v.copy_lines(job[INPUT], x, rows * hidden // 16)
    table, shapes = job[TABLE], job[TILES]
    for index in range(job[FIRST], job[LAST]):
        if job[MORE] and index == job[MORE_LAYER]:
            v.add_to(x + job[MORE_ROW] * hidden * 4, job[MORE], job[MORE_COUNT] * hidden // 16)
        layer = carray(v.numbers_at(job[LAYERS] + index * LAYER * 8), LAYER)
        here = job[LAYERS] + index * LAYER * 8
        affine = layer[QKV + 2] != 0
        normed_rows(job, x, layer[INPUT_NORM], y, own)
        if affine:
            group_sums(y, sums, rows, hidden, group)
        v.configure_tiles(shapes)
        blocks = all_heads * job[HEAD_DIM] // COLUMNS
        first, end = blocks * thread // threads, blocks * (thread + 1) // threads
        product(
            y, rows, hidden, here + QKV * 8, table, group, sums, qkv,
            blocks * COLUMNS, first, end, own,
        )  # fmt: skip
        if layer[QKV_BIAS]:
            biased(qkv, layer[QKV_BIAS], rows, blocks * COLUMNS, first * COLUMNS, end * COLUMNS)
        meet(threads)
        v.configure_tiles(shapes + 64)
        attentions(job, index, layer, qkv, heads_out, own, thread, threads)
        meet(threads)
        if affine:
            group_sums(heads_out, sums, rows, attended, group)
        v.configure_tiles(shapes)
        blocks = hidden // COLUMNS
        first, end = blocks * thread // threads, blocks * (thread + 1) // threads
        product(
            heads_out, rows, attended, here + OUTPUT * 8, table, group, sums, out, hidden,
            first, end, own,
        )  # fmt: skip
        meet(threads)
        v.add_to(x, out, rows * hidden // 16)
        normed_rows(job, x, layer[POST_NORM], y, own)
        if affine:
            group_sums(y, sums, rows, hidden, group)
        both = inner // COLUMNS
        low, high = both * thread // threads, both * (thread + 1) // threads
        for at in (0, both):
            product(
                y, rows, hidden, here + GATE_UP * 8, table, group, sums, gates, 2 * inner,
                at + low, at + high, own,
            )  # fmt: skip
        for row in range(rows):
            gate = gates + (row * 2 * inner + low * COLUMNS) * 4
            into = inside + (row * inner + low * COLUMNS) * 2
            v.gate(gate, gate + inner * 4, into, (high - low) * COLUMNS // 16)
        meet(threads)
        if affine:
            group_sums(inside, sums, rows, inner, group)
        product(
            inside, rows, inner, here + DOWN * 8, table, group, sums, out, hidden, first, end,
            own,
        )  # fmt: skip
        meet(threads)
        v.add_to(x, out, rows * hidden // 16)
        keeps = carray(v.numbers_at(job[STATES] + (index + 1) * 8), 1)
        if thread == 0 and keeps[0]:
            v.round_to_bfloat16(x, keeps[0], rows * hidden // 16)
    if thread == 0 and job[FINAL]:
        v.copy_lines(x, job[FINAL], rows * hidden // 16)
    if job[ASKED_COUNT] and job[HEAD_SCALES]:
        v.configure_tiles(shapes + 128)
        packed_head(job, place + HEAD * 8, x, y, sums, thread, threads, own)
    elif job[ASKED_COUNT]:
        v.configure_tiles(shapes + 64)
        head(job, x, thread, threads, own)
    v.release_tiles()


@_compiled
def shaped(row, words, heat):
    """Softmax of one row in its place, of logits times `heat`."""
    v.exponentials(row, words // 16, heat)
    probs = carray(v.floats_at(row), words)
    total = v.added_up(row, words // 16)
    for word in range(words):
        probs[word] = probs[word] / total


@_compiled
def drawn_at(probs, uniform):
    """The column that a number from 0 to 1 falls on."""
    so_far = 0.0
    last = 0
    for word in range(len(probs)):
        if probs[word] > 0:
            so_far += np.float64(probs[word])
            last = word
            if so_far > uniform:
                break
    return last


@_compiled
def likeliest(probs):
    """The column of the largest, the first of equals."""
    best = 0
    for word in range(1, len(probs)):
        if probs[word] > probs[best]:
            best = word
    return best


@_compiled
def add_token(job, number, survival):
    """Choose or draw a draft's next token from the logits that the pass has left, and make the job the pass that reads it.

    returns: the draft's survival so far, as `guide.Rule` has it; the job's MOST is 0 when the draft ends here
    """
    words, width, hidden = job[WORDS], job[HEAD_DIM], job[HIDDEN]
    row = job[LOGITS]
    shaped(row, words, v.from_bits(np.int32(job[HEAT])))
    probs = carray(v.floats_at(row), words)
    if job[UNIFORMS]:
        column = drawn_at(probs, carray(v.doubles_at(job[UNIFORMS]), job[MOST])[number])
    else:
        column = likeliest(probs)
    sure = np.float64(probs[column])
    place = job[DRAFTED] + number * TOKEN * 8
    token = carray(v.numbers_at(place), TOKEN)
    token[COLUMN], token[SURE] = column, v.to_bits(probs[column])
    clock(np.int32(1), place + SECONDS * 8)
    middle = min(max(sure * TENTHS - 0.5, 0.0), TENTHS - 1.0)
    low = min(int(middle), TENTHS - 2)
    rule = carray(v.doubles_at(job[RULE]), TENTHS + 1 + job[MOST])
    survival *= rule[low] * (low + 1 - middle) + rule[low + 1] * (middle - low)
    if number + 1 == job[MOST] or sure < rule[TENTHS] or not survival > rule[TENTHS + 1 + number]:
        job[MOST] = 0
        return survival
    word_id = carray(v.numbers_at(job[WORD_IDS]), words)[column]
    embedded = carray(v.halves_at(job[EMBEDDING] + word_id * hidden * 2), hidden)
    x = carray(v.words_at(job[INPUT]), hidden)
    for i in range(hidden):
        x[i] = np.int32(embedded[i]) << np.int32(16)
    job[COS] += job[ROWS] * width * 4
    job[SIN] += job[ROWS] * width * 4
    job[LOGITS] += words * 4
    job[ROWS], job[FIRST], job[MORE], job[TILES] = 1, 0, 0, job[ONE_ROW]
    carray(v.numbers_at(job[ASKED]), 1)[0] = 0
    talk = carray(v.numbers_at(job[TALKS]), TALK)
    talk[START] += talk[COUNT]
    talk[COUNT], talk[KEYS], talk[PREFIX], talk[SEEN] = 1, talk[START] + 1, talk[START] + 1, 0
    return survival


@_compiled
def work(place, thread, threads):
    """One thread's part of a job: a pass, and the draft that goes on from it."""
    job = carray(v.numbers_at(place), JOB)
    go_through(place, thread, threads)
    survival, number = 1.0, 0
    while job[MOST]:
        meet(threads)
        if thread == 0:
            survival = add_token(job, number, survival)
        meet(threads)
        number += 1
        if job[MOST]:
            go_through(place, thread, threads)


@_kept(cfunc, types.void(types.intp), nopython=True)
def in_team(place):
    """What each thread of a team runs."""
    work(place, thread_number(), thread_count())


@_kept(cfunc, types.void(types.intp), nopython=True)
def alone(place):
    """The whole pass in the calling thread."""
    work(place, 0, 1)


def bits(value: float) -> int:
    """The 32 bits of a float32."""
    return int(np.float32(value).view(np.int32))
