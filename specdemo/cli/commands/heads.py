"""Measures the output head in 16, 8 and 4 bits."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_models, add_option, add_suite, check_folders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """On which prompts, and what to write."""
    add_suite(parser)
    add_option(
        parser, "--tokens", type=int, default=48, metavar="N", about="new tokens of each answer"
    )
    add_option(
        parser, "--repeat", type=int, default=15, metavar="N", about="passes of each kind to time"
    )
    add_option(
        parser,
        "--json",
        type=Path,
        metavar="FILE",
        about="also write the table to a file, as the documents read it",
    )
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    from specdemo.bench.heads import measure_heads
    from specdemo.bench.suite import EXAMPLES, read_suite

    check_folders(options.json)
    items = read_suite(options.suite or EXAMPLES, options.limit)
    studio = console.open_studio(options)
    with console.reporting() as report:
        result = measure_heads(studio.pair, items, options.tokens, options.repeat, report)
    if options.json:
        command = shlex.join(["python", "-m", "specdemo", *sys.argv[1:]])
        text = json.dumps(result.to_dict() | {"command": command}, indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    console.write(result.table())
    console.note(
        f"{result.machine}; {result.rows_compared} tokens; {studio.pair.target.info.kernel}"
    )
    return 0
