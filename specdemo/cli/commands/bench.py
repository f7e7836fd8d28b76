"""Measure methods, pairs of models and graphics cards, audit methods, and record the runs that the page plays."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from specdemo.bench.lanes import PLAIN_METHOD
from specdemo.cli import console
from specdemo.cli.options import app_settings, check_folders, lane_settings, run_settings
from specdemo.cli.show import percent
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import Json
from specdemo.files.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from specdemo.bench.lanes import LaneResult
    from specdemo.bench.results import Table
    from specdemo.session.studio import Studio
    from specdemo.session.work.two_words import SchedulerRow


def run(options: argparse.Namespace) -> int:
    """Measure variants on a suite and print the tables."""
    from specdemo.bench import report
    from specdemo.bench.run import BenchOptions, run_bench
    from specdemo.bench.suite import EXAMPLES, read_suite

    options.suite = options.suite or EXAMPLES
    check_folders(options.json, options.html)
    items = read_suite(options.suite, options.limit)
    studio = console.open_studio(options)
    asked = {part.name: getattr(options, part.name) for part in fields(BenchOptions)}
    with console.reporting() as progress:
        bench = run_bench(
            studio,
            items,
            BenchOptions(**asked),
            lambda lane: lane_settings(options, lane).drawn(studio.pair.recommended.sampling),
            listen=lambda sentence: console.note(sentence, style="yellow"),
            progress=progress,
        )
    result = bench.result()
    if options.json:
        _write_json(options.json, result.to_dict())
    if options.html:
        rows, costs = result.values["rows"], result.values["costs"]["verify"]
        charts = [
            report.speedups(rows),
            report.passes_and_time(rows),
            report.pass_costs({"as measured at loading": costs}),
            report.time_split(rows),
        ]
        options.html.write_text(report.page(result, charts), encoding="utf-8")
    shown = bench.readme_result() if options.readme else result
    console.write(report.text(shown))
    if options.readme:
        console.write(f"\n```sh\n{shown.command}\n```")
    kernel = studio.pair.target.info.kernel
    console.note(f"{result.machine}; {len(items)} prompts; {kernel}")
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """Print a table of methods on one prompt: medians of several runs in turn."""
    from specdemo.bench import report
    from specdemo.bench.results import Table, as_factor

    studio = console.open_studio(options)
    repeat = max(1, options.repeat)
    results: dict[str, list[LaneResult]] = {}
    with console.reporting() as progress:
        for attempt, result in _compared(studio, options, repeat, progress):
            counted = results.setdefault(result.name, [])
            if attempt:  # the first round warms up
                counted.append(result)
    plain, rows = _rate(results[PLAIN_METHOD]), []
    for name, runs in results.items():
        metrics, rate = runs[-1].metrics, _rate(runs)
        rows.append([
            name,
            f"{rate:.0f}",
            as_factor(rate / plain) if plain else "-",
            percent(metrics.first_accept_rate),
            percent(metrics.drafted_accept_rate),
            f"{metrics.tokens_per_step or 0:.2f}",
            "yes" if runs[-1].ids == results[PLAIN_METHOD][-1].ids else "no",
        ])  # fmt: skip
    columns = ["method", "tokens/s", "speedup", "first accepted", "drafts accepted", "tokens/step", "same output"]  # fmt: skip
    console.write(report.markdown(Table(columns, rows)))
    console.note(f"{options.prompt[:60]!r}, medians of {repeat} runs, measured")
    return 0


def _compared(
    studio: Studio, options: argparse.Namespace, repeat: int, report: ProgressCallback
) -> Iterator[tuple[int, LaneResult]]:
    """Run every method in turn, `repeat` + 1 times. yields: the round, from 0, and the result"""
    from specdemo.bench.lanes import run_once

    named = [name.strip() for name in options.methods.split(",") if name.strip()]
    available = [method.name for method in studio.methods() if method.available]
    lanes = {
        name: run_settings(options, name)
        for name in dict.fromkeys([PLAIN_METHOD, *(named or available)])
    }
    for attempt in range(repeat + 1):
        for index, (name, settings) in enumerate(lanes.items()):
            done = (attempt * len(lanes) + index) / ((repeat + 1) * len(lanes))
            report(Progress("compare", done, f"{name}, round {attempt} of {repeat}"))
            conversation = studio.open()
            conversation.memory.saved_head = options.online_weights
            yield attempt, run_once(conversation, name, options.prompt, settings, options.system)


def _rate(runs: list[LaneResult]) -> float:
    return median(result.metrics.tokens_per_second or 0 for result in runs)


def run_pairs(options: argparse.Namespace) -> int:
    """Print the tables of `auto` next to single methods on several pairs."""
    from specdemo.bench.pairs import compare_methods, pairs_result
    from specdemo.bench.report import text
    from specdemo.bench.suite import EXAMPLES, read_suite

    check_folders(options.json)
    items, results = read_suite(options.suite or EXAMPLES, options.limit), []
    for target in options.targets.split(","):
        studio = console.load_studio(AppSettings.from_environment(target=target))
        for preset in options.presets.split(","):
            with console.reporting() as progress:
                results.append(
                    compare_methods(
                        studio, items, options.tokens, preset, listen=console.note, progress=progress
                    )
                )  # fmt: skip
    result = pairs_result(results, len(items), options.tokens)
    console.write(text(result))
    if options.json:
        _write_json(options.json, result.to_dict())
    return 0


def run_card(options: argparse.Namespace) -> int:
    """Print the tables of a graphics card, or of the processor, and write both files."""
    from specdemo.bench import report
    from specdemo.bench.card import card_result, charts, measure_pair
    from specdemo.bench.suite import EXAMPLES, read_suite

    started, allowed = time.monotonic(), 60 * options.minutes
    page, file = (options.out.with_name(options.out.name + end) for end in (".html", ".json"))
    check_folders(page, file)
    items = read_suite(options.suite or EXAMPLES, options.limit)
    settings, found, notes = app_settings(options), [], list[str]()
    targets = options.targets.split(",") if options.targets else _present_targets(settings)
    for number, target in enumerate(targets):
        try:
            studio = console.load_studio(replace(settings, target=target))
        except UserError as error:
            notes.append(f"{target} is left out: {error.message}")
            console.note(notes[-1], style="yellow")
            continue
        left = allowed - (time.monotonic() - started)
        with console.reporting() as progress:
            found.append(measure_pair(studio, items, left / (len(targets) - number), progress))
    seconds = time.monotonic() - started
    result = card_result(found, minutes=options.minutes, seconds=seconds, notes=notes)
    _write_json(file, result.to_dict())
    page.write_text(report.page(result, charts(found)), encoding="utf-8")
    console.write(report.text(result))
    console.note(f"{result.machine}; {seconds:.0f} s; {file} and {page}")
    return 0 if found else 1


def _present_targets(settings: AppSettings) -> list[str]:
    """Return the embedded target, and the largest one of the catalogue that is on this disk and fits."""
    from specdemo.files.catalogue import DEFAULT_TARGET
    from specdemo.models.outlook import choose

    return list(dict.fromkeys([DEFAULT_TARGET, choose(settings)[0].name]))


def run_record(options: argparse.Namespace) -> int:
    """Record the runs that the page plays."""
    from specdemo.bench.recordings import RUNS, record_all

    named = options.target

    def open_studio(target: str, precision: str) -> Studio:
        options.target, options.precision = target or named, precision
        return console.open_studio(options)

    record_all(
        open_studio,
        options.folder or RUNS,
        names=tuple(options.names),
        takes=options.takes,
        listen=console.note,
    )
    return 0


def run_audit(options: argparse.Namespace) -> int:
    """Audit methods. returns: 1 if one that claims to be lossless is not"""
    from specdemo.bench import audit
    from specdemo.bench.report import text

    names = None if options.methods == "all" else options.methods.split(",")
    studio = console.open_studio(options)
    with console.reporting() as progress:
        found = audit.run_audit(studio, names, options.runs, options.tokens, progress)
    result = found.result()
    console.write(json.dumps(result.to_dict(), indent=1) if options.json else text(result))
    return 0 if found.held else 1


def run_counterexample(options: argparse.Namespace) -> int:
    """Print three schedulers on a vocabulary of two tokens, by fractions and by real runs."""
    from specdemo.bench.report import markdown
    from specdemo.session.work.two_words import demonstrate

    console.write(markdown(counterexample_table(demonstrate(options.runs))))
    return 0


def counterexample_table(rows: Sequence[SchedulerRow]) -> Table:
    """Return a row for each scheduler."""
    from specdemo.bench.results import Table

    columns = ["scheduler", "words 0 and 1", "measured", "runs", "p, target's", "p, as listed", ""]
    body = [
        [
            row.scheduler,
            " / ".join(f"{float(value):.3g}" for value in row.exact),
            " / ".join(f"{value:.3f}" for value in row.measured),
            row.runs,
            f"{row.p_target:.2g}",
            f"{row.p_exact:.2g}",
            "lossless" if row.lossless else "lossy",
        ]
        for row in rows
    ]
    return Table(columns, body)


def _write_json(path: Path, values: Json) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
