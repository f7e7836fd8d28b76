"""Builds what `retrieval` looks things up in: from files, or from the target's answers to prompts."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_models, add_option
from specdemo.config.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to build from."""
    parser.add_argument("files", type=Path, nargs="*", help="text files and saved runs")
    add_option(
        parser,
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        about="folder to write the datastore to",
    )
    add_option(
        parser,
        "--prompts",
        type=Path,
        metavar="FILE",
        about="in place of files: store the target's answers to these prompts, one per line",
    )
    add_option(
        parser,
        "--examples",
        type=Path,
        metavar="FILE",
        about="with --prompts: a suite whose prompts are answered several times",
    )
    add_option(
        parser,
        "--licence",
        default="that of its sources",
        metavar="TEXT",
        about="licence that the datastore's card names",
    )
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Write the datastore."""
    from specdemo.bench.suite import read_suite
    from specdemo.training.datastore import build, build_from_prompts

    if bool(options.files) == bool(options.prompts):
        raise UserError("cli.datastore_source")
    pair = console.open_studio(options).pair
    with console.reporting() as report:
        if options.prompts:
            examples = read_suite(options.examples) if options.examples else []
            build_from_prompts(
                options.prompts,
                pair.tokenizer,
                pair.target.decoder,
                pair.stop_ids(),
                pair.target.info,
                options.out,
                report,
                examples=[item.turns[0] for item in examples],
                licence=options.licence,
            )
        else:
            build(
                options.files,
                pair.tokenizer,
                pair.target.info.name,
                options.out,
                report,
                licence=options.licence,
            )
    console.note(f"Wrote {options.out}.")
    return 0
