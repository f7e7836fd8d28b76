"""Writes a drafter that `train` made in a published layout, for other engines."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_option
from specdemo.config.settings import AppSettings

LAYOUTS = "`speculators` (EAGLE-3, from `train feature --form eagle3`) or `dflash` (from `train block --form dflash`, or `jet`)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which drafter, where to, and how it is written."""
    parser.add_argument("drafter", type=Path, help="folder of one drafter, as `train` wrote it")
    parser.add_argument("out", type=Path, help="folder to write to")
    add_option(
        parser, "--layout", required=True, metavar="NAME", about=f"how it is written: {LAYOUTS}"
    )
    add_option(
        parser, "--target", metavar="MODEL", about="the target; by default the one that it was trained for"
    )  # fmt: skip
    add_option(
        parser, "--licence", default="", metavar="NAME",
        about="licence that its card names; by default the target's, where the catalogue knows it",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Write the drafter."""
    from specdemo.files.sources import resolve
    from specdemo.models.networks.layouts.writing import trained_for, write_published

    name = trained_for(options.drafter) if options.target is None else options.target
    with console.reporting() as report:
        target = resolve(name, AppSettings.from_environment().cache_dir, report)
    write_published(options.drafter, target, options.out, options.layout, options.licence)
    console.note(f"Wrote {options.out}; it runs here with --drafter {options.out}.")
    return 0
