"""Path of the folder `assets/`: next to the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
ASSETS = next(
    folder for folder in (_PACKAGE / "assets", _PACKAGE.parent / "assets") if folder.is_dir()
)
