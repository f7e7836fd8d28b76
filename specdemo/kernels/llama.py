"""All layers of a model in one compiled function: 4-bit products, attention, norms, gates, head.

The threads of a team run it in parallel and wait for each other five times a layer. The order of
every sum does not depend on the number of rows. So a row's logits are the same, bit for bit,
alone, in a draft or in a tree, and independent of other conversations in the pass.

Its input is a job, see `job`. Matrices are packed as bitsandbytes packs NF4 for its CPU kernel (`simd.decode`).
Activations are float32; products round them, `matmul_amx` and `matmul_vectors` each in its way.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from specdemo.kernels import matmul_blocks, simd
from specdemo.kernels.attention import UNSEEN, attend_all, norm, products
from specdemo.kernels.llvm import compiled
from specdemo.kernels.packing import BLOCK_OUTPUTS, GROUP_INPUTS
from specdemo.kernels.parts import (
    LAYER_BYTES,
    PART_BYTES,
    block_part_at,
    layer_at,
    sequence_at,
    wait_for_threads,
)

TILES_BYTES = 64  # bytes of the shapes of all tiles
ONE = np.float32(1.0)


@compiled
def share(count, thread, threads):
    """This thread's part of a number of blocks: the first, and the end."""
    return count * thread // threads, count * (thread + 1) // threads


@compiled
def tiles_for(job, rows):
    """Address of the tiles' shapes for products of so many rows."""
    return job.tiles + min(max(rows, 1), 16) * TILES_BYTES


