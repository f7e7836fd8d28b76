"""Measures what a graphics card, or a processor, does with the pairs that are here."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_option, add_settings, add_suite, app_settings, check_folders
from specdemo.config.settings import AppSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """For how long, which pairs, and where to write."""
    add_option(
        parser, "--minutes", type=float, default=8.0, metavar="X", about="at most, with loading"
    )
    add_option(
        parser,
        "--targets",
        metavar="A,B",
        about="what --target takes, with commas; the embedded pair by default, and the largest one that is on this disk and fits",
    )
    add_option(
        parser,
        "--out",
        type=Path,
        default=Path("specdemo-gpu"),
        metavar="NAME",
        about="what is written: NAME.json and NAME.html",
    )
    add_suite(parser)
    add_settings(parser, AppSettings, groups=("model",), without=("target",))


def run(options: argparse.Namespace) -> int:
    """Print the tables, and write both files."""
    from specdemo.bench.gpu import measure_pair
    from specdemo.bench.gpu_report import document, render
    from specdemo.bench.report import aligned
    from specdemo.bench.suite import EXAMPLES, read_suite
    from specdemo.config.errors import UserError

    begun, allowed = time.monotonic(), 60 * options.minutes
    page, file = (options.out.with_name(options.out.name + end) for end in (".html", ".json"))
    check_folders(page, file)
    items = read_suite(options.suite or EXAMPLES, options.limit)
    settings, found, notes = app_settings(options), [], list[str]()
    targets = options.targets.split(",") if options.targets else _present(settings)
    for number, target in enumerate(targets):
        try:
            studio = console.load_studio(replace(settings, target=target))
        except UserError as error:
            notes.append(f"{target} is left out: {error.message}")
            console.note(notes[-1], style="yellow")
            continue
        left = allowed - (time.monotonic() - begun)
        with console.reporting() as report:
            one = measure_pair(studio, items, left / (len(targets) - number), report)
        found.append(one)
    seconds = time.monotonic() - begun
    values = document(found, minutes=options.minutes, seconds=seconds, notes=notes)
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page.write_text(render(values), encoding="utf-8")
    for table in values["tables"]:
        console.write(f"{table['about']}\n\n{aligned(table['columns'], table['rows'])}\n")
    console.note(f"{values['machine']}; {seconds:.0f} s; {file} and {page}")
    return 0 if found else 1


def _present(settings: AppSettings) -> list[str]:
    """The embedded target, and the largest one of the catalogue that is here and fits."""
    from specdemo.files.catalogue import DEFAULT_TARGET
    from specdemo.models.outlook import choose

    return list(dict.fromkeys([DEFAULT_TARGET, choose(settings)[0].name]))
