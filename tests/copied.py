"""A copy of the project in which a test may follow a document."""

import shutil
from pathlib import Path

import programs

ROOT = programs.ROOT
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
    cache = str(folder.parent / "cache")
    return programs.python(*arguments, cwd=folder, SPECDEMO_CACHE=cache, COLUMNS="200")
