"""Measure methods, pairs of models and graphics cards, and audit methods."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.bench.results import write_file
from specdemo.cli import console
from specdemo.cli.interrupts import Kept, keep_results
from specdemo.cli.options import (
    app_settings,
    check_method,
    check_output,
    lane_settings,
    run_settings,
)
from specdemo.config.errors import UserError, system_error
from specdemo.config.settings import AppSettings, RunSettings

if TYPE_CHECKING:
    from specdemo.bench.pairs import PairResult
    from specdemo.bench.results import Journal, Result, Table
    from specdemo.bench.run import BenchOptions
    from specdemo.session.studio import Studio
    from specdemo.session.text import Item
    from specdemo.session.work.wrong_rules import RuleRow


def run(options: argparse.Namespace) -> int:
    """Measure variants on a suite, print the tables, and write the result after each prompt."""
    from specdemo.bench import report
    from specdemo.bench.lanes import single_lanes
    from specdemo.session.text import read_suite

    if options.html:
        import plotly  # noqa: F401 - a missing package is noticed before a model loads
    options.journal = _journal_path(options.json)
    items = read_suite(options.suite, options.limit)
    for lane in single_lanes(options.lanes):
        lane_settings(options, lane)  # raises UserError for a wrong one
    studio = console.open_studio(options)
    status, result = _measured(studio, items, options, partial(lane_settings, options))
    if result is None:
        return status
    console.write(report.text(result))
    if options.html:
        write_file(options.html, report.page(result, report.bench_charts(result.values)))
    kernel = studio.pair.target.info.kernel
    console.note(f"{result.machine}; {len(items)} prompts; {kernel}")
    return status


def _measured(
    studio: Studio,
    items: Sequence[Item],
    options: argparse.Namespace,
    settings_of: Callable[[str], RunSettings],
) -> tuple[int, Result | None]:
    """Run a bench and write its file after each prompt. returns: the exit status, and the result if there is one"""
    from specdemo.bench.run import Bench, run_bench

    found: list[Bench] = []

    def save(bench: Bench) -> None:
        found[:] = [bench]
        _write_json(options.json, bench.result())

    with _keep_results(lambda: found) as kept, console.reporting() as progress:
        run_bench(
            studio,
            items,
            _bench_options(options),
            lambda lane: settings_of(lane).drawn(studio.pair.recommended.sampling),
            listen=lambda sentence: console.note(sentence, style="yellow"),
            progress=progress,
            save=save,
        )
    return kept.status, found[0].result() if found else None


def _bench_options(options: argparse.Namespace) -> BenchOptions:
    """Return the options of a bench that a command has."""
    from specdemo.bench.run import BenchOptions

    asked = {part.name: getattr(options, part.name, None) for part in fields(BenchOptions)}
    return BenchOptions(**{name: value for name, value in asked.items() if value is not None})


def run_compare(options: argparse.Namespace) -> int:
    """Print a table of methods on one prompt: medians of several runs, each next to one of plain decoding."""
    from specdemo.bench.report import markdown
    from specdemo.session.text import Item

    for name in filter(None, map(str.strip, options.methods.split(","))):
        run_settings(options, name)  # raises UserError for a wrong one
    studio = console.open_studio(options)
    options.lanes, options.json, options.suite = options.methods or "methods", None, Path("prompt")
    items = [Item("prompt", "prompt", (options.prompt,))]
    status, result = _measured(studio, items, options, partial(run_settings, options))
    if result:
        console.write(markdown(result.tables[0]))
        console.note(f"{options.prompt[:60]!r}, medians of {options.repeat} runs, measured")
    return status


def run_pairs(options: argparse.Namespace) -> int:
    """Print the tables of variants on several pairs, and write them after each prompt."""
    from specdemo.bench.lanes import single_lanes
    from specdemo.bench.pairs import USUAL_LANES, pairs_result, sampling_of
    from specdemo.bench.report import text
    from specdemo.bench.results import Journal
    from specdemo.session.text import read_suite

    items, tokens = read_suite(options.suite, options.limit), options.tokens
    options.max_new_tokens, options.memory, options.first_turns = tokens, False, True
    options.lanes = options.lanes or USUAL_LANES
    options.rules = [rule for rule in options.rules.split(",") if rule]
    for preset in options.presets.split(","):
        sampling_of(preset)
    for rule in options.rules:
        RunSettings(verification=rule).checked()
    for lane in single_lanes(options.lanes):
        lane_settings(options, lane)  # raises UserError for a wrong one
    about = {"items": [asdict(item) for item in items], "tokens": tokens, "lanes": options.lanes}
    about |= {"rules": options.rules} if options.rules else {}
    results: list[PairResult] = []

    def result(found: Sequence[PairResult]) -> Result:
        return pairs_result(found, len(items), tokens, options.rules)

    def save(found: Sequence[PairResult]) -> None:
        _write_json(options.json, result(found))

    journal = Journal(_journal_path(options.json), about)
    with _keep_results(lambda: results) as kept:
        _measure_pairs(options, items, journal, results, save)
        journal.close()
    if results:
        console.write(text(result(results)))
    return kept.status


def _measure_pairs(
    options: argparse.Namespace,
    items: Sequence[Item],
    journal: Journal,
    results: list[PairResult],
    save: Callable[[Sequence[PairResult]], None],
) -> None:
    """Append the result of each pair and sampling; stored ones are not measured again. save: called after each prompt"""
    from specdemo.bench.pairs import PairResult, compare_methods

    targets, presets = options.targets.split(","), options.presets.split(",")
    seconds = 60 * options.minutes / (len(targets) * len(presets))
    with console.reporting() as progress:
        for target in targets:
            studio = None
            for key, preset in ((f"{target} {preset}", preset) for preset in presets):
                if stored := journal.stored.get(key):
                    results.append(PairResult(**stored))
                    continue
                studio = studio or console.load_studio(AppSettings.from_environment(target=target))
                options.until = time.monotonic() + seconds if seconds else None
                found = compare_methods(
                    studio,
                    items,
                    preset,
                    _bench_options(options),
                    partial(lane_settings, options),
                    listen=console.note,
                    progress=progress,
                    rules=options.rules,
                    save=lambda part: save([*results, part]),
                )
                results.append(found)
                journal.store(key, asdict(found))
                save(results)


def run_card(options: argparse.Namespace) -> int:
    """Print the tables of a graphics card, or of the processor, and write both files after each part."""
    from specdemo.bench import report
    from specdemo.bench.card import PairFindings, card_result, charts, measure_pair
    from specdemo.session.text import read_suite

    started, allowed = time.monotonic(), 60 * options.minutes
    page, file = (options.out.with_name(options.out.name + end) for end in (".html", ".json"))
    for path in (page, file):
        check_output(path)
    items = read_suite(options.suite, options.limit)
    settings, notes = app_settings(options), list[str]()
    found: dict[str, PairFindings] = {}
    targets = options.targets.split(",") if options.targets else _present_targets(settings)

    def result() -> Result:
        seconds = time.monotonic() - started
        pairs = list(found.values())
        return card_result(pairs, minutes=options.minutes, seconds=seconds, notes=notes)

    def save(target: str, pair: PairFindings) -> None:
        found[target] = pair
        _write_json(file, result())

    with _keep_results(lambda: found) as kept:
        for number, target in enumerate(targets):
            try:
                studio = console.load_studio(replace(settings, target=target))
            except UserError as error:
                notes.append(f"{target} is left out: {error.message}")
                console.note(notes[-1], style="yellow")
                continue
            left = (allowed - (time.monotonic() - started)) / (len(targets) - number)
            with console.reporting() as progress:
                measure_pair(studio, items, left, progress, partial(save, target))
    console.write(report.text(shown := result()))
    _write_json(file, shown)
    write_file(page, report.page(shown, charts(list(found.values()))))
    console.note(f"{shown.machine}; {shown.facts['time']}; {file} and {page}")
    return kept.status or int(not found)


def _present_targets(settings: AppSettings) -> list[str]:
    """Return the embedded target, and the largest one of the catalogue that is on this disk and fits."""
    from specdemo.files.catalogue import DEFAULT_TARGET
    from specdemo.models.outlook import choose

    return list(dict.fromkeys([DEFAULT_TARGET, choose(settings)[0].name]))


def run_audit(options: argparse.Namespace) -> int:
    """Audit methods. returns: 1 if one that claims to be lossless is not"""
    from specdemo.bench import audit
    from specdemo.bench.report import text

    names = None if options.methods == "all" else options.methods.split(",")
    for name in names or ():
        check_method(name)
    studio = console.open_studio(options)
    found: list[audit.AuditResult] = []
    with _keep_results(lambda: found) as kept, console.reporting() as progress:
        audit.run_audit(studio, names, options.runs, options.tokens, progress, found.append)
    for last in found[-1:]:
        result = last.result()
        console.write(json.dumps(result.to_dict(), indent=1) if options.json else text(result))
    return kept.status or int(not found[-1].held)


def run_seeds(options: argparse.Namespace) -> int:
    """Compare texts of the same seeds. returns: 1 if they differ where they must be equal"""
    from specdemo.bench.lanes import PLAIN_METHOD, expand, single_lanes
    from specdemo.bench.pairs import sampling_of
    from specdemo.bench.report import text
    from specdemo.bench.results import Journal
    from specdemo.bench.seeds import SeedComparison
    from specdemo.session.text import read_suite

    items, presets = read_suite(options.suite, options.limit), options.presets.split(",")
    for preset in presets:
        sampling_of(preset)
    for name in single_lanes(options.methods):
        check_method(name)
    studio = console.open_studio(options)
    methods = [name for name in expand(options.methods, studio) if name != PLAIN_METHOD]
    compared = SeedComparison(studio, methods, presets, options.tokens)
    about = {
        "target": asdict(studio.pair.target.info),
        "items": [asdict(item) for item in items],
        "options": [methods, presets, options.tokens],
    }
    journal = Journal(_journal_path(options.json), about)
    with _keep_results(lambda: compared.prompts) as kept, console.reporting() as progress:
        compared.run(items, journal, progress, partial(_write_json, options.json))
    if compared.prompts:
        console.write(text(compared.result()))
    return kept.status or int(not compared.held)


def run_counterexample(options: argparse.Namespace) -> int:
    """Print three schedulers and two bugs of rules on two or three tokens, by fractions and by real runs."""
    from specdemo.bench.report import markdown
    from specdemo.session.work.wrong_rules import bugs, schedulers

    rows = [rule.run(options.runs) for rule in (*schedulers(), *bugs())]
    console.write(markdown(counterexample_table(rows)))
    return 0


def counterexample_table(rows: Sequence[RuleRow]) -> Table:
    from specdemo.bench.results import Table

    body = [
        {
            "rule": row.rule,
            "target": " / ".join(f"{float(value):.3g}" for value in row.target),
            "result": " / ".join(f"{float(value):.3g}" for value in row.exact),
            "measured": " / ".join(f"{value:.3f}" for value in row.measured),
            "runs": row.runs,
            "p, target's": f"{row.p_target:.2g}",
            "p, as listed": f"{row.p_exact:.2g}",
            "": "lossless" if row.lossless else "lossy",
            "tokens to see it": row.needed or "-",
        }
        for row in rows
    ]
    return Table(list(body[0]), [list(row.values()) for row in body])


@contextmanager
def _keep_results(found: Callable[[], object]) -> Iterator[Kept]:
    """Do as `keep_results` does, also if a failure ends the block after results were found: report it, with status 1."""
    with keep_results() as kept:
        try:
            yield kept
        except BrokenPipeError:
            raise
        except (UserError, OSError) as error:
            if not found():
                raise
            console.note(str(system_error(error) if isinstance(error, OSError) else error), "red")
            kept.status = 1


def _journal_path(result: Path | None) -> Path | None:
    """Return the file that stores the results so far, next to the result's; None if that is a device."""
    if result is None or (result.exists() and not result.is_file()):
        return None
    return result.with_name(f"{result.name}.part")


def _write_json(path: Path | None, result: Result) -> None:
    """Write a result to a file, if a path is given."""
    if path:
        write_file(path, json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")
