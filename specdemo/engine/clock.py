"""Laps of a step: where its time went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepClock:
    """Seconds of one step by stage.

    A lap never spans an event, so a slow viewer cannot change a number. It spans the wait for the target,
    and whoever shares the pass.
    """

    def __init__(self) -> None:
        self.laps: dict[str, float] = {"draft": 0.0, "verify": 0.0, "total": 0.0}

    @contextmanager
    def lap(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.laps[stage] += time.perf_counter() - started

    @property
    def overhead(self) -> float:
        """Seconds of the step outside drafting and verifying."""
        return self.laps["total"] - self.laps["draft"] - self.laps["verify"]
