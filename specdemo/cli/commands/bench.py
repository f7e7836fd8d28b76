"""Measures lanes on a suite of prompts, with peers beside them."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import fields
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import (
    add_models,
    add_option,
    add_run_settings,
    add_suite,
    check_folders,
    lane_settings,
)

LANES = "draft_model:constant:4,draft_model:confidence,ngram"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure, how often, and what to write."""
    add_suite(parser)
    add_option(
        parser,
        "--lanes",
        default=LANES,
        metavar="A,B",
        about="what to measure beside plain decoding: METHOD[:POLICY[:LOOKAHEAD[:VERIFICATION]]]; `methods` for every method, "
        "`trained` for those with trained weights, `policies` for every lookahead policy, the best constant "
        "lookahead and the oracle; transformers[:assisted|:lookup], llama.cpp[:lookup] and floor, or `peers` "
        "for all of these",
    )
    add_option(
        parser, "--repeat", type=int, default=1, metavar="N", about="times to go through the suite"
    )
    add_option(
        parser,
        "--concurrent",
        type=_counts,
        default=(),
        metavar="N,M",
        about="also measure so many conversations at once, against one after the other and against as many plain ones",
    )
    add_option(
        parser,
        "--first-turns",
        action="store_true",
        about="take only the first turn of each prompt",
    )
    add_option(parser, "--json", type=Path, metavar="FILE", about="also write the rows to a file")
    add_option(parser, "--html", type=Path, metavar="FILE", about="also write a report with charts")
    add_option(
        parser, "--readme", action="store_true", about="print one small table, as a README shows it"
    )
    add_option(
        parser, "--traces", type=Path, metavar="FOLDER", about="also save the trace of every run"
    )
    add_run_settings(parser, without=("method", "baseline"))
    add_models(parser)


def _counts(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(int(part) for part in text.split(",") if int(part))


def run(options: argparse.Namespace) -> int:
    """Print the tables."""
    from specdemo.bench.html_report import render
    from specdemo.bench.run import BenchOptions, run_bench
    from specdemo.bench.suite import EXAMPLES, read_suite

    options.suite = options.suite or EXAMPLES
    options.command_line = shlex.join(["python", "-m", "specdemo", *sys.argv[1:]])
    check_folders(options.json, options.html)
    items = read_suite(options.suite, options.limit)
    studio = console.open_studio(options)
    asked = {part.name: getattr(options, part.name) for part in fields(BenchOptions)}
    with console.reporting() as report:
        result = run_bench(
            studio,
            items,
            BenchOptions(**asked),
            lambda lane: lane_settings(options, lane).drawn(studio.pair.recommended.sampling),
            listen=lambda sentence: console.note(sentence, style="yellow"),
            progress=report,
        )
    if options.json:
        text = json.dumps(result.to_dict(), indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.html:
        options.html.write_text(render(result.to_dict()), encoding="utf-8")
    console.write(result.readme() if options.readme else result.tables())
    kernel = studio.pair.target.info.kernel
    console.note(f"{result.facts['machine']}; {len(items)} prompts; {kernel}")
    return 0
