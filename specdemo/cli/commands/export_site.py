"""Writes recorded runs, lab and lessons as a static site."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.add_argument("folder", type=Path, help="folder to write to")


def run(options: argparse.Namespace) -> int:
    """Write the site."""
    from specdemo.ui.site import write_site

    folder = options.folder
    write_site(folder)
    console.note(f"Wrote {folder}. Look at it: python -m http.server -d {folder}")
    return 0
