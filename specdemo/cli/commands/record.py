"""Records the runs that are shipped with the page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.cli import console
from specdemo.cli.options import add_models, add_option

if TYPE_CHECKING:
    from specdemo.session.studio import Studio


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs."""
    parser.add_argument("names", nargs="*", help="names of runs in the index; all by default")
    add_option(
        parser,
        "--folder",
        type=Path,
        metavar="FOLDER",
        about="folder with an index.json; assets/runs by default",
    )
    add_option(
        parser,
        "--takes",
        type=int,
        default=4,
        metavar="N",
        about="takes of each run, of which the typical one is kept",
    )
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Write the traces and the index."""
    from specdemo.bench.recordings import RUNS, record_all

    asked = options.target

    def open_studio(target: str, precision: str) -> Studio:
        options.target, options.precision = target or asked, precision
        return console.open_studio(options)

    record_all(
        open_studio,
        options.folder or RUNS,
        names=tuple(options.names),
        takes=options.takes,
        listen=console.note,
    )
    return 0
