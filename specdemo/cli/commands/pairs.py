"""Measures auto beside single methods on several pairs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_option, add_suite, check_folders
from specdemo.config.settings import GREEDY, RECOMMENDED, AppSettings

TARGETS = "smollm2-135m-instruct,qwen2.5-coder-1.5b-instruct"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which pairs and prompts, and what to write."""
    add_suite(parser)
    add_option(
        parser,
        "--targets",
        default=TARGETS,
        metavar="A,B",
        about="what --target takes, with commas",
    )
    add_option(
        parser,
        "--presets",
        default=f"{GREEDY},{RECOMMENDED}",
        metavar="A,B",
        about="presets of sampling",
    )
    add_option(
        parser, "--tokens", type=int, default=128, metavar="N", about="new tokens of each answer"
    )
    add_option(
        parser,
        "--json",
        type=Path,
        metavar="FILE",
        about="also write the tables to a file, as the documents read it",
    )


def run(options: argparse.Namespace) -> int:
    """Print the tables."""
    from specdemo.bench.pairs import as_file, measure_pair
    from specdemo.bench.report import aligned
    from specdemo.bench.suite import EXAMPLES, read_suite

    check_folders(options.json)
    items, results = read_suite(options.suite or EXAMPLES, options.limit), []
    for target in options.targets.split(","):
        studio = console.load_studio(AppSettings.from_environment(target=target))
        for preset in options.presets.split(","):
            with console.reporting() as report:
                one = measure_pair(
                    studio, items, options.tokens, preset, listen=console.note, progress=report
                )
            results.append(one)
    found = as_file(results, len(items), options.tokens)
    for table in found["tables"]:
        console.write(aligned(table["columns"], table["rows"]) + "\n")
    if options.json:
        command = shlex.join(["python", "-m", "specdemo", *sys.argv[1:]])
        text = json.dumps(found | {"command": command}, indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0
