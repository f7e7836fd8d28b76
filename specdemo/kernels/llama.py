"""All layers of a Llama-like model in one compiled function: 4-bit products, attention, norms, gates, head.

Threads of torch's own team go through it side by side and meet five times a layer. Every sum has an order
that does not depend on how many rows are read together, so a row's logits are the same, bit for bit,
whether it is read alone, in a draft or in a tree, and whoever shares the pass.

A job is an array of int64: sizes and addresses, at the places named below. Matrices are packed as
bitsandbytes packs NF4 for its CPU kernel (`vector.decode`); activations are float32 except where products
take them in, which `amx` and `avx` do each in their way.
"""

from __future__ import annotations

import numpy as np
from numba import carray, types

from specdemo.kernels import cpu_features as processor
from specdemo.kernels import simd as v
from specdemo.kernels.jit import compiled, loose

if processor.has_tiles():
    from specdemo.kernels import matmul_amx as products
else:
    from specdemo.kernels import matmul_avx as products  # type: ignore[no-redef]

# The job. Of the head: codes, scales and zeros of a 4-bit matrix, or, without zeros, of one that `words` reads; OWN: a
# 4-bit matrix whose first rows follow it, the rest of its last block says nothing; WORDS: columns of both. MORE:
# float32 rows that are added to those from MORE_ROW on before a layer (0: none). Of a draft: tokens at most (0: none is
# drafted), what words' ids and the target's embedding are, `guide.Guide`, tiles for one row, and where drafted tokens go.
(
    ROWS, FIRST, LAST, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, GROUP, EPSILON, SCALE, TABLE, LAYERS,
    INPUT, COS, SIN, TALKS, TALK_COUNT, TILES, SHARED, SCRATCH, SCRATCH_BYTES,
    STATES, FINAL, ASKED, ASKED_COUNT, NORM, WORDS, LOGITS, HEAD, HEAD_SCALES, HEAD_ZEROS,
    MORE, MORE_LAYER, MORE_ROW, MORE_COUNT,
    OWN_HEAD, OWN_SCALES, OWN_ZEROS, OWN_COUNT,
    MOST, WORD_IDS, EMBEDDING, UNIFORMS, HEAT, RULE, ONE_ROW, DRAFTED, JOB,
) = range(49)  # fmt: skip
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

BLOCK = 32  # outputs that are computed together

_float = np.float32

barrier = types.ExternalFunction("GOMP_barrier", types.void())


@loose
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


@loose
def turned(x, cos, sin, into, width):
    """Rotary embedding (RoFormer 2104.09864) of one head."""
    a, out = carray(v.floats_at(x), width), carray(v.floats_at(into), width)
    c, s = carray(v.floats_at(cos), width), carray(v.floats_at(sin), width)
    half = width // 2
    for i in range(half):
        out[i] = a[i] * c[i] + a[half + i] * s[i]
        out[half + i] = a[half + i] * c[half + i] + a[i] * s[half + i]


@compiled
def head_of(job, norm, x, row, into):
    """One head of queries or keys, normed if wanted and turned. x: its float32; into: float32"""
    width = job[HEAD_DIM]
    source = x
    if norm:
        normed(x, norm, into + width * 4, width, v.from_bits(np.int32(job[EPSILON])))
        source = into + width * 4
    turned(source, job[COS] + row * width * 4, job[SIN] + row * width * 4, into, width)


@compiled
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


