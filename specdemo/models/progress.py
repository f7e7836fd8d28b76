"""Progress of anything long, as values that any view can show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Progress:
    """One report.

    stage: download, check, convert, load, quantise or warm up; done: 0 to 1, None when unknown
    """

    stage: str
    done: float | None = None
    detail: str = ""


ProgressCallback = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


def megabytes(count: float) -> str:
    """A number of bytes as people say it: 98 MB, 5.9 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def bytes_progress(stage: str, count: int, total: int, what: str = "") -> Progress:
    """The report that `count` of `total` bytes are done."""
    done = min(1.0, count / total) if total else None
    return Progress(
        stage, done, f"{what} {megabytes(min(count, total))} of {megabytes(total)}".strip()
    )


def folder_bytes(folder: Path) -> int:
    """Bytes of the files under a folder; files that vanish while counting count as nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.is_symlink():
                total += path.stat().st_size
        except OSError:
            continue
    return total


@contextmanager
def watched(
    folder: Path, total: int, progress: ProgressCallback, what: str, already: int = 0
) -> Iterator[None]:
    """Report how a folder grows while another library fills it.

    already: bytes in the folder before this work began
    """
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(POLL_SECONDS):
            progress(bytes_progress("download", folder_bytes(folder) - already, total, what))

    watcher = threading.Thread(target=watch, name="specdemo-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
