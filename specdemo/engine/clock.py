"""The clock of a step: what its own work took, what its passes took, and how long it waited for other runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from specdemo.engine.forward import Requesting

Result = TypeVar("Result")


class Lap:
    """Seconds of work that may ask for passes.

    seconds: its own computing and its passes
    share: the same with each pass divided by the runs that shared it: all together take so much for each run
    waited: until its passes began, and after their end until it went on
    runs: that shared the last pass
    """

    __slots__ = ("runs", "seconds", "share", "waited")

    def __init__(self) -> None:
        self.seconds = self.share = self.waited = 0.0
        self.runs = 1

    def of(self, work: Requesting[Result]) -> Requesting[Result]:
        """Do the work, and add what it takes."""
        begun = time.perf_counter()
        try:
            while True:
                request = next(work)
                asked = time.perf_counter()
                yield request
                going_on, sharing = time.perf_counter(), request.sharing
                self.seconds += asked - begun + sharing.seconds
                self.share += asked - begun + sharing.seconds / sharing.runs
                self.waited += going_on - asked - sharing.seconds
                self.runs = sharing.runs
                begun = going_on
        except StopIteration as end:
            own = time.perf_counter() - begun
            self.seconds += own
            self.share += own
            return end.value  # type: ignore[no-any-return]
        finally:
            work.close()


class StepClock:
    """Where a step's time goes. No lap spans an event, so a slow viewer cannot change a number.

    draft, verify: the laps of both stages
    total: seconds of the step, in which it may have waited for other runs
    """

    def __init__(self) -> None:
        self.draft, self.verify = Lap(), Lap()
        self.total = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time of a block to the total."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.total += time.perf_counter() - begun

    @property
    def until_judged(self) -> float:
        """Seconds of verifying, and of waiting for runs that draft or share a pass."""
        return self.verify.seconds + self.verify.waited + self.draft.waited

    @property
    def overhead(self) -> float:
        """Seconds of the step outside drafting, verifying and waiting."""
        return self.total - self.draft.seconds - self.until_judged
