"""Tells what this machine can do."""

from __future__ import annotations

import argparse

from rich.table import Table
from rich.text import Text

from specdemo.cli import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_options: argparse.Namespace) -> int:
    """returns: 1 when something is missing or wrong"""
    from specdemo.models.doctor import facts

    found = facts()
    table = Table("", "what", "value", "what to do")
    for fact in found:
        table.add_row("ok" if fact.ok else "!", fact.name, Text(fact.value), Text(fact.advice))
    console.out.print(table)
    return 0 if all(fact.ok for fact in found) else 1
