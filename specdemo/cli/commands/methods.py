"""Prints the table of methods."""

from __future__ import annotations

import argparse

from rich.table import Table

from specdemo.cli import console
from specdemo.drafters.methods import METHODS, NEEDED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_options: argparse.Namespace) -> int:
    """Print the table."""
    table = Table("method", "title", "what it does", "needs", "options")
    for name, method in METHODS.items():
        needs = ", ".join(NEEDED[need] for need in method.needs)
        table.add_row(name, method.title, method.summary, needs, ", ".join(method.options))
    console.out.print(table)
    return 0
