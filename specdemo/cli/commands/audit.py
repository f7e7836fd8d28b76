"""Proves that methods are lossless on the real model; fails when one that claims it does not hold."""

from __future__ import annotations

import argparse
import json

from specdemo.bench.audit import RUNS, TOKENS
from specdemo.cli import console
from specdemo.cli.options import add_models, add_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which methods, and how much evidence."""
    add_option(
        parser,
        "--methods",
        default="all",
        metavar="A,B",
        about="methods to test",
        earlier=("--method",),
    )
    add_option(
        parser,
        "--runs",
        type=int,
        default=RUNS,
        metavar="N",
        about="seeded runs of each method under each condition",
    )
    add_option(
        parser, "--tokens", type=int, default=TOKENS, metavar="N", about="new tokens of each run"
    )
    add_option(parser, "--json", action="store_true", about="print the result as JSON")
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """returns: 1 when a method that claims to be lossless does not hold"""
    from specdemo.bench.audit import run_audit
    from specdemo.bench.audit_result import as_table

    names = None if options.methods == "all" else options.methods.split(",")
    studio = console.open_studio(options)
    with console.reporting() as report:
        result = run_audit(studio, names, options.runs, options.tokens, report)
    console.write(json.dumps(result.to_dict(), indent=1) if options.json else as_table(result))
    return 0 if result.held else 1
