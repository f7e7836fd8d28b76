"""Write cache folders that are either complete or absent, and check the disk space for them."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from specdemo.config.errors import Phrase, UserError
from specdemo.files.progress import ProgressCallback, bytes_progress, megabytes, silent

MARKER = "complete.json"
BLOCK_BYTES = 1 << 22
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
STALE_SECONDS = 24 * 3600


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


def read_only(folder: Path | str) -> UserError:
    """Return the error for a cache that cannot be written to."""
    return UserError("files.cache_read_only", folder=folder)


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
            raise read_only(Path(error.filename).parent) from error
        raise


def make_folder(folder: Path) -> None:
    """Make a cache folder and its parents. Raises UserError if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # try to write: access rights alone do not show it
            pass
    except OSError as error:
        if error.errno not in (*CLOSED, errno.EEXIST, errno.ENOTDIR):
            raise
        raise read_only(folder) from error


def file_sha256(path: Path, progress: ProgressCallback = silent, what: str = "") -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            if what:
                progress(bytes_progress("check", done, total, what))
    return digest.hexdigest()


def write_marker(folder: Path, recipe: str) -> None:
    """Record the files of a folder, so that later damage is noticed.

    recipe: source and version of the content; another recipe makes the folder stale
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        if path.name != MARKER:
            status = path.stat()
            files[path.name] = {
                "size": status.st_size, "modified": status.st_mtime_ns, "sha256": file_sha256(path),
            }  # fmt: skip
    text = json.dumps({"recipe": recipe, "files": files}, indent=2)
    part = folder / f"{MARKER}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / MARKER)


def is_complete(folder: Path, recipe: str) -> bool:
    """Return True if a folder contains exactly the files of its marker. Files changed since are read again."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        files = marker["files"] if marker["recipe"] == recipe else {}
        return bool(files) and all(_is_whole(folder / name, known) for name, known in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_whole(path: Path, known: dict[str, Any]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != known["size"]:
        return False
    return bool(status.st_mtime_ns == known["modified"] or file_sha256(path) == known["sha256"])


@contextmanager
def scratch(parent: Path, doing: Phrase) -> Iterator[Path]:
    """Make a temporary folder on the cache's own disk, always removed at the end."""
    with reporting_full_disk(doing):
        make_folder(parent)
        _sweep(parent)
        temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove folders that killed processes left a day ago or earlier."""
    for left in parent.glob(".making-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def making(folder: Path, recipe: str, doing: Phrase) -> Iterator[Path]:
    """Fill a temporary folder that becomes `folder` in one move, or leaves no trace."""
    with scratch(folder.parent, doing) as temporary:
        content = temporary / "content"
        content.mkdir()
        yield content
        write_marker(content, recipe)
        if folder.exists():
            # damaged or stale: removed with the scratch folder
            folder.replace(temporary / "replaced")
        content.replace(folder)


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
