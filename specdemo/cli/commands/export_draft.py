"""Writes a compact draft as an ordinary transformers model."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_models, app_settings
from specdemo.config.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which draft, and where to."""
    parser.add_argument("out", type=Path, help="folder to write to")
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Write the model."""
    from specdemo.files.catalogue import partner
    from specdemo.files.sources import resolve
    from specdemo.models.networks.compact_files import export, is_compact

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
