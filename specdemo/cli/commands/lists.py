"""Print the methods, the catalogue of models and the facts about this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from specdemo.cli import console
from specdemo.cli.options import policies_of

if TYPE_CHECKING:
    from specdemo.models.outlook import Outlook


def run_methods(_options: argparse.Namespace) -> int:
    from specdemo.drafters.methods import METHODS, NEEDED

    table = Table("method", "title", "what it does", "needs", "options")
    for name, method in METHODS.items():
        needs = ", ".join(NEEDED[need] for need in method.needs)
        options = (f"{option}{policies_of(method, option)}" for option in method.options)
        table.add_row(name, method.title, method.summary, needs, ", ".join(options))
    console.out.print(table)
    return 0


def run_models(_options: argparse.Namespace) -> int:
    """Print a block for each pair, with the needs of loading it on this machine."""
    from specdemo.config.settings import AppSettings
    from specdemo.files.catalogue import drafters, pairs
    from specdemo.files.progress import megabytes
    from specdemo.session.studio import Studio

    settings = AppSettings.from_environment()
    outlooks = Studio(settings).outlooks(settings.precision)

    def facts(found: Outlook) -> str:
        room = "fits now" if found.fits else "does not fit now"
        download = f"downloads {megabytes(found.download)}" if found.download else "on this disk"
        rate = "speed not measured"
        if found.plain:
            rate = f"{float(f'{found.plain:.2g}'):g} tokens/s plain"
            if found.drafted:
                origin = "recorded" if found.recorded else "assumed"
                rate += f", {float(f'{found.drafted:.2g}'):g} drafted ({found.kept:.0%} accepted, {origin})"
            rate += "" if found.measured else ", by size"
        return f"needs {megabytes(found.needed)}, {room}; {download}; {rate}"

    for pair in pairs():
        console.out.print(Text(pair.name, style="bold"))
        for line in (
            f"{pair.title}; {pair.licence}",
            facts(outlooks[pair.name]),
            pair.target.suits,
        ):
            console.out.print(f"  {line}", soft_wrap=True, markup=False)
    console.out.print(Text("Published drafters, for --drafter", style="bold"))
    for drafter in drafters():
        console.out.print(
            f"  {drafter.repo}; {drafter.family} for {drafter.target}; its licence comes with its card",
            soft_wrap=True,
            markup=False,
        )
    console.note(
        f"In {settings.precision}. Tokens a second are modelled, greedy, from passes that were measured on this machine; `by size` is scaled "
        "from another target's passes. How many first drafted tokens are accepted is recorded in the drafter's card, or else assumed."
    )
    return 0


def run_doctor(_options: argparse.Namespace) -> int:
    """Print the facts about this machine. returns: 1 if something is missing or wrong"""
    from specdemo.models.doctor import facts

    found = facts()
    table = Table("", "what", "value", "what to do")
    for fact in found:
        table.add_row("ok" if fact.ok else "!", fact.name, Text(fact.value), Text(fact.advice))
    console.out.print(table)
    return 0 if all(fact.ok for fact in found) else 1
