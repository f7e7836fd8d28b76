"""Print the methods, the catalogue of models and the facts about this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from specdemo.cli import console
from specdemo.cli.options import policies_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specdemo.files.catalogue import Pair
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
    from specdemo.session.studio import Studio

    settings = AppSettings.from_environment()
    predict = Studio(settings).predictor(settings.precision)
    for pair in pairs():
        _block(pair.name, f"{pair.title}; {pair.licence}", _facts(predict(pair)), pair.target.suits)
    licence = "its licence comes with its card"
    _block(
        "Published drafters, for --drafter",
        *(f"{one.repo}; {one.family} for {one.target}; {licence}" for one in drafters()),
    )
    _print_found(settings.cache_dir, predict)
    console.note(
        "`file`: in the file's own blocks. Tokens a second are modelled, greedy, from passes that were measured on this machine; `by size` is scaled "
        "from another target's passes. How many first drafted tokens are accepted is recorded in the drafter's card, or else assumed."
    )
    return 0


def _print_found(cache_dir: Path, predict: Callable[[Pair], Outlook]) -> None:
    """Print a block for each model that LM Studio, Ollama, the hub's client and specdemo have stored on this machine."""
    from specdemo.files.catalogue import Pair, draft_of, find, own_drafter
    from specdemo.files.found import found_models
    from specdemo.models.outlook import suggest

    models = found_models(cache_dir)
    console.out.print(Text(f"Found on this machine, for --target: {len(models)}", style="bold"))
    for model in models:
        if not model.is_read:
            _block(model.name, model.source, "does not run: no reader for files of its family")
            continue
        known, draft, runs_with = model.known, None, "drafts copied from the text"
        if known and (draft := own_drafter(known.name)):
            runs_with = draft.title
        elif known and (name := draft_of(known.name, "auto", "auto")):
            draft, runs_with = find(name), f"the draft model {name}"
        elif suggestion := suggest(model, models, predict):
            draft, runs_with = suggestion.pair.draft, f"{runs_with}; {suggestion}"
        title = f"{model.source}; recognised as {known.title}" if known else model.source
        facts = _facts(predict(Pair(model.entry, draft)))
        _block(model.name, title, facts, f"runs with: {runs_with}")


def _block(name: str, *lines: str) -> None:
    console.out.print(Text(name, style="bold"), soft_wrap=True)
    for line in lines:
        console.out.print(f"  {line}", soft_wrap=True, markup=False)


def _facts(found: Outlook) -> str:
    """Return a prediction in words."""
    from specdemo.files.progress import megabytes

    room = "fits now" if found.fits else "does not fit now"
    download = f"downloads {megabytes(found.download)}" if found.download else "on this disk"
    rate = "speed not measured"
    if found.plain:
        rate = f"{float(f'{found.plain:.2g}'):g} tokens/s plain"
        if found.drafted:
            origin = f"recorded in {found.recorded}" if found.recorded else "assumed"
            rate += (
                f", {float(f'{found.drafted:.2g}'):g} drafted ({found.kept:.0%} accepted, {origin})"
            )
        rate += "" if found.measured else ", by size"
    return f"{found.precision}: needs {megabytes(found.needed)}, {room}; {download}; {rate}"


def run_doctor(_options: argparse.Namespace) -> int:
    """Print the facts about this machine. returns: 1 if something is missing or wrong"""
    from specdemo.models.doctor import facts

    found = facts()
    table = Table("", "what", "value", "what to do")
    for fact in found:
        advice = Text("" if fact.ok else fact.advice)
        table.add_row("ok" if fact.ok else "!", fact.name, Text(fact.value), advice)
    console.out.print(table)
    return 0 if all(fact.ok for fact in found) else 1
