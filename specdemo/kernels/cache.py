"""The folder for compiled code, which is named after sources, processor and numba."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from specdemo.kernels import cpu_features, team

HERE = Path(__file__).resolve().parent
FOLDER_PREFIX = "compiled-"
KEPT_FOLDERS = 4  # number of folders to store, those used last
COMPILE_SECONDS = 300.0  # after which a process no longer waits for another one to compile


def sources() -> list[Path]:
    """Return the source files of all compiled code: a change of any of them compiles it again."""
    return sorted(HERE.glob("*.py"))


def digest(files: Sequence[Path]) -> str:
    """Names code that is compiled from some files by the numba and for the processor and the threads of this process."""
    import llvmlite
    import numba

    parts = [f"{numba.__version__} {llvmlite.__version__}", *cpu_features.target()]
    parts.append(f"borrowed: {team.is_borrowed()}")
    found = hashlib.sha256("\n".join(parts).encode())
    for file in files:
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def folder(bases: Sequence[Path], files: Sequence[Path]) -> Path | None:
    """Return the folder for code compiled from some files, in the first writable base folder; None if there is none.

    Of the folders for other sources next to it, those used last stay.
    """
    name = f"{FOLDER_PREFIX}{digest(files)}"
    for base in bases:
        try:
            (base / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=base / name):
                os.utime(base / name)
        except OSError:
            continue
        prune(base)
        return base / name
    return None


def prune(base: Path, kept: int = KEPT_FOLDERS) -> None:
    """Delete all but the newest folders of compiled code. A folder is renamed first, so no process finds part of one."""
    for removed in base.glob(f".{FOLDER_PREFIX}*"):  # renamed by a process that ended too early
        shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):  # another process prunes at the same time
        folders = sorted(
            base.glob(f"{FOLDER_PREFIX}*"), key=lambda one: one.stat().st_mtime, reverse=True
        )
        for number, old in enumerate(folders[kept:]):
            moved = base / f".{old.name}.{os.getpid()}.{number}"
            old.rename(moved)
            shutil.rmtree(moved, ignore_errors=True)


def bases() -> list[Path]:
    """Folders to try: NUMBA_CACHE_DIR alone if it is set, else next to the sources, then the user's own cache."""
    config = _config()
    if config.CACHE_DIR:
        return [Path(config.CACHE_DIR)]
    if sys.platform == "win32":
        own = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        own = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return [HERE / "__pycache__", own / "specdemo"]


@contextmanager
def kept_in(place: Path | None) -> Iterator[None]:
    """Let numba store code compiled with `cache=True` in a folder. One process compiles it, and others wait to load it."""
    from filelock import FileLock

    config = _config()
    with ExitStack() as stack:
        if place:
            lock = FileLock(place / "lock", COMPILE_SECONDS, is_singleton=True)
            # A disk may have no locks, and a process that has one may hang.
            with suppress(OSError, NotImplementedError):
                stack.enter_context(lock)
        before, config.CACHE_DIR = config.CACHE_DIR, str(place or "")
        try:
            yield
        finally:
            config.CACHE_DIR = before


def _config() -> Any:
    """numba's own settings."""
    from numba.core import config

    return config


def kept(compiler: Any, *kind: Any) -> Any:
    """Return a decorator that compiles a function and stores the code on disk, with all functions that it calls.

    Without a folder to write to, each start compiles again, for half a minute.
    """

    def compile_(function: Any) -> Any:
        place = folder(bases(), sources())
        with kept_in(place):
            return compiler(*kind, cache=place is not None)(function)

    return compile_
