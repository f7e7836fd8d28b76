"""Write saved traces, the static site and models in other forms."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import app_settings
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings


def run(options: argparse.Namespace) -> int:
    from specdemo.trace.codec import dumps
    from specdemo.trace.replay import csv_table, read
    from specdemo.ui.player import html_replay
    from specdemo.ui.words import VIEW

    if not (options.csv or options.html):
        raise UserError("cli.export_nothing")
    trace = dumps(read(options.file).trace.events)
    if options.csv:
        options.csv.write_text("\ufeff" + csv_table(trace), encoding="utf-8", newline="")
    if options.html:
        page = html_replay(trace, options.file.stem, VIEW)
        options.html.write_text(page, encoding="utf-8")
    return 0


def run_site(options: argparse.Namespace) -> int:
    from specdemo.ui.site import write_site

    folder = options.folder
    write_site(folder)
    console.note(
        f"Wrote {folder}. Open {folder / 'index.html'}, or serve it: python -m http.server -d {folder}"
    )
    return 0


def run_draft(options: argparse.Namespace) -> int:
    from specdemo.files.catalogue import partner
    from specdemo.files.sources import resolve
    from specdemo.models.networks.folders import export, is_compact

    settings = app_settings(options)
    name = settings.draft if settings.draft != "auto" else partner(settings.target) or ""
    folder = Path(name) if is_compact(Path(name)) else resolve(name, settings.cache_dir).folder
    if not is_compact(folder):
        raise UserError("cli.not_a_draft", name=name)
    with console.reporting() as report:
        target = resolve(settings.target, settings.cache_dir, report)
    export(folder, target.folder, options.out)
    console.note(f"Wrote {options.out}; load it with AutoModelForCausalLM.from_pretrained.")
    return 0


def run_drafter(options: argparse.Namespace) -> int:
    from specdemo.files.sources import resolve
    from specdemo.training.package import trained_for, write_published

    name = trained_for(options.drafter) if options.target is None else options.target
    with console.reporting() as report:
        target = resolve(name, AppSettings.from_environment().cache_dir, report)
    write_published(options.drafter, target, options.out, options.layout, options.licence)
    console.note(f"Wrote {options.out}; it runs here with --drafter {options.out}.")
    return 0
