"""Attention of all conversations of a pass: norms and rotary embedding of queries and keys, scores, softmax, values."""

from __future__ import annotations

import numpy as np
from numba import carray

from specdemo.kernels import cpu_features, simd
from specdemo.kernels.llvm import compiled, loose
from specdemo.kernels.parts import sequence_at

products = cpu_features.products()
QUERIES = 16  # queries of one key head per call
TILE_KEYS = 16  # keys whose scores are computed at a time, at most
BLOCK_KEYS = 64  # keys whose values are weighed line by line
UNSEEN = np.float32(-1e30)


@loose
def norm_factor(x, width, epsilon):
    """The factor of an RMS norm (Zhang 1910.07467). x: float32"""
    row = carray(simd.float32s_at(x), width)
    total = np.float32(0.0)
    for i in range(width):
        total += row[i] * row[i]
    return np.float32(1.0) / np.sqrt(total / np.float32(width) + epsilon)


@loose
def scale(x, weight, into, width, factor):
    """x times a factor and each channel's weight; all are float32, `into` may be x."""
    row, gain = carray(simd.float32s_at(x), width), carray(simd.float32s_at(weight), width)
    out = carray(simd.float32s_at(into), width)
    for i in range(width):
        out[i] = row[i] * factor * gain[i]


@compiled
def norm(x, weight, into, width, epsilon):
    """RMS norm of one row; x, weight and into are float32, `into` may be x."""
    scale(x, weight, into, width, norm_factor(x, width, epsilon))


@loose
def rotary(x, cos, sin, into, width):
    """Rotary embedding (RoFormer 2104.09864) of one head; all are float32, sines with their signs."""
    a, out = carray(simd.float32s_at(x), width), carray(simd.float32s_at(into), width)
    c, s = carray(simd.float32s_at(cos), width), carray(simd.float32s_at(sin), width)
    half = width // 2
    for i in range(half):
        out[i] = a[i] * c[i] + a[half + i] * s[i]
        out[half + i] = a[half + i] * c[half + i] + a[i] * s[half + i]


