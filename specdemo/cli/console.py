"""Output of the commands: two consoles, progress of long work, and a studio that reports while it loads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from specdemo.cli.options import app_settings
from specdemo.config.settings import AppSettings
from specdemo.config.strings import load
from specdemo.files.progress import Progress, ProgressLines

if TYPE_CHECKING:
    from specdemo.session.studio import Studio

FILE_COLUMNS = 1000  # width of text that no terminal shows: its lines are not broken

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
for _console in (out, err):
    if not _console.is_terminal:
        _console.width = FILE_COLUMNS


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
        yield _Lines(partial(err.print, markup=False, soft_wrap=True))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=err, transient=True) as bars:
        yield _Bars(bars)


class _Lines(ProgressLines):
    """Lines on standard error."""

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()


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
            description=f"{stage} {progress.about}",
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
    if about := _about_target(studio):
        note(about)
    return studio


def _about_target(studio: Studio) -> str:
    """Return sentences: the catalogue model that a GGUF file was recognised as, or a draft model that suits it; and a remark."""
    from specdemo.session.loaded import COMPLETES

    remark = ""
    if studio.remark == COMPLETES:
        remark = f"{studio.target.name} is {load('page')['REMARKS'][COMPLETES]}."
    return " ".join(filter(None, (remark, _drafts_for(studio))))


def _drafts_for(studio: Studio) -> str:
    """Return a sentence: the catalogue model that a GGUF file was recognised as, or a draft model that suits it, or ""."""
    from specdemo.files.found import FoundModel, found_models, gguf_path
    from specdemo.files.header import read_header
    from specdemo.models.outlook import suggest

    pair, settings = studio.pair, studio.settings
    gguf = gguf_path(settings.target)
    if gguf is None:
        return ""
    if pair.target.known != pair.target.info.name:
        return f"{pair.target.info.name} has the norms of {pair.target.known}: its drafter is used."
    if pair.draft_info or pair.trained:
        return ""
    target = FoundModel(settings.target, "", gguf, read_header(gguf))
    predict = studio.predictor(settings.precision)
    return str(suggest(target, found_models(settings.cache_dir), predict) or "")


def write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(sentence: str, style: str | None = None) -> None:
    err.print(sentence, style=style, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """Replace control characters: a model's text must not control the terminal."""
    return "".join(
        letter if letter == "\n" or letter.isprintable() else f"\\x{ord(letter):02x}"
        for letter in text
    )