@compiled
def add_bias(into, bias, rows, stride, blocks):
    """Add a bias to some blocks of 32 columns. into: (rows, stride) float32; blocks: the first, and the end"""
    first, end = blocks[0] * BLOCK_OUTPUTS, blocks[1] * BLOCK_OUTPUTS
    for row in range(rows):
        columns = into + (row * stride + first) * 4
        simd.add_to(columns, bias + first * 4, ONE, (end - first) // 16)


@compiled
def group_of(job, matrix):
    """Inputs of a matrix that share a scale."""
    return job.group if matrix.bits == 4 else GROUP_INPUTS


@compiled
def quantize_inputs(job, source, stride, width, rows, matrix, buffers):
    """Prepare the inputs of a matrix of 4 or 8 bits. source: float32 rows `stride` bytes apart"""
    y, about, _ = buffers
    if matrix.parts:
        matmul_blocks.quantize_inputs(source, stride, y, about, rows, width)
        return
    group = group_of(job, matrix)
    products.quantize_inputs(source, stride, y, about, rows, width, group, matrix.zeros != 0)


@compiled
def multiply(job, width, rows, matrix, into, stride, first, end, buffers):
    """Blocks `first` to `end` of 32 outputs of a matrix of 4 or 8 bits, for the inputs prepared last. into: (rows, stride) float32"""
    y, about, own = buffers
    begin = 0
    for number in range(matrix.parts):
        part = block_part_at(matrix.codes + number * PART_BYTES)
        low, high = max(first, begin) - begin, min(end, begin + part.blocks) - begin
        columns = into + begin * BLOCK_OUTPUTS * 4
        if low < high:
            matmul_blocks.product(y, about, rows, width, part, columns, stride, low, high)
        begin += part.blocks
    if matrix.parts:
        return
    group, table = group_of(job, matrix), job.table
    products.product(y, about, rows, width, matrix, table, group, into, stride, first, end, own)


@compiled
def apply(job, source, stride, width, matrix, into, columns, blocks, buffers):
    """Multiply all rows by some blocks of a matrix of a layer.

    source: (rows, stride) float32, of which `width` are inputs; into: (rows, columns) float32
    blocks: of 32 outputs, the first and the end
    """
    quantize_inputs(job, source, stride * 4, width, job.num_rows, matrix, buffers)
    first, end = blocks
    multiply(job, width, job.num_rows, matrix, into, columns, first, end, buffers)


@compiled
def project(job, states, into, blocks, buffers):
    """Project the states of the target that are added to rows. Returns whether there are any.

    states: room for (rows, inputs) float32; into: (rows, hidden) float32; blocks: of 32 outputs, the first and the end
    """
    width, inputs, found = job.hidden, job.project_inputs, False
    epsilon = np.float32(job.project_epsilon)
    for number in range(job.num_sequences):
        sequence = sequence_at(job, number)
        if not sequence.unprojected:
            continue
        found, rows = True, sequence.num_injected
        simd.widen(sequence.unprojected, states, rows * inputs // 16)
        for row in range(rows):
            for at in range(0, inputs, width):
                state = states + (row * inputs + at) * 4
                norm(state, job.project_gain + at * 4, state, width, epsilon)
        products.begin(tiles_for(job, rows))
        quantize_inputs(job, states, inputs * 4, inputs, rows, job.project, buffers)
        place = into + (sequence.first_row + sequence.first_injected) * width * 4
        multiply(job, inputs, rows, job.project, place, width, blocks[0], blocks[1], buffers)
    return found


@compiled
def add_injected(job, x, projected):
    """Add states to the rows of each conversation: its own, or the target's. x, projected: (rows, hidden) float32"""
    width = job.hidden
    for number in range(job.num_sequences):
        sequence = sequence_at(job, number)
        place = (sequence.first_row + sequence.first_injected) * width * 4
        lines = sequence.num_injected * width // 16
        if sequence.unprojected:
            simd.add_to(x + place, projected + place, ONE, lines)
        elif sequence.injected:
            simd.add_to(x + place, sequence.injected, ONE, lines)


@compiled
def normed_rows(job, x, weight, into):
    """The address of the rows after a norm, which is `into`, or of the rows themselves for no norm. x, into: (rows, hidden) float32"""
    if not weight:
        return x
    step, epsilon = job.hidden * 4, np.float32(job.epsilon)
    for row in range(job.num_rows):
        norm(x + row * step, weight, into + row * step, job.hidden, epsilon)
    return into


@compiled
def hand_over(job, layers, x, weight, room):
    """Write the states after some layers, if the job has an address for them.

    x, room: (rows, hidden) float32; weight: of a norm of the states, 0 for none
    """
    wanted = carray(simd.int64s_at(job.states + layers * 8), 1)
    if wanted[0]:
        states, step = normed_rows(job, x, weight, room), job.hidden * 4
        for row in range(job.num_rows):
            place = wanted[0] + row * job.states_bytes
            simd.round_to_bfloat16(states + row * step, place, job.hidden // 16)


@compiled
def add_result(job, x, found, weight, room):
    """Add the output of attention or of the MLP to the states, after its norm, if there is one. All: (rows, hidden) float32"""
    found = normed_rows(job, found, weight, room)
    simd.add_to(x, found, np.float32(job.residual), job.num_rows * job.hidden // 16)


@compiled
def added_columns(job, sequence, normed_x, first, end):
    """Compute the logits of a conversation's added tokens, blocks `first` to `end` of 32 columns.

    Columns behind the last token are excluded from the softmax. normed_x: all rows that need logits, float32
    """
    width, count, stride = job.hidden, sequence.num_added, job.num_columns
    tokens = carray(simd.int64s_at(sequence.added), count)
    for number in range(sequence.num_asked):
        asked = sequence.first_asked + number
        place = job.logits + (asked * stride + job.head_columns) * 4
        columns = carray(simd.float32s_at(place), end * BLOCK_OUTPUTS)
        for column in range(first * BLOCK_OUTPUTS, end * BLOCK_OUTPUTS):
            columns[column] = UNSEEN
            if column < count:
                row = job.head_rows + tokens[column] * width * 2
                columns[column] = simd.dot(normed_x + asked * width * 4, row, width // 16)


@compiled
def apply_head(job, x, normed_x, thread, threads, buffers):
    """Compute the logits of `job.asked`. x, normed_x: (rows, hidden) float32"""
    hidden, stride, count = job.hidden, job.num_columns, job.num_asked
    asked = carray(simd.int64s_at(job.asked), count)
    epsilon = np.float32(job.epsilon)
    for i in range(count):
        norm(x + asked[i] * hidden * 4, job.head_norm, normed_x + i * hidden * 4, hidden, epsilon)
    blocks = job.head_columns // BLOCK_OUTPUTS
    if job.head.bits == 16:
        products.begin(tiles_for(job, 16))
        first, end = share(blocks, thread, threads)
        products.wide_product(
            normed_x, count, hidden, job.head, job.logits, stride, first, end, buffers
        )
        return
    every = blocks
    for number in range(job.num_sequences):
        sequence = sequence_at(job, number)
        if sequence.num_asked:
            every += (sequence.num_added + BLOCK_OUTPUTS - 1) // BLOCK_OUTPUTS
    first, end = share(every, thread, threads)
    products.begin(tiles_for(job, count))
    quantize_inputs(job, normed_x, hidden * 4, hidden, count, job.head, buffers)
    low, high = min(first, blocks), min(end, blocks)
    multiply(job, hidden, count, job.head, job.logits, stride, low, high, buffers)
    begin = blocks
    for number in range(job.num_sequences):
        sequence = sequence_at(job, number)
        if sequence.num_asked:
            added = (sequence.num_added + BLOCK_OUTPUTS - 1) // BLOCK_OUTPUTS
            low, high = max(first, begin) - begin, min(end, begin + added) - begin
            added_columns(job, sequence, normed_x, low, high)
            begin += added


@compiled
def multiply_gates(job, layer, source, gates, thread, threads, buffers):
    """Compute this thread's columns of the gated inputs of `down`. source: (rows, hidden), gates: (rows, 2 * inner), float32"""
    hidden = job.hidden
    rows, inner, stride = job.num_rows, job.inner, 2 * job.inner
    both = inner // BLOCK_OUTPUTS
    low, high = share(both, thread, threads)
    quantize_inputs(job, source, hidden * 4, hidden, rows, layer.gate_up, buffers)
    for at in (low, both + low):
        last = at + high - low
        multiply(job, hidden, rows, layer.gate_up, gates, stride, at, last, buffers)
    for row in range(rows):
        gate = gates + (row * stride + low * BLOCK_OUTPUTS) * 4
        lines = (high - low) * BLOCK_OUTPUTS // 16
        if job.gelu:
            simd.gelu_gate(gate, gate + inner * 4, gate, lines)
        else:
            simd.gate(gate, gate + inner * 4, gate, lines)


@compiled
def run_pass(job, thread, threads):
    """One thread's part of the pass that a job describes."""
    rows, hidden, inner = job.num_rows, job.hidden, job.inner
    attended = job.heads * job.head_dim
    all_heads = attended + 2 * job.kv_heads * job.head_dim
    padded = (rows + 15) // 16 * 16
    widest = max(hidden, inner, attended, job.project_inputs)
    # Buffers of all threads, then those of this one.
    qkv = job.shared
    heads_out = qkv + padded * all_heads * 4
    out = heads_out + padded * attended * 4
    gates = out + padded * hidden * 4
    x = job.scratch + thread * job.scratch_bytes
    normed_x = x + padded * hidden * 4
    y = normed_x + padded * hidden * 4
    about = y + padded * widest * 2
    states = about + padded * (widest // 32) * matmul_blocks.ABOUT
    own = states + padded * job.project_inputs * 4
    buffers = (y, about, own)
    simd.copy_lines(job.input, x, rows * hidden // 16)
    for index in range(job.first_layer, job.last_layer + 1):
        if index == job.inject_layer:
            blocks = share(hidden // BLOCK_OUTPUTS, thread, threads)
            if project(job, states, out, blocks, buffers):
                wait_for_threads(job, threads)
            add_injected(job, x, out)
        if index == job.last_layer:
            break
        if thread == 0:
            hand_over(job, index, x, 0, normed_x)
        layer = layer_at(job.layers + index * LAYER_BYTES)
        source = normed_rows(job, x, layer.input_norm, normed_x)
        products.begin(tiles_for(job, rows))
        blocks = share(all_heads // BLOCK_OUTPUTS, thread, threads)
        apply(job, source, hidden, hidden, layer.qkv, qkv, all_heads, blocks, buffers)
        if layer.qkv_bias:
            add_bias(qkv, layer.qkv_bias, rows, all_heads, blocks)
        wait_for_threads(job, threads)
        products.begin(tiles_for(job, 16))
        attend_all(job, index, layer, qkv, heads_out, own, thread, threads)
        wait_for_threads(job, threads)
        products.begin(tiles_for(job, rows))
        blocks = share(hidden // BLOCK_OUTPUTS, thread, threads)
        apply(job, heads_out, attended, attended, layer.output, out, hidden, blocks, buffers)
        wait_for_threads(job, threads)
        add_result(job, x, out, layer.attended_norm, normed_x)
        source = normed_rows(job, x, layer.post_norm, normed_x)
        multiply_gates(job, layer, source, gates, thread, threads, buffers)
        wait_for_threads(job, threads)
        apply(job, gates, 2 * inner, inner, layer.down, out, hidden, blocks, buffers)
        wait_for_threads(job, threads)
        add_result(job, x, out, layer.gated_norm, normed_x)
    if thread == 0:
        hand_over(job, job.last_layer, x, job.norm, normed_x)
        if job.final:
            simd.copy_lines(x, job.final, rows * hidden // 16)
    if job.num_asked:
        apply_head(job, x, normed_x, thread, threads, buffers)
    products.end()
