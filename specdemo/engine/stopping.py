"""The stopping rule: does one more draft token pay?

A run repeats steps of random length. Its tokens per second are the expected tokens of a step over its expected
seconds (renewal-reward theorem), so one more draft token, or a group of them, makes the run faster exactly if

    gain > rate * seconds

    gain     expected accepted tokens that it adds: for one token, the chance that it and all before it are accepted
    seconds  duration that it adds to the step: drafting, and its row of the target's pass
    rate     tokens per second that are reached without it

Everything that decides on the length of a draft uses these functions: `drafters.policies.rule` applies them to the
costs of a run, `models.outlook` to the costs of a pair, and `survival_floors` prepares them for the compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def pays(gain: float, seconds: float, rate: float) -> bool:
    """Return whether an addition to a draft makes the run faster; see above."""
    return gain > rate * seconds


def best_count(survivals: Sequence[float], seconds: Sequence[float], rate: float) -> int:
    """Return how many tokens of a known chain to add so that gain - rate * seconds is largest; 0 if none pays.

    survivals: (N,) chance that each token and all before it are accepted
    seconds: (N,) duration that the first 1 to N tokens add together

    The whole chain is known before it is checked, so an expensive row may be paid by those after it.
    """
    best, count = 0.0, 0
    for number, (gain, added) in enumerate(zip(accumulate(survivals), seconds, strict=True), 1):
        net = gain - rate * added
        if net > best:
            best, count = net, number
    return count


def survival_floors(seconds: np.ndarray, chance: float, rate: float) -> list[float]:
    """Return the survival above which a draft of 1 to N tokens continues: N numbers.

    seconds: (N, K) float64, duration that 1 to K more tokens add to a step of n tokens
    chance: that each of them is accepted once all before it are

    A pass costs more by groups of several rows, so each floor is that of the cheapest group of 1 to K tokens.
    """
    import numpy as np

    gains = np.cumsum(chance ** np.arange(1, seconds.shape[1] + 1))
    floors: list[float] = (rate * seconds / gains).min(axis=1).tolist()
    return floors


def best_rate(
    chances: Sequence[float], seconds: Callable[[int], float], lengths: Sequence[int]
) -> float:
    """Return the tokens per second of the best of some chain lengths.

    chances: by position, chance that a token is accepted once all before it are
    seconds(n): duration of a step with n draft tokens
    """
    survivals = list(accumulate(chances, mul))
    return max(float(1 + sum(survivals[:length])) / seconds(length) for length in lengths)
