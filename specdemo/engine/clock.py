"""The times of a run's stages: their own work, their passes, and the wait for other runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self


class Cancelled(BaseException):
    """The run was cancelled, or its viewer has left; raised where it would request its next pass."""


def never() -> bool:
    """Report that nothing was cancelled."""
    return False


@dataclass(frozen=True, slots=True)
class Sharing:
    """The runs that shared a pass.

    runs, rows: their number and the sum of their rows; rows is 0 if unknown
    seconds: duration of the pass
    """

    runs: int = 1
    rows: int = 0
    seconds: float = 0.0


ALONE = Sharing()


class Stopwatch:
    """Measures a block of code that may request passes; blocks may be nested, and no block contains a `yield`.

        with Stopwatch() as watch:
            logits = reader.logits_after(text)
        costs.observe_draft(watch.fair_seconds, watch.runs)

    total: seconds from the start of the block to its end
    waited: the part of them in which other runs had their turn
    saved: seconds of shared passes that count for the other runs
    runs: number of runs that shared the last pass
    cancelled: checked at the start and before each pass; if it returns true, `Cancelled` is raised
    drafting, alone: apply to the passes of the block, see `ForwardRequest`

    A block within another one has the other's terms too. Of `cancelled`, only its own is checked if it has one.
    """

    __slots__ = ("_outer", "_started", "alone", "cancelled", "drafting", "runs", "saved", "total", "waited")  # fmt: skip

    def __init__(
        self,
        cancelled: Callable[[], bool] = never,
        *,
        drafting: bool = False,
        alone: bool = False,
    ) -> None:
        self.cancelled, self.drafting, self.alone = cancelled, drafting, alone
        self.total = self.waited = self.saved = 0.0
        self.runs = 1

    def __enter__(self) -> Self:
        if self.cancelled():
            raise Cancelled
        self._outer = outer = _current.get()
        if outer is not None:
            self.drafting |= outer.drafting
            self.alone |= outer.alone
            if self.cancelled is never:
                self.cancelled = outer.cancelled
        _current.set(self)
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_error: object) -> None:
        self.total += time.perf_counter() - self._started
        _current.set(self._outer)

    def count(self, sharing: Sharing, seconds: float) -> None:
        """Count a pass here and in the blocks around it. seconds: from the request until the run continued"""
        self.waited += seconds - sharing.seconds
        self.saved += sharing.seconds * (1 - 1 / sharing.runs)
        self.runs = sharing.runs
        if self._outer is not None:
            self._outer.count(sharing, seconds)

    @property
    def seconds(self) -> float:
        """Seconds of the block's own work and of its passes."""
        return self.total - self.waited

    @property
    def fair_seconds(self) -> float:
        """The same with each pass divided by the number of runs that shared it."""
        return self.seconds - self.saved


_current: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)


def running() -> Stopwatch | None:
    """Return the innermost stopwatch of the running code; each thread and each run has its own."""
    return _current.get()
