"""Writes a file completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, content: str) -> None:
    """Write a file, or leave the earlier one unchanged after an interruption or on a full disk. An OSError names this file.

    A device, such as /dev/stdout, is written directly.
    """
    is_device = path.exists() and not path.is_file()
    part = path if is_device else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(content, encoding="utf-8", newline="")
        if not is_device:
            part.replace(path)
    except BaseException as error:  # a full disk, an interruption
        if not is_device:
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