@compiled
def rotated_head(job, layer, weight, x, head, heads, row, into):
    """One head of a row's queries or keys, after its norm, if there is one, and rotary embedding.

    x: float32, all heads of that kind, of which `head` is wanted; into: float32, with room for a second head
    """
    width, epsilon = job.head_dim, np.float32(job.epsilon)
    source = x + head * width * 4
    if weight:
        normed = into + width * 4
        if job.joint_norms:
            factor = norm_factor(x, heads * width, epsilon)
            scale(source, weight + head * width * 4, normed, width, factor)
        else:
            norm(source, weight, normed, width, epsilon)
        source = normed
    turned = 0 if layer.rotary < 0 else job.rotated
    if turned < width:
        simd.copy_lines(source, into, width // 16)
    if turned:
        position = carray(simd.int64s_at(job.positions), job.num_rows)[row]
        angle = (layer.rotary * job.positions_known + position) * turned * 4
        rotary(source, job.cos + angle, job.sin + angle, into, turned)


@compiled
def first_key(window, sequence):
    """A key that no row of a conversation sees one before, because of a window; 0 for no window.

    Scores are computed of TILE_KEYS keys at a time, which must not leave the cache.
    """
    return max(0, sequence.prefix - window) // TILE_KEYS * TILE_KEYS if window else 0


@compiled
def sees(sequence, row, key):
    """Whether a row of a conversation attends to a key. row: its number in the conversation's part of the pass"""
    if not sequence.seen:
        return key <= sequence.start + row
    keys = sequence.num_keys
    return carray(simd.uint8s_at(sequence.seen + row * keys), keys)[key] != 0


@compiled
def apply_mask(scores, sequence, begin, window, first, count, group):
    """Hide from QUERIES queries the keys that they do not see, and those that a window has left behind.

    A row sees the last `window` keys of those that it sees without one, see `engine.attention.forget`.
    scores: (keys, QUERIES) float32, from key `begin` on
    """
    keys, prefix = sequence.num_keys, sequence.prefix
    table = carray(simd.float32s_at(scores), (keys - begin, QUERIES))
    for query in range(count):
        row, room = (first + query) // group, window if window else keys
        for key in range(keys - 1, prefix - 1, -1):
            if room and sees(sequence, row, key):
                room -= 1
            else:
                table[key - begin, query] = UNSEEN
        for key in range(begin, prefix - room):
            table[key - begin, query] = UNSEEN


@compiled
def write_rows(job, layer, caches, sequence, head, qkv, own):
    """Write the keys and values of a conversation's new rows, of one key head. qkv: float32"""
    heads, kv_heads, width = job.heads, job.kv_heads, job.head_dim
    all_heads, row_bytes = heads + 2 * kv_heads, width * 2
    key_rows = caches[0] + head * sequence.capacity * row_bytes
    value_rows = caches[1] + head * sequence.capacity * row_bytes
    for i in range(sequence.num_rows):
        row = sequence.first_row + i
        source = qkv + (row * all_heads + heads) * width * 4
        rotated_head(job, layer, layer.key_norm, source, head, kv_heads, row, own)
        slot = (sequence.start + i) * row_bytes
        simd.round_to_bfloat16(own, key_rows + slot, width // 16)
        values = source + (kv_heads + head) * width * 4
        simd.round_to_bfloat16(values, value_rows + slot, width // 16)


@compiled
def weigh_values(weights, keys, values, stride, into):
    """Sums of 64 columns of values for four queries, see `simd.add_values`; a block of keys stays in the nearest cache."""
    simd.clear(into, 16)
    for key in range(0, keys, BLOCK_KEYS):
        count = min(BLOCK_KEYS, keys - key)
        for line in range(0, 4, simd.LINES):
            part = values + key * stride + line * 32
            simd.add_values(weights + key * 64, count, part, stride, into + line * 64)


@compiled
def attend(job, layer, caches, sequence, head, first, count, qkv, out, own):
    """At most QUERIES queries of one key head of one conversation, whose rows have been written.

    first, count: queries, counted through rows and the heads of a group; qkv, out: float32
    """
    heads, kv_heads, width = job.heads, job.kv_heads, job.head_dim
    group, all_heads = heads // kv_heads, heads + 2 * kv_heads
    begin = first_key(layer.window, sequence)
    keys, row_bytes = sequence.num_keys - begin, width * 2
    key_rows = caches[0] + (head * sequence.capacity + begin) * row_bytes
    value_rows = caches[1] + (head * sequence.capacity + begin) * row_bytes
    spare, queries = own, own + 4096
    scores = queries + width * products.QUERY
    simd.clear(queries, scores - queries >> 6)
    for q in range(count):
        row = sequence.first_row + (first + q) // group
        source, query = qkv + row * all_heads * width * 4, head * group + (first + q) % group
        rotated_head(job, layer, layer.query_norm, source, query, heads, row, spare)
        products.put_query(spare, queries, q, width, count)
    products.scores(queries, count, key_rows, width, keys, scores)
    if layer.window or sequence.prefix < sequence.num_keys:
        apply_mask(scores, sequence, begin, layer.window, first, count, group)
    simd.softmax(scores, keys, np.float32(job.scale))
    sums = carray(simd.float32s_at(scores + keys * 64), QUERIES)
    for q in range(0, count, 4):
        for start in range(0, width, 64):
            part = min(start, width - 64)  # some columns are weighed twice
            weigh_values(scores + q * 4, keys, value_rows + part * 2, row_bytes, spare)
            for i in range(q, min(q + 4, count)):
                row = sequence.first_row + (first + i) // group
                head_out = row * heads + head * group + (first + i) % group
                found = carray(simd.float32s_at(spare + (i - q) * 256), 64)
                into = carray(simd.float32s_at(out + (head_out * width + part) * 4), 64)
                for j in range(64):
                    into[j] = found[j] / sums[i]


@compiled
def attend_all(job, index, layer, qkv, out, own, thread, threads):
    """Attend for this thread's part of all conversations, key heads and groups of QUERIES queries."""
    group = job.heads // job.kv_heads
    units = 0
    for number in range(job.num_sequences):
        rows = sequence_at(job, number).num_rows
        units += job.kv_heads * ((rows * group + QUERIES - 1) // QUERIES)
    begin, end = units * thread // threads, units * (thread + 1) // threads
    unit = 0
    for number in range(job.num_sequences):
        sequence = sequence_at(job, number)
        caches = carray(simd.int64s_at(sequence.caches + index * 16), 2)
        queries = sequence.num_rows * group
        for head in range(job.kv_heads):
            written = False  # by this thread: it waits for no other
            for first in range(0, queries, QUERIES):
                if begin <= unit < end:
                    if not written:
                        write_rows(job, layer, caches, sequence, head, qkv, own)
                        written = True
                    count = min(QUERIES, queries - first)
                    attend(job, layer, caches, sequence, head, first, count, qkv, out, own)
                unit += 1
