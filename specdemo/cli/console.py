"""Output of the commands: two consoles, progress of long work, and a studio that reports while it loads."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from getpass import getpass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from specdemo.cli.options import app_settings
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import load
from specdemo.files.progress import Progress, ProgressCallback, ProgressLines

if TYPE_CHECKING:
    from specdemo.attach.servers import Server
    from specdemo.session.studio import Studio

FILE_COLUMNS = 1000  # width of text that no terminal shows: its lines are not broken

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
for _console in (out, err):
    if not _console.is_terminal:
        _console.width = FILE_COLUMNS


@contextmanager
def reporting() -> Iterator[ProgressCallback]:
    """Report progress on standard error, so that standard output has the results only.

    A terminal shows a bar per stage below all other output; bars disappear at the end. Files get lines.
    """
    if not err.is_terminal:
        yield ProgressLines(partial(err.print, markup=False, soft_wrap=True))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    shown = out.is_terminal  # otherwise results are for a file, not for the terminal with the bars
    with Bars(*columns, console=err, transient=True, redirect_stdout=shown) as bars:
        tasks: dict[str, TaskID] = {}

        def report(progress: Progress) -> None:
            stage = progress.stage
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=None)
            bars.update(
                tasks[stage],
                description=f"{stage} {progress.about}",
                total=None if progress.done is None else 1.0,
                completed=progress.done or 0,
            )

        yield report


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
    """Describe the target: its remark, and the catalogue model that its file was recognised as, or a draft model that suits it."""
    from specdemo.files.catalogue import find
    from specdemo.files.found import FoundModel, found_models, gguf_path
    from specdemo.files.header import read_header
    from specdemo.models.outlook import suggest
    from specdemo.session.loaded import COMPLETES

    pair, settings, name = studio.pair, studio.settings, studio.target.name
    said = []
    if studio.loaded.remark == COMPLETES:
        said.append(f"{name} is {load('page')['REMARKS'][COMPLETES]}.")
    gguf, files = gguf_path(settings.target), pair.target.files
    drafts = pair.drafts.keys() - {"copy"}
    if gguf and pair.target.known != name:
        used = ": its drafter is used" if drafts else ""
        said.append(f"{name} has the norms of {pair.target.known}{used}.")
    elif files and settings.draft == "auto" and not drafts and not find(pair.target.known):
        header = read_header(gguf) if gguf else None
        target = FoundModel(settings.target, "", gguf or files.folder, header)
        predict = studio.predictor(settings.precision)
        if suggestion := suggest(target, found_models(settings.cache_dir), predict):
            said.append(str(suggestion))
    return " ".join(said)


def reached(url: str, given: str = "") -> tuple[Server, str]:
    """Return a server and its key: the given one, that of the environment, or else what the user types. Raises UserError."""
    from specdemo.attach.client import KEY_VARIABLE
    from specdemo.attach.detection import attach

    key = given or os.environ.get(KEY_VARIABLE, "")
    try:
        return attach(url, key), key
    except UserError as error:
        if error.code != "attach.key" or not sys.stdin.isatty():
            raise
        key = getpass(f"{error.message} ")
        return attach(url, key), key


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
