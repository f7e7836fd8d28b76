"""Progress of long work, as values that any view can show."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.3
QUIET_SECONDS = 10.0  # between two lines of a stage that changes continuously
CONTINUOUS = ("download", "check", "convert", "quantise", "train")


@dataclass(frozen=True, slots=True)
class Progress:
    """One report.

    stage: download, check, convert, load, quantise or warm up; done: 0 to 1, None when unknown
    seconds_left: of the stage at the speed so far, None when unknown
    """

    stage: str
    done: float | None = None
    detail: str = ""
    seconds_left: float | None = None

    @property
    def about(self) -> str:
        """The detail and the remaining time."""
        left = "" if self.seconds_left is None else f"{duration(self.seconds_left)} left"
        return ", ".join(filter(None, (self.detail, left)))


ProgressCallback = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


def megabytes(count: float) -> str:
    """Format a number of bytes: 98 MB, 5.9 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """Format a time: 12 s, 3 min."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


class ProgressLines:
    """Writes a line for each new stage or detail; a stage of CONTINUOUS has one every QUIET_SECONDS."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._last = Progress("")
        self._written = -QUIET_SECONDS

    def __call__(self, progress: Progress) -> None:
        late = time.monotonic() - self._written >= QUIET_SECONDS
        detail = progress.detail if progress.stage not in CONTINUOUS else ""
        if late or (progress.stage, detail) != (self._last.stage, self._last.detail):
            done = "" if progress.done is None else f"{progress.done:.0%}"
            self._write(" ".join(filter(None, (progress.stage, done, progress.about))))
            self._last, self._written = Progress(progress.stage, None, detail), time.monotonic()


class Pace:
    """Reports finished bytes, and the time for the rest at the same speed."""

    def __init__(self, progress: ProgressCallback, stage: str, total: int, what: str = "") -> None:
        self._progress, self._stage, self.total, self._what = progress, stage, total, what
        self._first: tuple[int, float] | None = None
        self.count = 0

    def reached(self, count: int) -> None:
        """Report that `count` bytes are done. The bytes of the first report existed before and do not affect the speed."""
        now = time.monotonic()
        began, since = self._first = self._first or (count, now)
        left = None
        if count > began:
            left = (now - since) / (count - began) * max(0, self.total - count)
        self.count, total = count, self.total
        done = min(1.0, count / total) if total else None
        detail = f"{self._what} {megabytes(min(count, total))} of {megabytes(total)}".strip()
        self._progress(Progress(self._stage, done, detail, left))


def folder_bytes(folder: Path) -> int:
    """Return the bytes of the files under a folder; files and folders that vanish while counting count as nothing."""
    total = 0
    for parent, _, names in os.walk(folder):  # it leaves out folders that it cannot read
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):
                total += 0 if path.is_symlink() else path.stat().st_size
    return total
