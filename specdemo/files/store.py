"""Write files and cache folders that are either complete or absent, and check the disk space for them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import Json
from specdemo.files.progress import Pace, ProgressCallback, megabytes, silent

MARKER = "complete.json"
BLOCK_BYTES = 1 << 22
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
MAKING = ".making-"


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, which need not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_space(folder: Path, needed: int, what: Phrase) -> None:
    """Raise UserError when a disk has fewer than `needed` free bytes."""
    free = free_bytes(folder)
    if free < needed:
        raise UserError("disk.space", what=what, needed=megabytes(needed), free=megabytes(free))


@contextmanager
def reporting_full_disk(doing: Phrase) -> Iterator[None]:
    """Turn 'no space left' and 'read-only', from the system or from a native library, into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        number = getattr(error, "errno", None)
        if number in FULL or "No space left" in str(error):
            raise UserError("disk.full", doing=doing) from error
        if isinstance(error, OSError) and number in CLOSED and error.filename:
            folder = Path(error.filename).parent
            raise UserError("files.cache_read_only", folder=folder) from error
        raise


def make_folder(folder: Path) -> None:
    """Make a cache folder and its parents. Raises UserError if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # try to write: access rights alone do not show it
            pass
    except OSError as error:
        if error.errno not in (*CLOSED, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise
        raise UserError("files.cache_read_only", folder=folder) from error


def file_sha256(path: Path, progress: ProgressCallback = silent, what: str = "") -> str:
    digest, pace = hashlib.sha256(), Pace(progress, "check", path.stat().st_size, what)
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            pace.reached(pace.count + len(block))
    return digest.hexdigest()


def write_file(path: Path, content: str) -> None:
    """Write a file, or leave the earlier one unchanged after an interruption or on a full disk. An OSError names this file.

    A device, such as /dev/stdout, is written directly.
    """
    device = path.exists() and not path.is_file()
    part = path if device else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(content, encoding="utf-8", newline="")
        if not device:
            part.replace(path)
    except BaseException as error:  # a full disk, an interruption
        if not device:
            with suppress(OSError):
                part.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def write_marker(folder: Path, recipe: str) -> None:
    """Record the files of a folder, so that later damage is noticed.

    recipe: source and version of the content; another recipe makes the folder stale
    """
    files = {
        path.name: {"size": path.stat().st_size, "crc32": _crc32(path)}
        for path in sorted(folder.iterdir())
        if path.name != MARKER
    }
    write_file(folder / MARKER, json.dumps({"recipe": recipe, "files": files}, indent=2))


def is_complete(folder: Path, recipe: str, *, read: bool = False) -> bool:
    """Return True if a folder contains exactly the files of its marker. read: compare their content, not only their sizes"""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        files: dict[str, Json] = marker["files"] if marker["recipe"] == recipe else {}
        if not files or any(
            (folder / name).stat().st_size != files[name]["size"] for name in files
        ):
            return False
        with ThreadPoolExecutor() as pool:
            sums = pool.map(lambda name: _crc32(folder / name), files if read else ())
            return all(found == files[name]["crc32"] for name, found in zip(files, sums))  # noqa: B905 - none are read
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


@contextmanager
def scratch(parent: Path, doing: Phrase) -> Iterator[Path]:
    """Make a temporary folder on the same disk as `parent`, and remove it at the end.

    Its process has a lock, so that `sweep` removes only folders of processes that have ended.
    """
    from filelock import FileLock

    with reporting_full_disk(doing):
        make_folder(parent)
        sweep(parent)
        temporary = parent / f"{MAKING}{uuid4().hex}"
        lock = temporary.with_suffix(".lock")
        try:
            with FileLock(lock):
                temporary.mkdir()
                yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            lock.unlink(missing_ok=True)


def sweep(parent: Path) -> None:
    """Remove the temporary folders of processes that were killed."""
    from filelock import FileLock, Timeout

    for left in {path.with_suffix("") for path in parent.glob(f"{MAKING}*")}:
        lock = left.with_suffix(".lock")
        with suppress(OSError, Timeout), FileLock(lock, blocking=False):
            shutil.rmtree(left, ignore_errors=True)
            lock.unlink(missing_ok=True)


@contextmanager
def making(folder: Path, recipe: str | None, doing: Phrase) -> Iterator[Path]:
    """Fill a temporary folder that becomes `folder` in one move, or leaves no trace. recipe: see `write_marker`; None for no marker"""
    with scratch(folder.parent, doing) as temporary:
        content = temporary / "content"
        content.mkdir()
        yield content
        if recipe is not None:
            write_marker(content, recipe)
        if folder.exists():
            # damaged or stale: removed with the scratch folder
            folder.replace(temporary / "replaced")
        content.replace(folder)


def made_once(folder: Path, recipe: str, doing: Phrase, fill: Callable[[Path], None]) -> Path:
    """Return a complete folder. If it is missing, stale or damaged, one process fills it and the others wait.

    fill: writes the content into an empty folder
    """
    if not is_complete(folder, recipe, read=True):
        with alone(folder):
            if not is_complete(folder, recipe, read=True):
                with making(folder, recipe, doing) as content:
                    fill(content)
    return folder


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time make a folder; the others wait and then find it made."""
    from filelock import FileLock

    with reporting_full_disk(Phrase("disk.while_preparing")):
        make_folder(folder.parent)
        lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
