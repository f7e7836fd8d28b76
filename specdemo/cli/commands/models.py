"""Prints the catalogue of models."""

from __future__ import annotations

import argparse

from rich.table import Table

from specdemo.cli import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_options: argparse.Namespace) -> int:
    """Print the table."""
    from specdemo.models.files.catalogue import pairs

    table = Table("name", "target + draft", "4-bit", "licence", "suits")
    for pair in pairs():
        memory = f"{pair.memory_4bit_gb} GB"
        table.add_row(pair.target.name, pair.title, memory, pair.licence, pair.target.suits)
    console.out.print(table)
    return 0
