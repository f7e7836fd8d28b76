"""Prints the catalogue of models, and what loading each would mean on this machine."""

from __future__ import annotations

import argparse

from rich.table import Table

from specdemo.cli import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_options: argparse.Namespace) -> int:
    """Print the table."""
    from specdemo.models.files.catalogue import pairs
    from specdemo.models.outlook import KEPT, Outlook
    from specdemo.models.progress import megabytes
    from specdemo.session.studio import Studio
    from specdemo.settings import AppSettings

    def rate(found: Outlook) -> str:
        if not found.plain or not found.drafted:
            return "not measured"
        by_size = "" if found.measured else ", by size"
        return f"{found.plain:.2g} plain, {found.drafted:.2g} drafted{by_size}"

    settings = AppSettings.from_environment()
    outlooks = Studio(settings).outlooks(settings.precision)
    table = Table(
        "name", "target + draft", "needs", "fits now", "to download", "tokens/s", "licence", "suits"
    )
    for pair in pairs():
        found = outlooks[pair.name]
        table.add_row(
            pair.name,
            pair.title,
            megabytes(found.needed),
            "yes" if found.fits else "no",
            megabytes(found.download) if found.download else "nothing",
            rate(found),
            pair.licence,
            pair.target.suits,
        )
    console.out.print(table)
    console.note(
        f"In {settings.precision}. Tokens a second are modelled from passes that were measured on this machine, with drafts of which "
        f"{KEPT:.0%} of the first tokens are accepted; `by size` is scaled from another target's passes."
    )
    return 0