@compiled
def attention(job, layer, caches, talk, head, first, count, qkv, out, own):
    """At most 16 queries of one key head of one conversation; writes the keys and values of its new rows too.

    first, count: queries, counted through rows and the heads of a group; qkv, out: float32
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
    scores = queries + width * products.QUERY
    v.clear(queries, scores - queries >> 6)
    for q in range(count):
        row = talk[BEGIN] + (first + q) // group
        place = qkv + (row * all_heads + head * group + (first + q) % group) * width * 4
        head_of(job, layer[QUERY_NORM], place, row, spare)
        products.put_query(spare, queries, q, width, count)
    products.scores(queries, count, key_rows, width, keys, scores)
    if talk[PREFIX] < keys:
        hide(scores, keys, talk[PREFIX], talk[SEEN], first, count, group)
    v.soften(scores, keys, v.from_bits(np.int32(job[SCALE])))
    sums = carray(v.floats_at(scores + keys * 64), 16)
    for q in range(0, count, 4):
        for part in range(0, width, 64):
            v.weigh_values(scores + q * 4, keys, value_rows + part * 2, bytes_, spare)
            for i in range(q, min(q + 4, count)):
                row = talk[BEGIN] + (first + i) // group
                place = (
                    out + ((row * heads + head * group + (first + i) % group) * width + part) * 4
                )
                found = carray(v.floats_at(spare + (i - q) * 256), 64)
                into = carray(v.floats_at(place), 64)
                for j in range(64):
                    into[j] = found[j] / sums[i]


@compiled
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


@compiled
def biased(into, bias, rows, stride, first, end):
    for row in range(rows):
        v.add_to(into + (row * stride + first) * 4, bias + first * 4, (end - first) // 16)


@compiled
def meet(threads):
    """Wait for the other threads."""
    if threads > 1:
        barrier()


@compiled
def take_in(job, source, stride, width, rows, matrix, buffers):
    """Inputs of a 4-bit matrix: float32 rows `stride` bytes apart."""
    zeros = carray(v.numbers_at(matrix), 3)[2]
    products.lay_in(source, stride, buffers[0], buffers[1], rows, width, job[GROUP], zeros != 0)


@compiled
def multiply(job, width, rows, matrix, into, stride, first, end, buffers):
    """Blocks `first` to `end` of 32 outputs of a 4-bit matrix, from what was taken in. into: (rows, stride) float32"""
    y, about, own = buffers
    group, table = job[GROUP], job[TABLE]
    products.product(y, about, rows, width, matrix, table, group, into, stride, first, end, own)


@compiled
def normed_rows(job, x, weight, into):
    """(rows, hidden) float32."""
    step = job[HIDDEN] * 4
    for row in range(job[ROWS]):
        normed(
            x + row * step,
            weight,
            into + row * step,
            job[HIDDEN],
            v.from_bits(np.int32(job[EPSILON])),
        )


@compiled
def silence(rows, stride, count, first, end):
    """Columns that stand for nothing."""
    for row in range(count):
        columns = carray(v.floats_at(rows + row * stride * 4), end)
        for column in range(first, end):
            columns[column] = _float(-1e30)


@compiled
def head(job, place, x, normed_x, thread, threads, buffers):
    """Logits of the asked rows. x, normed_x: (rows, hidden) float32"""
    hidden, words, count = job[HIDDEN], job[WORDS], job[ASKED_COUNT]
    asked = carray(v.numbers_at(job[ASKED]), count)
    epsilon = v.from_bits(np.int32(job[EPSILON]))
    for i in range(count):
        normed(x + asked[i] * hidden * 4, job[NORM], normed_x + i * hidden * 4, hidden, epsilon)
    blocks, matrix = words // BLOCK, place + HEAD * 8
    first, end = blocks * thread // threads, blocks * (thread + 1) // threads
    if job[HEAD_ZEROS]:
        products.begin(job[TILES] + 128)
        take_in(job, normed_x, hidden * 4, hidden, count, matrix, buffers)
        shared = blocks - (job[OWN_COUNT] + BLOCK - 1) // BLOCK
        into, low, high = job[LOGITS], min(first, shared), min(end, shared)
        multiply(job, hidden, count, matrix, into, words, low, high, buffers)
        if end > shared:
            into += shared * BLOCK * 4
            low, high = max(first, shared) - shared, end - shared
            multiply(job, hidden, count, place + OWN_HEAD * 8, into, words, low, high, buffers)
            if end == blocks:
                silence(into, words, count, job[OWN_COUNT], words - shared * BLOCK)
    else:
        products.begin(job[TILES] + 64)
        products.words(normed_x, count, hidden, matrix, job[LOGITS], words, first, end, buffers)


@compiled
def go_through(place, thread, threads):
    """One thread's part of the pass that the job at an address describes."""
    job = carray(v.numbers_at(place), JOB)
    rows, hidden, inner = job[ROWS], job[HIDDEN], job[INNER]
    attended = job[HEADS] * job[HEAD_DIM]
    all_heads = attended + 2 * job[KV_HEADS] * job[HEAD_DIM]
    padded, widest = (rows + 15) // 16 * 16, max(hidden, inner, attended)
    # Shared buffers, then those of each thread.
    qkv = job[SHARED]
    heads_out = qkv + padded * all_heads * 4
    out = heads_out + padded * attended * 4
    gates = out + padded * hidden * 4
    x = job[SCRATCH] + thread * job[SCRATCH_BYTES]
    normed_x = x + padded * hidden * 4
    y = normed_x + padded * hidden * 4
    about = y + padded * widest * 2
    own = about + padded * (widest // 32) * 8
    buffers = (y, about, own)
    v.copy_lines(job[INPUT], x, rows * hidden // 16)
    shapes = job[TILES]
    for index in range(job[FIRST], job[LAST]):
        if job[MORE] and index == job[MORE_LAYER]:
            v.add_to(x + job[MORE_ROW] * hidden * 4, job[MORE], job[MORE_COUNT] * hidden // 16)
        here = job[LAYERS] + index * LAYER * 8
        layer = carray(v.numbers_at(here), LAYER)
        normed_rows(job, x, layer[INPUT_NORM], normed_x)
        products.begin(shapes)
        take_in(job, normed_x, hidden * 4, hidden, rows, here + QKV * 8, buffers)
        blocks = all_heads // BLOCK
        first, end = blocks * thread // threads, blocks * (thread + 1) // threads
        multiply(job, hidden, rows, here + QKV * 8, qkv, all_heads, first, end, buffers)
        if layer[QKV_BIAS]:
            biased(qkv, layer[QKV_BIAS], rows, all_heads, first * BLOCK, end * BLOCK)
        meet(threads)
        products.begin(shapes + 64)
        attentions(job, index, layer, qkv, heads_out, own, thread, threads)
        meet(threads)
        products.begin(shapes)
        take_in(job, heads_out, attended * 4, attended, rows, here + OUTPUT * 8, buffers)
        blocks = hidden // BLOCK
        first, end = blocks * thread // threads, blocks * (thread + 1) // threads
        multiply(job, attended, rows, here + OUTPUT * 8, out, hidden, first, end, buffers)
        meet(threads)
        v.add_to(x, out, rows * hidden // 16)
        normed_rows(job, x, layer[POST_NORM], normed_x)
        take_in(job, normed_x, hidden * 4, hidden, rows, here + GATE_UP * 8, buffers)
        both = inner // BLOCK
        low, high = both * thread // threads, both * (thread + 1) // threads
        for at in (0, both):
            multiply(
                job,
                hidden,
                rows,
                here + GATE_UP * 8,
                gates,
                2 * inner,
                at + low,
                at + high,
                buffers,
            )
        for row in range(rows):
            gate = gates + (row * 2 * inner + low * BLOCK) * 4
            v.gate(gate, gate + inner * 4, gate, (high - low) * BLOCK // 16)
        meet(threads)
        take_in(job, gates, inner * 8, inner, rows, here + DOWN * 8, buffers)
        multiply(job, inner, rows, here + DOWN * 8, out, hidden, first, end, buffers)
        meet(threads)
        v.add_to(x, out, rows * hidden // 16)
        keeps = carray(v.numbers_at(job[STATES] + (index + 1) * 8), 1)
        if thread == 0 and keeps[0]:
            v.round_to_bfloat16(x, keeps[0], rows * hidden // 16)
    if thread == 0 and job[FINAL]:
        v.copy_lines(x, job[FINAL], rows * hidden // 16)
    if job[ASKED_COUNT]:
        head(job, place, x, normed_x, thread, threads, buffers)
    products.end()


def bits(value: float) -> int:
    """The 32 bits of a float32."""
    return int(np.float32(value).view(np.int32))
