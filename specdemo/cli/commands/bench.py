"""Measure methods, pairs of models and graphics cards, and audit methods."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path

from specdemo.bench import audit
from specdemo.bench.card import PairFindings, card_result, measure_pair
from specdemo.bench.lanes import expand, single_lanes
from specdemo.bench.pairs import (
    USUAL_LANES,
    PairResult,
    compare_methods,
    pairs_result,
    sampling_of,
)
from specdemo.bench.results import Journal, Result, Table, markdown, text
from specdemo.bench.run import BenchOptions, run_bench
from specdemo.bench.seeds import SeedComparison
from specdemo.bench.wrong_rules import Rule, bugs, p_of, schedulers
from specdemo.cli import console
from specdemo.cli.interrupts import keep_results
from specdemo.cli.options import (
    app_settings,
    check_method,
    check_output,
    given_values,
    lane_settings,
    run_settings,
)
from specdemo.config.errors import UserError, system_error
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.files.catalogue import DEFAULT_TARGET
from specdemo.files.progress import ProgressCallback
from specdemo.files.store import write_file
from specdemo.models.outlook import choose
from specdemo.session.studio import Studio
from specdemo.session.text import Item, read_suite
from specdemo.trace.events import NOTHING


def run(options: argparse.Namespace) -> int:
    """Measure variants on a suite, print the tables, and write the result after each prompt."""
    options.journal = _journal_path(options.json)
    items = read_suite(options.suite, options.limit)
    _check_lanes(options)
    studio = console.open_studio(options)
    status, result = _measured(studio, items, options, partial(lane_settings, options), text)
    if result is None:
        return status
    kernel = studio.pair.target.info.kernel
    console.note(f"{result.machine}; {len(items)} prompts; {kernel}")
    return status


def _check_lanes(options: argparse.Namespace) -> None:
    """Raise UserError for a variant whose settings are wrong."""
    for lane in single_lanes(options.lanes):
        lane_settings(options, lane)


def _measured(
    studio: Studio,
    items: Sequence[Item],
    options: argparse.Namespace,
    settings_of: Callable[[str], RunSettings],
    shown: Callable[[Result], str],
) -> tuple[int, Result | None]:
    """Run a bench and show its result, see `_show`."""

    def results(progress: ProgressCallback) -> Iterator[Result]:
        listen, asked = partial(console.note, style="yellow"), _bench_options(options)
        found = run_bench(studio, items, asked, settings_of, listen=listen, progress=progress)
        return (bench.result() for bench in found)

    return _show(results, options.json, shown)


def _show(
    results: Callable[[ProgressCallback], Iterator[Result]],
    file: Path | None,
    shown: Callable[[Result], str],
) -> tuple[int, Result | None]:
    """Write each result of a measurement to its file, if there is one, and print the last one.

    Does as `keep_results` does, also if a failure ends the measurement after a result: it is reported, with status 1.
    results: measures, and yields the result so far; shown: returns its text
    returns: the exit status, and the last result
    """
    found: list[Result] = []
    with keep_results() as kept, console.reporting() as progress:
        try:
            for result in results(progress):
                found = [result]
                if file:
                    _write_json(file, result)
        except BrokenPipeError:
            raise
        except (UserError, OSError) as error:
            if not found:
                raise
            console.note(str(system_error(error) if isinstance(error, OSError) else error), "red")
            kept.status = 1
    for result in found:
        console.write(shown(result))
    return kept.status, found[0] if found else None


def _bench_options(options: argparse.Namespace) -> BenchOptions:
    """Return the options of a bench that a command has."""
    return BenchOptions(**given_values(options, fields(BenchOptions)))


def run_compare(options: argparse.Namespace) -> int:
    """Print a table of methods on one prompt: medians of several runs, each next to one of plain decoding."""
    for name in filter(None, map(str.strip, options.methods.split(","))):
        run_settings(options, name)  # raises UserError for a wrong one
    studio = console.open_studio(options)
    options.lanes, options.json, options.suite = options.methods or "methods", None, Path("prompt")
    items, settings_of = (
        [Item("prompt", "prompt", (options.prompt,))],
        partial(run_settings, options),
    )
    status, result = _measured(
        studio, items, options, settings_of, lambda result: markdown(result.tables[0])
    )
    if result:
        console.note(f"{options.prompt[:60]!r}, medians of {options.repeat} runs, measured")
    return status


def run_pairs(options: argparse.Namespace) -> int:
    """Print the tables of variants on several pairs, and write them after each prompt."""
    items, tokens = read_suite(options.suite, options.limit), options.tokens
    options.max_new_tokens, options.memory, options.first_turns = tokens, False, True
    options.lanes = options.lanes or USUAL_LANES
    options.rules = [rule for rule in options.rules.split(",") if rule]
    for preset in options.presets.split(","):
        sampling_of(preset)
    for rule in options.rules:
        RunSettings(verification=rule).checked()
    _check_lanes(options)
    about = {"items": [asdict(item) for item in items], "tokens": tokens, "lanes": options.lanes}
    about |= {"rules": options.rules} if options.rules else {}
    journal = Journal(_journal_path(options.json), about)
    status, _ = _show(partial(_pairs, options, items, journal), options.json, text)
    return status


def _pairs(
    options: argparse.Namespace,
    items: Sequence[Item],
    journal: Journal,
    progress: ProgressCallback,
) -> Iterator[Result]:
    """Yield the result so far of all pairs and samplings, after each prompt; stored ones are not measured again."""
    targets, presets = options.targets.split(","), options.presets.split(",")
    seconds = 60 * options.minutes / (len(targets) * len(presets))
    results: dict[str, PairResult] = {}
    for target in targets:
        studio = None
        for key, preset in ((f"{target} {preset}", preset) for preset in presets):
            if stored := journal.stored.get(key):
                found = iter([PairResult(**stored)])
            else:
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
                )
            for results[key] in found:
                yield pairs_result([*results.values()], len(items), options.tokens, options.rules)
            if not stored:
                journal.store(key, asdict(results[key]))
    journal.close()


def run_card(options: argparse.Namespace) -> int:
    """Print the tables of a graphics card, or of the processor, and write the file after each part."""
    started, allowed = time.monotonic(), 60 * options.minutes
    file = options.out.with_name(f"{options.out.name}.json")
    check_output(file)
    items = read_suite(options.suite, options.limit)
    settings, notes = app_settings(options), list[str]()
    found: dict[str, PairFindings] = {}
    targets = options.targets.split(",") if options.targets else _present_targets(settings)

    def result() -> Result:
        seconds = time.monotonic() - started
        pairs = list(found.values())
        return card_result(pairs, minutes=options.minutes, seconds=seconds, notes=notes)

    def results(progress: ProgressCallback) -> Iterator[Result]:
        for number, target in enumerate(targets):
            try:
                studio = console.load_studio(replace(settings, target=target))
            except UserError as error:
                notes.append(f"{target} is left out: {error.message}")
                console.note(notes[-1], style="yellow")
                continue
            left = (allowed - (time.monotonic() - started)) / (len(targets) - number)
            for found[target] in measure_pair(studio, items, left, progress):
                yield result()
        yield result()

    status, shown = _show(results, file, text)
    if shown:
        console.note(f"{shown.machine}; {shown.values['time']}; {file}")
    return status or int(not found)


def _present_targets(settings: AppSettings) -> list[str]:
    """Return the embedded target, and the largest one of the catalogue that is on this disk and fits."""
    return list(dict.fromkeys([DEFAULT_TARGET, choose(settings)[0].name]))


def run_audit(options: argparse.Namespace) -> int:
    """Audit methods. returns: 1 if one that claims to be lossless is not"""
    names = None if options.methods == "all" else options.methods.split(",")
    for name in names or ():
        check_method(name)
    studio = console.open_studio(options)

    def results(progress: ProgressCallback) -> Iterator[Result]:
        found = audit.run_audit(studio, names, options.runs, options.tokens, progress)
        return (one.result() for one in found)

    status, result = _show(results, None, _as_json if options.json else text)
    return status or int(not (result and result.values["held"]))


def run_seeds(options: argparse.Namespace) -> int:
    """Compare texts of the same seeds. returns: 1 if they differ where they must be equal"""
    items, presets = read_suite(options.suite, options.limit), options.presets.split(",")
    for preset in presets:
        sampling_of(preset)
    for name in single_lanes(options.methods):
        check_method(name)
    studio = console.open_studio(options)
    methods = [name for name in expand(options.methods, studio) if name != NOTHING]
    compared = SeedComparison(studio, methods, presets, options.tokens)
    about = {
        "target": asdict(studio.pair.target.info),
        "items": [asdict(item) for item in items],
        "options": [methods, presets, options.tokens],
    }
    journal = Journal(_journal_path(options.json), about)
    status, _ = _show(partial(compared.run, items, journal), options.json, text)
    return status or int(not compared.held)


def run_counterexample(options: argparse.Namespace) -> int:
    """Print three schedulers and two bugs of rules on two or three tokens, by fractions and by real runs."""
    rows = [(rule, rule.run(options.runs)) for rule in (*schedulers(), *bugs())]
    console.write(markdown(counterexample_table(rows)))
    return 0


def counterexample_table(rows: Sequence[tuple[Rule, Sequence[int]]]) -> Table:
    """Return a row for each rule. rows: rules, and how often each of their tokens came"""
    body = [
        {
            "rule": rule.name,
            "target": " / ".join(f"{float(value):.3g}" for value in rule.target),
            "result": " / ".join(f"{float(value):.3g}" for value in rule.exact),
            "measured": " / ".join(f"{count / sum(counts):.3f}" for count in counts),
            "runs": sum(counts),
            "p, target's": f"{p_of(counts, rule.target):.2g}",
            "p, as listed": f"{p_of(counts, rule.exact):.2g}",
            "": "lossless" if rule.lossless else "lossy",
            "tokens to see it": rule.needed or "-",
        }
        for rule, counts in rows
    ]
    return Table(list(body[0]), [list(row.values()) for row in body])


def _journal_path(result: Path | None) -> Path | None:
    """Return the file that stores the results so far, next to the result's; None if that is a device."""
    if result is None or (result.exists() and not result.is_file()):
        return None
    return result.with_name(f"{result.name}.part")


def _write_json(path: Path, result: Result) -> None:
    write_file(path, json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")


def _as_json(result: Result) -> str:
    return json.dumps(result.to_dict(), indent=1)
