"""Writes files as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, content: str) -> None:
    """Replace a file as a whole, so that an interruption or a full disk never leaves half of it. Write to a device, such as /dev/stdout, directly."""
    if path.exists() and not path.is_file():
        path.write_text(content, encoding="utf-8", newline="")
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(content, encoding="utf-8", newline="")
        part.replace(path)
    except BaseException:  # a full disk, an interruption
        part.unlink(missing_ok=True)
        raise
