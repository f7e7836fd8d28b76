"""What each thread of a team runs: a pass through the layers, and the draft that goes on from it.

Between two tokens of a draft lie softmax, choice or draw, the policy's rule and the next token's row: too little to go
back to Python for, which is cold after every pass.
"""

from __future__ import annotations

import numpy as np
from numba import carray, cfunc, types

from specdemo.engine.draft_plan import TENTHS
from specdemo.kernels import llama as c
from specdemo.kernels import simd as v
from specdemo.kernels.jit import compiled, kept

PARTS = "14073f38f39cb9f1"  # of the files that it is compiled from: numba looks only at this one to see whether what it keeps is old

clock = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
thread_number = types.ExternalFunction("omp_get_thread_num", types.int32())
thread_count = types.ExternalFunction("omp_get_num_threads", types.int32())


@compiled
def shaped(row, words, heat):
    """Softmax of one row in its place, of logits times `heat`."""
    v.exponentials(row, words // 16, heat)
    probs = carray(v.floats_at(row), words)
    total = v.added_up(row, words // 16)
    for word in range(words):
        probs[word] = probs[word] / total


@compiled
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


@compiled
def likeliest(probs):
    """The column of the largest, the first of equals."""
    best = 0
    for word in range(1, len(probs)):
        if probs[word] > probs[best]:
            best = word
    return best


@compiled
def add_token(job, number, survival):
    """Choose or draw a draft's next token from the logits that the pass has left, and make the job the pass that reads it.

    returns: the draft's survival so far, as `guide.Rule` has it; the job's MOST is 0 when the draft ends here
    """
    words, width, hidden = job[c.WORDS], job[c.HEAD_DIM], job[c.HIDDEN]
    row = job[c.LOGITS]
    shaped(row, words, v.from_bits(np.int32(job[c.HEAT])))
    probs = carray(v.floats_at(row), words)
    if job[c.UNIFORMS]:
        column = drawn_at(probs, carray(v.doubles_at(job[c.UNIFORMS]), job[c.MOST])[number])
    else:
        column = likeliest(probs)
    sure = np.float64(probs[column])
    place = job[c.DRAFTED] + number * c.TOKEN * 8
    token = carray(v.numbers_at(place), c.TOKEN)
    token[c.COLUMN], token[c.SURE] = column, v.to_bits(probs[column])
    clock(np.int32(1), place + c.SECONDS * 8)
    middle = min(max(sure * TENTHS - 0.5, 0.0), TENTHS - 1.0)
    low = min(int(middle), TENTHS - 2)
    rule = carray(v.doubles_at(job[c.RULE]), TENTHS + 1 + job[c.MOST])
    survival *= rule[low] * (low + 1 - middle) + rule[low + 1] * (middle - low)
    if number + 1 == job[c.MOST] or sure < rule[TENTHS] or not survival > rule[TENTHS + 1 + number]:
        job[c.MOST] = 0
        return survival
    word_id = carray(v.numbers_at(job[c.WORD_IDS]), words)[column]
    embedded = carray(v.halves_at(job[c.EMBEDDING] + word_id * hidden * 2), hidden)
    x = carray(v.words_at(job[c.INPUT]), hidden)
    for i in range(hidden):
        x[i] = np.int32(embedded[i]) << np.int32(16)
    job[c.COS] += job[c.ROWS] * width * 4
    job[c.SIN] += job[c.ROWS] * width * 4
    job[c.LOGITS] += words * 4
    job[c.ROWS], job[c.FIRST], job[c.MORE], job[c.TILES] = 1, 0, 0, job[c.ONE_ROW]
    carray(v.numbers_at(job[c.ASKED]), 1)[0] = 0
    talk = carray(v.numbers_at(job[c.TALKS]), c.TALK)
    talk[c.START] += talk[c.COUNT]
    talk[c.COUNT], talk[c.KEYS], talk[c.PREFIX], talk[c.SEEN] = (
        1,
        talk[c.START] + 1,
        talk[c.START] + 1,
        0,
    )
    return survival


@compiled
def work(place, thread, threads):
    """One thread's part of a job: a pass, and the draft that goes on from it."""
    job = carray(v.numbers_at(place), c.JOB)
    c.go_through(place, thread, threads)
    survival, number = 1.0, 0
    while job[c.MOST]:
        c.meet(threads)
        if thread == 0:
            survival = add_token(job, number, survival)
        c.meet(threads)
        number += 1
        if job[c.MOST]:
            c.go_through(place, thread, threads)


@kept(cfunc, types.void(types.intp), nopython=True)
def in_team(place):
    """What each thread of a team runs; called without one it is a team of one."""
    work(place, thread_number(), thread_count())
