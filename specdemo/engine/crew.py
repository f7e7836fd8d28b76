"""How many threads compute: all that torch has, or one while others want the cores."""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.engine.ask import Ask

RECENT = 6  # passes over which the strain is averaged
CROWDED = 2.0  # times as long as without others: longer than one thread alone takes
RETRY = 32  # passes alone before all threads are tried again
SOME, NEAR = 8, 256  # rows, and tokens of context, within which passes are compared


class Crew:
    """The number of torch's threads for the thread that asks.

    Threads wait for each other some hundred times in a pass. One that has lost its core to a browser or
    another program keeps all others waiting each time, and then one alone is faster.
    """

    def __init__(self) -> None:
        self._fastest: dict[tuple[int, ...], float] = {}
        self._strain = 1.0  # time of recent passes over the fastest of their kind
        self._alone = 0  # passes until all are tried again
        self._all = 1

    def tell(self, asks: Sequence[Ask], seconds: float) -> None:
        """Learn from a pass, and set the number for the next one."""
        import torch

        if self._alone:
            self._alone -= 1
            if not self._alone:
                torch.set_num_threads(self._all)
            return
        if torch.get_num_threads() == 1:
            return
        kind = _kind(asks)
        fastest = self._fastest[kind] = min(seconds, self._fastest.get(kind, seconds))
        # One pass that was held up for long says no more than one that was held up.
        self._strain += (min(seconds / fastest, 2 * CROWDED) - self._strain) / RECENT
        if self._strain > CROWDED:
            # When all are tried again, a quick pass brings the strain below the mark, and a slow one ends the trial.
            self._alone, self._strain, self._all = RETRY, CROWDED, torch.get_num_threads()
            torch.set_num_threads(1)


def _kind(asks: Sequence[Ask]) -> tuple[int, ...]:
    """What makes passes comparable."""
    passes = [ask.one for ask in asks]
    return (
        id(asks[0].decoder),
        passes[0].depth or 0,
        (sum(len(one.token_ids) for one in passes) - 1) // SOME,
        sum(one.positions[-1] // NEAR for one in passes),
    )
