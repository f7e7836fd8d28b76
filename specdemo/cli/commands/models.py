"""Prints the catalogue of models, and what loading each would mean on this machine."""

from __future__ import annotations

import argparse

from rich.text import Text

from specdemo.cli import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(_options: argparse.Namespace) -> int:
    """Print a block for each pair."""
    from specdemo.models.files.catalogue import pairs
    from specdemo.models.outlook import KEPT, Outlook
    from specdemo.models.progress import megabytes
    from specdemo.session.studio import Studio
    from specdemo.settings import AppSettings

    settings = AppSettings.from_environment()
    outlooks = Studio(settings).outlooks(settings.precision)

    def facts(found: Outlook) -> str:
        room = "fits now" if found.fits else "does not fit now"
        download = f"downloads {megabytes(found.download)}" if found.download else "on this disk"
        rate = "speed not measured"
        if found.plain and found.drafted:
            by_size = "" if found.measured else " by size"
            plain, drafted = (f"{float(f'{one:.2g}'):g}" for one in (found.plain, found.drafted))
            rate = f"{plain} tokens/s plain, {drafted} drafted{by_size}"
        return f"needs {megabytes(found.needed)}, {room}; {download}; {rate}"

    for pair in pairs():
        console.out.print(Text(pair.name, style="bold"))
        for line in (
            f"{pair.title}; {pair.licence}",
            facts(outlooks[pair.name]),
            pair.target.suits,
        ):
            console.out.print(f"  {line}", soft_wrap=True, markup=False)
    console.note(
        f"In {settings.precision}. Tokens a second are modelled from passes that were measured on this machine, with drafts of which "
        f"{KEPT:.0%} of the first tokens are accepted; `by size` is scaled from another target's passes."
    )
    return 0
