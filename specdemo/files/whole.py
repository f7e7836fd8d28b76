"""Writes a file completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, content: str) -> None:
    """Write a file, or leave the earlier one unchanged after an interruption or on a full disk. An OSError names this file.

    A device, such as /dev/stdout, is written directly.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(content, encoding="utf-8", newline="")
        else:
            _replace(path, content)
    except OSError as error:
        error.filename = str(path)
        raise


def _replace(path: Path, content: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(content, encoding="utf-8", newline="")
        part.replace(path)
    except BaseException:  # a full disk, an interruption
        part.unlink(missing_ok=True)
        raise
