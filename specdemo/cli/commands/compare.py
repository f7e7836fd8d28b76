"""Plain decoding against methods on one prompt: medians of several runs in turn."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.table import Table

from specdemo.cli import console
from specdemo.cli.options import add_models, add_option, add_run_settings, run_settings
from specdemo.cli.show import percent
from specdemo.files.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from specdemo.bench.lanes import LaneResult
    from specdemo.session.studio import Studio

COLUMNS = (
    "method",
    "tokens/s",
    "speedup",
    "first accepted",
    "drafts accepted",
    "tokens/step",
    "same output",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to compare."""
    parser.add_argument("prompt", help="the prompt that every method answers")
    add_option(
        parser,
        "--methods",
        default="",
        metavar="A,B",
        about="methods to compare; by default all that are available",
    )
    add_option(
        parser, "--repeat", type=int, default=3, metavar="N", about="measured runs of each method"
    )
    add_option(
        parser,
        "--online-weights",
        type=Path,
        metavar="FILE",
        about="what `online` has learned is read from this file",
    )
    add_run_settings(parser, without=("method", "baseline"))
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    studio = console.open_studio(options)
    repeat = max(1, options.repeat)
    results: dict[str, list[LaneResult]] = {}
    with console.reporting() as report:
        for attempt, result in _runs(studio, options, repeat, report):
            kept = results.setdefault(result.name, [])
            if attempt:  # the first round warms up
                kept.append(result)
    table = Table(*COLUMNS, title=f"{options.prompt[:60]!r}, medians of {repeat} runs, measured")
    plain = _rate(results["nothing"])
    for name, runs in results.items():
        metrics, rate = runs[-1].metrics, _rate(runs)
        table.add_row(
            name,
            f"{rate:.0f}",
            f"{rate / plain:.2f}x" if plain else "-",
            percent(metrics.first_accept_rate),
            percent(metrics.drafted_accept_rate),
            f"{metrics.tokens_per_step or 0:.2f}",
            "yes" if runs[-1].ids == results["nothing"][-1].ids else "no",
        )
    console.out.print(table)
    return 0


def _runs(
    studio: Studio, options: argparse.Namespace, repeat: int, report: ProgressCallback
) -> Iterator[tuple[int, LaneResult]]:
    """Every method in turn, `repeat` + 1 times. yields: the round, from 0, and the result"""
    from specdemo.bench.lanes import run_once

    named = [name.strip() for name in options.methods.split(",") if name.strip()]
    available = [method.name for method in studio.methods() if method.available]
    names = dict.fromkeys(["nothing", *(named or available)])
    lanes = {name: run_settings(options, name) for name in names}
    for attempt in range(repeat + 1):
        for index, (name, settings) in enumerate(lanes.items()):
            done = (attempt * len(lanes) + index) / ((repeat + 1) * len(lanes))
            report(Progress("compare", done, f"{name}, round {attempt} of {repeat}"))
            conversation = studio.open()
            conversation.memory.saved_head = options.online_weights
            yield attempt, run_once(conversation, name, options.prompt, settings, options.system)


def _rate(runs: list[LaneResult]) -> float:
    return median(result.metrics.tokens_per_second or 0 for result in runs)
