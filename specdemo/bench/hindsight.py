"""What choosing among methods could give: the best method at each step, in hindsight. Modelled from steps that were run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean

from specdemo.bench.lanes import PLAIN, LaneResult
from specdemo.trace.events import Verified


class Hindsight:
    """The shortest way through each text by steps that some lane took, a mean over tasks.

    Lanes that wrote the same text began steps at some of its places, and each step took a measured time. The shortest
    way from the first token to the last by such steps is what a choice would reach that knows the answer. It is a
    little too fast: a drafter that is asked late had read the text earlier in the lane whose step is counted.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, task: str, results: Sequence[LaneResult]) -> None:
        """Count one prompt. Lanes whose text differs from plain decoding's are left out."""
        plain = next((result for result in results if result.name == PLAIN), None)
        if plain is None or not plain.ids:
            return
        same = [result for result in results if result.events and result.ids == plain.ids]
        sums = self._seconds[task]
        sums[0] += plain.metrics.elapsed_seconds
        sums[1] += shortest_seconds(same)

    def speedup(self) -> float | None:
        """Over plain decoding; None when nothing was counted."""
        rates = [plain / best for plain, best in self._seconds.values() if best]
        return mean(rates) if rates else None


def shortest_seconds(results: Sequence[LaneResult]) -> float:
    """Seconds of the shortest way through one text by the lanes' steps. results: at least one, of equal `ids`"""
    steps: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for result in results:
        place, since = 0, 0.0
        for event in result.events:
            if isinstance(event, Verified):
                there = place + len(event.path) + (event.next is not None)
                steps[place].append((there, event.elapsed_seconds - since))
                place, since = there, event.elapsed_seconds
    ends = sorted({there for found in steps.values() for there, _ in found})
    least = {0: 0.0}
    for place in [0, *ends]:
        if place in least:
            for there, seconds in steps[place]:
                least[there] = min(least.get(there, float("inf")), least[place] + seconds)
    return least[ends[-1]] if ends else 0.0
