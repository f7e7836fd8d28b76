"""Output of the commands: two consoles, progress of long work, and a studio that reports while it loads."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from specdemo.cli.options import app_settings
from specdemo.config.settings import AppSettings
from specdemo.files.progress import Progress, duration

if TYPE_CHECKING:
    from specdemo.session.studio import Studio

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
QUIET_SECONDS = 10.0  # between two lines of a stage that changes continuously
MOVING = ("download", "check", "convert", "quantise", "train")


class Reporter(Protocol):
    """Callback that shows progress."""

    def __call__(self, progress: Progress) -> None:
        """Show a report."""

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which other text may be written to the terminal."""


@contextmanager
def reporting() -> Iterator[Reporter]:
    """Report progress on standard error, so that standard output has the results only.

    A terminal shows bars, which disappear at the end. Files get lines.
    """
    if not err.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=err, transient=True) as bars:
        yield _Bars(bars)


class _Bars:
    """One bar per stage."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, int] = {}

    def __call__(self, progress: Progress) -> None:
        stage = progress.stage
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=None)
        self._bars.update(
            self._tasks[stage],  # type: ignore[arg-type]  # rich's TaskID is an int
            description=f"{stage} {_detail(progress)}",
            total=None if progress.done is None else 1.0,
            completed=progress.done or 0,
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._bars.live.stop()
        try:
            yield
        finally:
            self._bars.live.start()


class _Lines:
    """A line for each new stage or detail; a stage of MOVING has one every QUIET_SECONDS."""

    def __init__(self) -> None:
        self._last = Progress("")
        self._written = -QUIET_SECONDS

    def __call__(self, progress: Progress) -> None:
        last, late = self._last, time.monotonic() - self._written >= QUIET_SECONDS
        detail = progress.detail if progress.stage not in MOVING else ""
        if late or (progress.stage, detail) != (last.stage, last.detail):
            done = "" if progress.done is None else f"{progress.done:.0%}"
            words = filter(None, (progress.stage, done, _detail(progress)))
            err.print(" ".join(words), markup=False, soft_wrap=True)
            self._last, self._written = Progress(progress.stage, None, detail), time.monotonic()

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()


def _detail(progress: Progress) -> str:
    left = "" if progress.seconds_left is None else f"{duration(progress.seconds_left)} left"
    return ", ".join(filter(None, (progress.detail, left)))


def open_studio(options: argparse.Namespace) -> Studio:
    """Return a studio whose pair is loaded, by the command's options. Raises UserError."""
    return load_studio(app_settings(options))


def load_studio(settings: AppSettings) -> Studio:
    """Return a studio whose pair is loaded; progress is on standard error. Raises UserError."""
    from specdemo.session.studio import Studio

    studio = Studio(settings)
    with reporting() as report:
        studio.load(report)
    if studio.error:
        raise studio.error
    return studio


def write(text: str) -> None:
    """Write a text to standard output unchanged."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(sentence: str, style: str | None = None) -> None:
    """Write a sentence to standard error."""
    err.print(sentence, style=style, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Replace control characters: a model's text must not control the terminal."""
    return "".join(
        letter if letter == "\n" or letter.isprintable() else f"\\x{ord(letter):02x}"
        for letter in text
    )
