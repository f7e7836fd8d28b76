"""The cache: folders that are either complete or not there, and room for them on the disk."""

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
HALF = ".half-"  # begins the name of a folder that another process may finish
BLOCK = 1 << 22
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
STALE_SECONDS = 24 * 3600
SETTLED_SECONDS = 2.0  # since a file's last change: two changes at once may have the same time


def free_bytes(folder: Path) -> int:
    """Free space on the disk that holds a folder, which need not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_space(folder: Path, needed: int, what: Phrase) -> None:
    """Raise UserError when a disk has fewer than `needed` free bytes."""
    free = free_bytes(folder)
    if free < needed:
        raise UserError("disk.space", what=what, needed=megabytes(needed), free=megabytes(free))


def read_only(folder: Path | str) -> UserError:
    """The sentence for a cache that cannot be written to."""
    return UserError("files.cache_read_only", folder=folder)


@contextmanager
def reporting_full_disk(doing: Phrase) -> Iterator[None]:
    """Turn 'no space left' and 'read-only', from the system or from a native library, into a sentence."""
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
    """Make a cache folder and its parents, or say that it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # the system's word: rights alone do not tell
            pass
    except OSError as error:
        if error.errno not in (*CLOSED, errno.EEXIST, errno.ENOTDIR):
            raise
        raise read_only(folder) from error


def file_sha256(path: Path, progress: ProgressCallback = silent, what: str = "") -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            done += len(block)
            if what:
                progress(bytes_progress("check", done, total, what))
    return digest.hexdigest()


def known_sha256(path: Path, memory: Path, progress: ProgressCallback, what: str) -> str:
    """SHA-256 of a file, which is read only where the system says that it changed since it was read last.

    memory: a folder that keeps, for each file, its digest with its size, times, inode and device. The time of the last
        change (ctime) moves with every write, and no program can set it back. On Windows it is the time of creation.
    """
    path = path.resolve()
    note = memory / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"
    began, before = time.time(), _state(path)
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["state"] == before:
            return str(known["sha256"])
    digest = file_sha256(path, progress, what)
    settled = began - max(path.stat().st_mtime, path.stat().st_ctime) > SETTLED_SECONDS
    if settled and _state(path) == before:
        with suppress(OSError):
            memory.mkdir(parents=True, exist_ok=True)
            part = note.with_suffix(".part")
            part.write_text(json.dumps({"state": before, "sha256": digest}), encoding="utf-8")
            part.replace(note)
    return digest


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [
        status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev,
    ]  # fmt: skip


def write_marker(folder: Path, recipe: str) -> None:
    """Record what a folder holds, so that damage is noticed later. What the marker there knows is not read again.

    recipe: what the content was made from and how; another recipe makes the folder stale
    """
    known = _read_marker(folder).get("files", {})
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        if path.name != MARKER:
            status = path.stat()
            files[path.name] = {"size": status.st_size, "modified": status.st_mtime_ns}
            before = known.get(path.name, {})
            same = all(before.get(name) == value for name, value in files[path.name].items())
            files[path.name]["sha256"] = before["sha256"] if same else file_sha256(path)
    text = json.dumps({"recipe": recipe, "files": files}, indent=2)
    part = folder / f"{MARKER}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / MARKER)


def is_complete(folder: Path, recipe: str) -> bool:
    """Whether a folder holds exactly what its marker says. A file touched since is read again."""
    whole = whole_files(folder, recipe)
    return bool(whole) and all(whole.values())


def whole_files(folder: Path, recipe: str) -> dict[str, bool]:
    """The files that a folder's marker names, and whether each is as it says; none where that has another recipe."""
    marker = _read_marker(folder)
    if marker.get("recipe") != recipe:
        return {}
    try:
        return {name: _is_whole(folder / name, known) for name, known in marker["files"].items()}
    except (KeyError, TypeError, AttributeError):
        return {}


def _read_marker(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
    """A temporary folder on the cache's own disk, removed at the end whatever happens."""
    with reporting_full_disk(doing):
        make_folder(parent)
        _sweep(parent)
        temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed processes left behind a day ago or earlier."""
    for left in (*parent.glob(".making-*"), *parent.glob(f"{HALF}*")):
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
        _put(content, folder, temporary)


def _put(content: Path, folder: Path, temporary: Path) -> None:
    """Make `content` the folder, in one move."""
    if folder.exists():
        folder.replace(temporary / "replaced")  # damaged or stale: leaves with the scratch
    content.replace(folder)


@contextmanager
def resuming(folder: Path, recipe: str, doing: Phrase) -> Iterator[Path]:
    """As `making`; what was finished when the process was ended is there the next time. Use it `alone`.

    Mark what is finished by `write_marker` with `half(recipe)`. An error leaves no trace.
    """
    with scratch(folder.parent, doing) as temporary:
        content = folder.with_name(f"{HALF}{folder.name}")
        content.mkdir(exist_ok=True)
        _keep_whole(content, half(recipe))
        try:
            yield content
            write_marker(content, recipe)
            _put(content, folder, temporary)
        except Exception:
            shutil.rmtree(content, ignore_errors=True)
            raise


def _keep_whole(folder: Path, recipe: str) -> None:
    """Remove what a folder's marker does not name, or what is damaged."""
    whole = whole_files(folder, recipe)
    for path in folder.iterdir():
        if not whole.get(path.name, bool(whole) and path.name == MARKER):
            path.unlink()


def half(recipe: str) -> str:
    """The recipe in the marker of a folder that is not finished."""
    return f"{recipe}, unfinished"


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
