"""A copy of the project in which a test may follow a document."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("app.py", "assets", "docs", "pyproject.toml", "README.md", "specdemo", "tests", "tools")
LEFT = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.npz", "node_modules")


def copy_project(folder: Path) -> Path:
    """Copy the project without its weights. Returns the folder."""
    folder.mkdir()
    for path in (ROOT / name for name in COPIED):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=LEFT)
        else:
            shutil.copy(path, folder)
    return folder


def python(folder: Path, *arguments: str) -> str:
    """Run Python in the project and return its output."""
    environment = {**os.environ, "SPECDEMO_CACHE": str(folder.parent / "cache"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
