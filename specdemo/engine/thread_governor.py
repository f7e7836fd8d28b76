"""Number of computing threads: all of torch's, or one while other programs use the cores."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from specdemo.engine.passes import ForwardRequest

RECENT_PASSES = 6  # passes over which the strain is averaged
CROWDED = (
    2.0  # assumed time of one thread, until it is measured: times the fastest pass of all threads
)
MOST_STRAIN = 2 * CROWDED  # limit for a single pass that was interrupted for long
RETRY = 32  # passes alone before all threads are tried again
SOME, NEAR = 8, 256  # rows, and tokens of context, from which on passes differ
FINE = 3  # kinds for each further doubling: thirty concurrent runs must not create a kind for each pass


class ThreadGovernor:
    """Sets the number of torch's threads for the calling thread.

    Threads wait for each other some hundred times in a pass. If one of them has lost its core to
    another program, all others wait each time, and one thread alone is faster. If other programs only use the
    memory, all threads stay faster: so the two are compared.
    """

    def __init__(self) -> None:
        self._fastest: dict[tuple[int, ...], float] = {}
        # Time of recent passes over the fastest of their kind, by whether one thread was alone.
        self._strain = {False: 1.0, True: CROWDED}
        self._passes = 0  # since the number was changed
        self._all = 1

    def observe(self, requests: Sequence[ForwardRequest], seconds: float) -> None:
        """Learn from a pass, and set the number for the next one."""
        import torch

        threads = torch.get_num_threads()
        self._all, alone = max(self._all, threads), threads == 1
        if self._all == 1:
            return
        kind = _kind(requests)
        fastest = self._fastest[kind] = min(seconds, self._fastest.get(kind, seconds))
        self._strain[alone] += (
            min(seconds / fastest, MOST_STRAIN) - self._strain[alone]
        ) / RECENT_PASSES
        self._passes += 1
        worse = self._strain[alone] > self._strain[not alone]
        if not alone and worse:
            self._change(1)
        elif alone and (self._passes >= RETRY or (worse and self._passes >= RECENT_PASSES)):
            # The measurement of all threads is old. Two slow passes end the trial.
            self._strain[False] = (1 + self._strain[True]) / 2
            self._change(self._all)

    def _change(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._passes = 0


def _kind(requests: Sequence[ForwardRequest]) -> tuple[int, ...]:
    """Return the kind of a pass; only passes of one kind are compared."""
    passes = [request.input for request in requests]
    return (
        id(requests[0].decoder),
        passes[0].depth or 0,
        _size((sum(len(rows.token_ids) for rows in passes) - 1) / SOME),
        _size(sum(rows.positions[-1] for rows in passes) / NEAR),
    )


def _size(times: float) -> int:
    """0 below 1, 1 from there on, and so on by ever larger steps."""
    return int(times) if times < FINE else FINE + int(FINE * log2(times / FINE))
