"""Stopping early is exact, looking back is not: two words, by fractions and by real runs."""

from __future__ import annotations

import argparse

from specdemo.cli import console
from specdemo.cli.options import add_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many runs."""
    add_option(parser, "--runs", type=int, default=4_000, metavar="N", about="seeded runs to count")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from specdemo.session.work.two_words import as_table, demonstrate

    console.write(as_table(demonstrate(options.runs)))
    return 0
