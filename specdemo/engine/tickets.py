"""Noise that depends on seed, position and token alone, so that a seed's text is the same whatever drafts.

Drafter-invariant sampling (Daliri, Musco, Suresh 2408.07978): each token has a ticket at each position, a standard
Gumbel number, and the token with the largest log probability + ticket is drawn. It has exactly the distribution that
the probabilities are of. Target and drafter use the same tickets, so both draw the same token wherever their
distributions are alike; the target accepts a drafted token if it is the one that it draws itself.

    probs    a .6   b .3   c .1
    tickets  a -.2  b .9   c .4      log prob + ticket: a -.71, b -.30, c -1.90; b is drawn

The numbers come from a hash (SplitMix64, Steele 2014) on the CPU: the same in every backend and on every machine.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from specdemo.kernels import runtime

GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's step from one number to the next
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_BITS = 53  # of a uniform number
_LARGEST = 1 - 2.0**-_BITS  # uniform number: the one above it has no logarithm of what is left to 1
_SLACK = 1 + 1e-12  # rounding of a quotient and a product


class Tickets:
    """The tickets of one seed."""

    def __init__(self, seed: int) -> None:
        self._key = _mixed(seed)

    def key(self, position: int) -> int:
        """Return the 64 bits that start the sequence of a position's numbers, one for each token id."""
        return _mixed(self._key + position * GOLDEN & _MASK)

    def keys(self, position: int, count: int) -> Tensor:
        """Return `key` of some positions, one after another, for compiled code: (count,) int64 with the same bits."""
        found = np.array([self.key(position + number) for number in range(count)], dtype=np.uint64)
        return torch.from_numpy(found.view(np.int64))

    def winner(self, probs: Tensor, position: int, word_ids: Tensor | None = None) -> int:
        """Return the column that is drawn at a position: the largest log probability + ticket.

        probs: (W,) float32 on the CPU, whose sum does not matter; word_ids: (W,) int64, the token of each column; None for all tokens

        A ticket is -log(-log(1 - uniform)), so the largest sum is the smallest -log(1 - uniform) / probability. That
        quotient is at least uniform / probability, so few tokens need a logarithm. Compiled code does the same in a fraction
        of the time, if it is loaded.
        """
        if (found := runtime.winner(probs, self.key(position), word_ids)) is not None:
            return found
        row = probs.numpy()
        columns = np.flatnonzero(row)
        if not len(columns):  # nothing is left of a distribution
            return 0
        chances = row[columns].astype(np.float64)
        uniforms = self._uniforms(
            position, columns if word_ids is None else word_ids.numpy()[columns]
        )
        first = int(chances.argmax())
        best = -math.log1p(-float(uniforms[first])) / float(chances[first])
        near = np.flatnonzero(uniforms <= best * _SLACK * chances)
        if not len(near):  # probabilities that are not numbers
            return int(columns[first])
        waits = -np.log1p(-uniforms[near]) / chances[near]
        return int(columns[near[waits.argmin()]])

    def ticket(self, position: int, token_id: int) -> float:
        uniform = float(self._uniforms(position, np.array([token_id]))[0])
        return -math.log(-math.log1p(-uniform))

    def _uniforms(self, position: int, token_ids: np.ndarray) -> np.ndarray:
        """Return uniform numbers between 0 and 1, without both, for token ids, (N,) int64. returns: (N,) float64"""
        numbers = token_ids.astype(np.uint64)
        numbers += np.uint64(1)
        numbers *= np.uint64(GOLDEN)
        numbers += np.uint64(self.key(position))
        numbers ^= numbers >> np.uint64(30)
        numbers *= np.uint64(FIRST_FACTOR)
        numbers ^= numbers >> np.uint64(27)
        numbers *= np.uint64(SECOND_FACTOR)
        numbers ^= numbers >> np.uint64(31)
        uniforms: np.ndarray = (numbers >> np.uint64(64 - _BITS)).astype(np.float64)
        uniforms += 0.5
        uniforms *= 2.0**-_BITS
        np.minimum(uniforms, _LARGEST, out=uniforms)
        return uniforms


def _mixed(number: int) -> int:
    """Return the output of SplitMix64 after a state: 64 bits that differ wherever the states do."""
    number = number + GOLDEN & _MASK
    number = (number ^ number >> 30) * FIRST_FACTOR & _MASK
    number = (number ^ number >> 27) * SECOND_FACTOR & _MASK
    return number ^ number >> 31
