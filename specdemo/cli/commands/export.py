"""Writes a saved trace in other forms."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli.options import add_option, check_folders
from specdemo.config.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which trace, and what to write."""
    parser.add_argument("file", type=Path, help="trace as JSON lines")
    add_option(parser, "--csv", type=Path, metavar="FILE", about="table with one row per token")
    add_option(
        parser,
        "--html",
        type=Path,
        metavar="FILE",
        about="page that plays the run; it opens without a network",
    )


def run(options: argparse.Namespace) -> int:
    """Write the files."""
    from specdemo.trace.codec import dumps
    from specdemo.trace.replay import read
    from specdemo.trace.tables import csv_table, html_replay
    from specdemo.ui.words import VIEW

    if not (options.csv or options.html):
        raise UserError("cli.export_nothing")
    check_folders(options.csv, options.html)
    trace = dumps(read(options.file).trace.events)
    if options.csv:
        options.csv.write_text("\ufeff" + csv_table(trace), encoding="utf-8", newline="")
    if options.html:
        page = html_replay(trace, options.file.stem, VIEW)
        options.html.write_text(page, encoding="utf-8")
    return 0
