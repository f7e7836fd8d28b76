"""The function of each thread of a team: a pass through the layers, and the drafts after it.

Softmax, the choice of a token, the policy's rule and the next token's row take microseconds here. Python would
take longer for them than the pass, because its code has left the processor's caches after each pass.
"""

from __future__ import annotations

import numpy as np
from numba import carray, cfunc

from specdemo.kernels import simd
from specdemo.kernels.cache import kept
from specdemo.kernels.llama import run_pass
from specdemo.kernels.llvm import compiled
from specdemo.kernels.parts import (
    SECONDS_OFFSET,
    TOKEN_BYTES,
    draft_at,
    job_at,
    part_of,
    sequence_at,
    token_at,
    wait_for_threads,
    write_time,
)
from specdemo.kernels.plan import TENTHS
from specdemo.kernels.rows import drawn, likeliest, noise, shape_row, token_of, winner

DRAFT_ENDS = -1


@compiled
def choose(draft, probs):
    """Decide on a draft's next token. Returns its column."""
    if draft.coupled:
        key = noise(np.uint64(draft.noise), draft.position)
        return winner(probs, key, draft.word_ids)
    if draft.uniforms:
        return drawn(probs, carray(simd.float64s_at(draft.uniforms), draft.most)[draft.taken])
    return likeliest(probs)


@compiled
def penalise_next(draft, column):
    """Add a drafted token to those that are in the text."""
    marked = carray(simd.int64s_at(draft.penalised), draft.num_penalised + 1)
    for number in range(draft.num_penalised):
        if marked[number] == column:
            return
    marked[draft.num_penalised] = column
    draft.num_penalised += 1


@compiled
def next_token(draft, row, number):
    """Choose or draw a draft's next token. Returns its id, or DRAFT_ENDS when nothing is drafted after it.

    row: address of its logits, which become probabilities; number: of that row among all that were written
    """
    columns, taken = draft.num_columns, draft.taken
    shape_row(
        row, columns, draft.penalty, draft.penalised, draft.num_penalised,
        draft.inverse_temperature, draft.top_k, draft.top_p,
    )  # fmt: skip
    probs = carray(simd.float32s_at(row), columns)
    column = choose(draft, probs)
    if draft.penalty != 1:
        penalise_next(draft, column)
    confidence = np.float64(probs[column])
    address = draft.tokens + taken * TOKEN_BYTES
    token = token_at(address)
    token.column, token.row, token.confidence = column, number, confidence
    write_time(address + SECONDS_OFFSET)
    draft.taken = taken + 1
    middle = min(max(confidence * TENTHS - 0.5, 0.0), TENTHS - 1.0)
    low = min(int(middle), TENTHS - 2)
    rule = carray(simd.float64s_at(draft.rule), TENTHS + 1 + draft.most)
    survival = draft.survival
    survival *= rule[low] * (low + 1 - middle) + rule[low + 1] * (middle - low)
    draft.survival = survival
    ends = taken + 1 == draft.most or confidence < rule[TENTHS]
    if ends or not survival > rule[TENTHS + 1 + taken]:
        return DRAFT_ENDS
    return token_of(draft.word_ids, column)


@compiled
def put_row(job, row, token_id, position, state):
    """Make a token a row of the job's next pass. state: address of the normed state that it was drafted from"""
    hidden = job.hidden
    x = job.input + row * hidden * 4
    simd.widen(job.embedding + token_id * hidden * 2, x, hidden // 16)
    if job.feedback:
        fed = carray(simd.float32s_at(x), hidden)
        gain = carray(simd.float32s_at(job.feedback), hidden)
        normed = carray(simd.float32s_at(state), hidden)
        for i in range(hidden):
            fed[i] += gain[i] * normed[i]
    carray(simd.int64s_at(job.positions), row + 1)[row] = position
    carray(simd.int64s_at(job.asked), row + 1)[row] = row


@compiled
def next_pass(job, written):
    """Give each draft its next token, and make the job the pass that reads them.

    written: rows of logits before those of the last pass. Returns the rows of the next pass, 0 when all drafts ended.
    """
    rows, width = 0, job.hidden * 4
    # This thread's normed states of the rows with logits, see `llama.run_pass`.
    normed = job.scratch + (job.num_rows + 15) // 16 * 16 * width
    for number in range(job.num_sequences):
        sequence = sequence_at(job, number)
        token_id, asked = DRAFT_ENDS, sequence.first_asked + sequence.num_asked - 1
        draft = draft_at(sequence.draft)
        if sequence.draft and sequence.num_asked:
            row = job.logits + asked * job.num_columns * 4
            token_id = next_token(draft, row, written + asked)
        sequence.start += sequence.num_rows
        sequence.injected = sequence.unprojected = 0
        if token_id == DRAFT_ENDS:
            sequence.num_rows, sequence.num_asked = 0, 0
            continue
        put_row(job, rows, token_id, draft.position, normed + asked * width)
        draft.position += 1
        sequence.first_row, sequence.num_rows = rows, 1
        sequence.first_asked, sequence.num_asked = rows, 1
        sequence.num_keys = sequence.start + 1
        sequence.prefix, sequence.seen = sequence.num_keys, 0
        rows += 1
    job.logits += job.num_asked * job.num_columns * 4
    job.num_rows, job.num_asked, job.final = rows, rows, 0
    states = carray(simd.int64s_at(job.states), job.last_layer + 1)
    for index in range(len(states)):
        states[index] = 0
    return rows


@kept(cfunc, "void(intp)")
def run_in_team(address):
    """Run one thread's part of a job: a pass, and the drafts after it. address: the argument of `part_of`"""
    place, thread, threads = part_of(address)
    job = job_at(place)
    run_pass(job, thread, threads)
    written = 0
    while job.drafts:
        wait_for_threads(job, threads)
        if thread == 0:
            asked = job.num_asked
            job.drafts = next_pass(job, written)
            written += asked
        wait_for_threads(job, threads)
        if job.drafts:
            run_pass(job, thread, threads)
