"""Stopping early is exact, looking back is not: two words, by fractions and by real runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdemo.cli import console
from specdemo.cli.options import add_option

if TYPE_CHECKING:
    from specdemo.session.work.two_words import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many runs."""
    add_option(parser, "--runs", type=int, default=4_000, metavar="N", about="seeded runs to count")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from specdemo.session.work.two_words import demonstrate

    console.write(as_table(demonstrate(options.runs)))
    return 0


def as_table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    from specdemo.bench.report import aligned

    heads = ["scheduler", "words 0 and 1", "measured", "runs", "p, target's", "p, as listed", ""]
    body = [
        [
            row.scheduler,
            " / ".join(f"{float(value):.3g}" for value in row.exact),
            " / ".join(f"{value:.3f}" for value in row.measured),
            str(row.runs),
            f"{row.p_target:.2g}",
            f"{row.p_exact:.2g}",
            "lossless" if row.lossless else "lossy",
        ]
        for row in rows
    ]
    return aligned(heads, body)
