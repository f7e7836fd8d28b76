"""Rows in compiled code: embeddings, logits that are shaped to probabilities, and draws from them. Python finds them through `runtime.loaded`."""

from __future__ import annotations

import math

import numpy as np
from numba import carray, cfunc

from specdemo.kernels import simd
from specdemo.kernels.cache import kept
from specdemo.kernels.llvm import compiled

# SplitMix64, see `engine.sampling`
STEP, FIRST_FACTOR, SECOND_FACTOR = map(
    np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
LARGEST = 1 - 2.0**-53  # uniform number
BLOCK = 64  # number of columns to skip at a time
SMALLEST, CLOSE = 1e-12, 1 + 1e-7  # limits of a probability, and of the quotient of two
WHOLE_HALVINGS = 4  # halvings over a whole row, after which few columns are left


@kept(cfunc, "void(intp, intp, int64, int64, intp)")
def look_up_at(table, token_ids, rows, hidden, into):
    """Widen the rows of some tokens, for Python.

    table: address of (V, hidden) bfloat16; token_ids: of `rows` int64; into: of (rows, hidden) float32
    """
    ids = carray(simd.int64s_at(token_ids), rows)
    for row in range(rows):
        simd.widen(table + ids[row] * hidden * 2, into + row * hidden * 4, hidden // 16)


@compiled
def softmax_in_place(row, columns, inverse_temperature):
    """row: address of `columns` float32 logits, which become probabilities"""
    simd.exponentials(row, columns // 16, np.float32(inverse_temperature))
    probs = carray(simd.float32s_at(row), columns)
    total = simd.sum_from(row, columns // 16, np.float32(0.0))
    for column in range(columns):
        probs[column] = probs[column] / total


@compiled
def penalise(row, columns, penalty, penalised, count):
    """Make the columns of tokens that are in the text less likely.

    row: address of `columns` float32 logits; penalised: of `count` int64; those without a column are left out
    """
    marked = carray(simd.int64s_at(penalised), count)
    logits = simd.float32s_at(row)
    factor = np.float32(penalty)
    for number in range(count):
        if marked[number] >= columns:
            continue
        logit = carray(logits, marked[number] + 1)
        value = logit[marked[number]]
        logit[marked[number]] = value / factor if value > 0 else value * factor


@compiled
def count_from(row, columns, least):
    """Number of values that are not below `least`. row: address of `columns` float32"""
    values = carray(simd.float32s_at(row), columns)
    count = 0
    for column in range(columns):
        count += values[column] >= least
    return count


@compiled
def lines_from(row, lines, least, into):
    """Copy the lines in which a value reaches `least`. row, into: addresses of `lines` times 16 float32. Returns their number"""
    count = 0
    for line in range(lines):
        if simd.sum_from(row + line * 64, 1, least) > 0:
            simd.copy_lines(row + line * 64, into + count * 64, 1)
            count += 1
    return count


@compiled
def keep_most_likely(row, columns, top_k, top_p):
    """Keep the `top_k` most likely tokens, or if it is 0 those that together reach `top_p`. Tokens as likely as the last stay too.

    row: address of `columns` probabilities

    The least that stays is found by halving the distance, which takes a few microseconds; sorting takes milliseconds.
    """
    lines = columns // 16
    searched, left = row, lines  # what may stay
    likely = np.empty(columns + 16, dtype=np.float32)
    least, above = SMALLEST, 2.0  # enough stays from the one on, too little from the other on
    halvings = 0
    while above > least * CLOSE:
        if halvings == WHOLE_HALVINGS:
            searched = (likely.ctypes.data + 63) // 64 * 64
            left = lines_from(row, lines, np.float32(least), searched)
        halvings += 1
        middle = math.sqrt(least * above)
        floor = np.float32(middle)
        if top_k:
            enough = count_from(searched, left * 16, floor) >= top_k
        else:
            enough = simd.sum_from(searched, left, floor) >= top_p
        if enough:
            least = middle
        else:
            above = middle
    floor = np.float32(least)
    total = simd.sum_from(searched, left, floor)
    likely[0] = total  # its memory must live until here
    probs = carray(simd.float32s_at(row), columns)
    for column in range(columns):
        probs[column] = probs[column] / total if probs[column] >= floor else np.float32(0.0)


@compiled
def shape_row(row, columns, penalty, penalised, count, inverse_temperature, top_k, top_p):
    """Turn logits into the probabilities that a token is drawn from, in the order of `sampling.Shaper`.

    row: address of `columns` float32; penalised: of `count` int64, the columns of tokens in the text; top_k 0 and top_p 1 are off
    """
    if penalty != 1:
        penalise(row, columns, penalty, penalised, count)
    softmax_in_place(row, columns, inverse_temperature)
    if top_k:
        keep_most_likely(row, columns, top_k, 1.0)
    if top_p < 1:
        keep_most_likely(row, columns, 0, top_p)


@kept(cfunc, "void(intp, int64, float64, intp, int64, float64, int64, float64)")
def shape_row_at(row, columns, penalty, penalised, count, inverse_temperature, top_k, top_p):
    """The same for Python."""
    shape_row(row, columns, penalty, penalised, count, inverse_temperature, top_k, top_p)


@compiled
def sum_of(row, columns):
    """Sum of the positive numbers of a row. row: address of `columns` float32"""
    values = carray(simd.float32s_at(row), columns)
    found = np.float64(simd.sum_from(row, columns // 16, np.float32(0.0)))
    for column in range(columns // 16 * 16, columns):
        found += max(np.float64(values[column]), 0.0)
    return found


@compiled
def drawn(probs, number):
    """The column that a number falls on, from 0 to the sum of all: the first up to which the columns sum to more."""
    so_far = 0.0
    for first in range(0, len(probs), BLOCK):
        end = min(first + BLOCK, len(probs))
        above = so_far + sum_of(probs.ctypes.data + 4 * first, end - first)
        if not above > number:
            so_far = above
            continue
        for column in range(first, end):
            if probs[column] > 0:
                so_far += np.float64(probs[column])
                if so_far > number:
                    return column
    column = len(probs) - 1  # by rounding
    while column and not probs[column] > 0:
        column -= 1
    return column


@kept(cfunc, "int64(intp, int64, float64)")
def drawn_at(probs, columns, uniform):
    """The same for Python. probs: address of `columns` float32; uniform: from 0 to 1, times the sum of all"""
    return drawn(carray(simd.float32s_at(probs), columns), uniform * sum_of(probs, columns))


@compiled
def likeliest(probs):
    """The column of the largest, the first of equals."""
    best = 0
    for column in range(1, len(probs)):
        if probs[column] > probs[best]:
            best = column
    return best


@compiled
def noise(key, token_id):
    """The 64 bits of a token in the sequence of a position, see `engine.sampling`."""
    number = key + (np.uint64(token_id) + np.uint64(1)) * STEP
    number = (number ^ (number >> np.uint64(30))) * FIRST_FACTOR
    number = (number ^ (number >> np.uint64(27))) * SECOND_FACTOR
    return number ^ (number >> np.uint64(31))


@compiled
def token_of(word_ids, column):
    """The token of a column. word_ids: address of int64; 0 where columns are tokens"""
    return carray(simd.int64s_at(word_ids), column + 1)[column] if word_ids else column


@compiled
def may_win(probs, key, word_ids, first, end, bound):
    """Whether a column from `first` to before `end` may have a quotient below `bound` x 2^-31, by the first 31 bits of its noise.

    No branch and no conversion of 64 bits, so several columns are computed at a time.
    """
    found = 0
    for column in range(first, end):
        found += (
            np.float32(np.int32(noise(key, token_of(word_ids, column)) >> np.uint64(33)))
            <= bound * probs[column]
        )
    return found > 0


@compiled
def winner(probs, key, word_ids):
    """The column that is drawn with a position's noise, see `engine.sampling`. word_ids: see `token_of`"""
    best, least = 0, np.inf
    for first in range(0, len(probs), BLOCK):
        end = min(first + BLOCK, len(probs))
        if sum_of(probs.ctypes.data + 4 * first, end - first) == 0:
            continue
        bound = np.float32(least * 2.0**31 * (1 + 1e-6))
        if first and not may_win(probs, key, word_ids, first, end, bound):
            continue
        for column in range(first, end):
            prob = np.float64(probs[column])
            if not prob > 0:
                continue
            number = np.int64(noise(key, token_of(word_ids, column)) >> np.uint64(11))
            uniform = min((np.float64(number) + 0.5) * 2.0**-53, LARGEST)
            if uniform > least * CLOSE * prob:
                continue  # its quotient is larger still
            wait = -math.log1p(-uniform) / prob
            if wait < least:
                best, least = column, wait
    return best


@kept(cfunc, "int64(intp, int64, uint64, intp)")
def winner_at(probs, columns, key, word_ids):
    """The same for Python. probs: address of `columns` float32; word_ids: see `token_of`"""
    return winner(carray(simd.float32s_at(probs), columns), key, word_ids)


@kept(cfunc, "float64(intp, int64, float64, intp, intp, int64, intp)")
def residual_at(left, columns, scale, drawn_from, word_ids, words, into):
    """Write max(scale * left - drawn_from, 0) over its sum, for Python. Returns the sum, 0 if nothing is left.

    left, into: addresses of `columns` float32; drawn_from, word_ids: of `words` float32, and int64 or 0, see `token_of`
    """
    found = carray(simd.float32s_at(into), columns)
    had = carray(simd.float32s_at(left), columns)
    taken = carray(simd.float32s_at(drawn_from), words)
    factor = np.float32(scale)
    for column in range(columns):
        found[column] = factor * had[column]
    for word in range(words):
        column = token_of(word_ids, word)
        found[column] = max(found[column] - taken[word], np.float32(0.0))
    mass = sum_of(into, columns)
    if mass > 0:
        factor = np.float32(1 / mass)
        for column in range(columns):
            found[column] *= factor
    return mass
