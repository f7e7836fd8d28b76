"""Show, read, tune and diagnose the drafts of servers of other programs."""

from __future__ import annotations

import argparse
import json
import math
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path

from rich.table import Table
from rich.text import Text

from specdemo.attach import audit, doctor
from specdemo.attach.detection import attach
from specdemo.attach.events import events
from specdemo.attach.pasted import Findings, counters, read_file
from specdemo.attach.records import MOST_ROWS, Problems, Record, markdown, markdown_table, total
from specdemo.attach.servers import Server, ask
from specdemo.attach.tuning import DraftSetting, TuningPlan, ask_in_turn, break_even, plan
from specdemo.cli import console
from specdemo.cli.options import run_settings
from specdemo.cli.show import show_run
from specdemo.config.errors import UserError
from specdemo.config.strings import JsonView, load
from specdemo.files.progress import Progress
from specdemo.files.store import write_file
from specdemo.trace.codec import dumps
from specdemo.trace.events import Knowledge

PROBLEM, NO_VERDICT = 3, 4  # exit codes of a server's examination
LEVELS = {"problem": ("!", "red"), "unknown": ("?", "yellow"), "note": ("", "")}


def run_attach(options: argparse.Namespace) -> int:
    """Answer a prompt by a server and show what became of its drafts. returns: 1 if the answer broke off"""
    from specdemo.session.remote.attached import answer

    server, plain = _attach(options)
    settings = run_settings(options)
    request = {"messages": [], "prompt": options.prompt, "system": options.system, "settings": settings}  # fmt: skip
    with closing(answer(server, plain, request, threading.Event(), options.log)) as running:
        exact = server.about.knowledge is Knowledge.EXACT
        status = show_run(running, options, f"measured {'by the server' if exact else 'here'}")
    with suppress(UserError):  # the answer is complete without its metrics
        if not options.json and (totals := counters(server.client.get("/metrics").text)):
            console.write(markdown([totals]))
    return status


def run_import(options: argparse.Namespace) -> int:
    """Print the records of files as one table. returns: 1 if a line of them could not be read"""
    found = _read(options.files)
    records = [record for one in found for record in one.records]
    console.write(markdown(records))
    if len(records) > MOST_ROWS:
        console.note(f"{len(records) - MOST_ROWS} more requests are only in the sum.")
    if options.aiperf:
        known = [report for record in records if (report := record.aiperf())]
        lines = (json.dumps(report) + "\n" for report in known)
        write_file(options.aiperf, "".join(lines))
        console.note(f"Wrote {len(known)} of {len(records)} records to {options.aiperf}.")
    if options.save:
        _save(options.save, records)
    return int(any(one.problems.count for one in found))


def _save(folder: Path, records: Iterable[Record]) -> None:
    """Write a trace of each request whose rounds are known; `replay`, `export` and the page read them."""
    folder.mkdir(parents=True, exist_ok=True)
    known = [record.generation for record in records if record.generation]
    for number, generation in enumerate(known, 1):
        path = folder / f"request-{number}.jsonl"
        write_file(path, dumps(events(generation)))
    console.note(f"Wrote {len(known)} traces to {folder}.")


def _read(paths: Iterable[Path]) -> list[Findings]:
    """Read files and report their formats and malformed lines on standard error."""
    found, words = [], load("servers")["import_problems"]
    for path in paths:
        one = read_file(path)
        found.append(one)
        count = len(one.records)
        console.note(f"{path.name}: {', '.join(one.kinds)}, {count} record{'s' * (count != 1)}")
        if "synthetic" in one.facts:
            console.note(words["synthetic"], style="yellow")
        for line, kind in one.problems.first:
            place = f"{path.name}:{line}" if line else path.name  # else of the whole file
            console.note(f"{place}: {words[kind]}", style="yellow")
        if one.problems.count > len(one.problems.first):
            console.note(f"{path.name}: {one.problems.count} problems in all", style="yellow")
    return found


def run_tune(options: argparse.Namespace) -> int:
    """Print predictions for other settings of the drafts. returns: 1 if the confirmation failed"""
    if options.sizes:
        if options.sources:
            raise UserError("servers.sizes_alone")
        return _print_break_even(options)
    if not options.sources:
        raise UserError("servers.nothing_to_tune")
    found, plain = _recorded(options)
    records = [record for one in found for record in one.records]
    drawn = any("synthetic" in one.facts or (one.facts.get("method") or "draft-simple") != "draft-simple" for one in found)  # fmt: skip
    result = plan(
        records,
        plain,
        p_min=float(found[0].facts.get("p_min", 0)),
        assumption=options.assume or ("positions" if drawn else "places"),
    )
    if options.json:
        console.write(json.dumps(asdict(result) | {"best": asdict(result.best)}))
    else:
        _print_plan(result)
    if not options.confirm:
        return 0
    after = _read([options.confirm])[0]
    longest = max((drafted for one in after.records for _, drafted in one.steps), default=0)
    n_max, p_min = int(after.facts.get("n_max", longest)), float(after.facts.get("p_min", 0))
    setting = DraftSetting(n_max, p_min)
    return _print_confirmation(result, setting, records, after.records)


def _recorded(options: argparse.Namespace) -> tuple[list[Findings], list[Record]]:
    """Read the files among the sources, and send the doctor's prompts to the servers among them, each beside its plain server.

    returns: findings with drafts, and records without
    """
    sources, without = ([[one for one in each if ("://" in one) == remote] for remote in (True, False)] for each in (options.sources, options.plain))  # fmt: skip
    found = [_of_file(number, one) for number, one in enumerate(_read(map(Path, sources[1])))]
    plain = [record for one in _read(map(Path, without[1])) for record in one.records]
    requests = [ask(prompt, doctor.TOKENS) for prompt in doctor.prompts()]
    for url, plain_url in zip_longest(sources[0], without[0]):
        server, beside = (one and console.reached(one, options.key)[0] for one in (url, plain_url))
        with console.reporting() as report:
            records, bare = ask_in_turn(server, beside, requests, lambda done: report(Progress("tune", done)))  # fmt: skip
        plain += bare
        if server and options.log:
            found.append(_logged(_read([options.log])[0], records))
        elif server:
            method = records[-1].generation.method if records[-1].generation else ""
            found.append(Findings(("stream",), records, Problems(), {"method": method}))
    return found, plain


def _of_file(number: int, found: Findings) -> Findings:
    """Return the findings of a file, with its number in the names of its requests: files may use the same names."""
    records = [replace(one, name=f"{number} {one.name}") for one in found.records]
    return replace(found, records=records)


def _logged(log: Findings, records: Sequence[Record]) -> Findings:
    """Return what a log tells about the requests that were just sent; if it has others in between, all that it has."""
    newest = log.records[-len(records) :]
    if [one.tokens for one in newest] != [one.tokens for one in records]:
        return log
    pairs = zip(newest, records, strict=True)
    return replace(log, records=[replace(one, name=own.name) for one, own in pairs])


def _print_plan(found: TuningPlan) -> None:
    """Print the table of the best settings and the recommendation."""
    rows = []
    for one in found.shown():
        mark = " (recorded)" if one.setting == found.current else ""
        rates = f"{one.tokens_per_round:.2f}", f"{one.tokens_per_second:.1f}"
        ratios = str(one.over_current), str(one.over_plain or "-")
        rows.append([f"`{one.setting.flags}`{mark}", *rates, *ratios])
    heads = ["setting", "tokens/round", "tokens/s", "x recorded", "x plain"]
    console.write(markdown_table(heads, rows))
    best = found.best
    if found.loses:
        advice = "no drafts (leave out --spec-type); the best setting is slower than plain decoding"
    elif best.setting == found.current:
        advice = "no change; no other setting is predicted to be faster"
    else:
        advice = best.setting.flags
    console.write(f"\nRecommended: {advice}")
    if not found.clear:
        console.write("The interval contains 1: these requests do not show that a change helps.")
    restarts = 1 if found.plain else 2  # one more without drafts, if that was not measured
    console.note(
        f"Modelled from {found.requests} requests with {found.rounds} rounds (assumption: {found.assumption}); intervals of 90 % from "
        f"resampled requests. Restarts to confirm: {restarts}, then "
        "`specdemo tune ... --confirm NEWLOG`."
    )


def _print_confirmation(
    found: TuningPlan, setting: DraftSetting, before: Sequence[Record], after: Sequence[Record]
) -> int:
    """Compare the measured speed of a new log with the prediction. returns: 1 if it is outside of the interval"""
    # Answers that a draft ends were short to measure times.
    answers = ([one for one in each if (one.tokens or 0) > found.current.n_max + 1] for each in (before, after))  # fmt: skip
    old, new = (total(each).tokens_per_second if each else None for each in answers)
    forecast = found.at(setting)
    if not forecast or not old or not new:
        raise UserError("servers.not_predicted", flags=setting.flags)
    said = forecast.over_current
    true = said.low <= new / old <= said.high
    console.write(
        f"{setting.flags}: {new / old:.2f} times the recorded speed was measured, {said} was predicted: "
        f"{'confirmed' if true else 'not confirmed'}."
    )
    return int(not true)


def _print_break_even(options: argparse.Namespace) -> int:
    """Print the model of a pair before it is downloaded."""
    target, draft = options.sizes
    rows = []
    for drafted, needed, chance, speedup in break_even(target, draft):
        shown = "never" if math.isnan(chance) else f"{chance:.0%}"
        rows.append([str(drafted), f"{needed:.2f}", shown, f"{speedup:.2f}"])
    heads = ["drafted", "tokens/round needed", "acceptance needed", "x plain at 80 %"]
    console.write(markdown_table(heads, rows))
    console.note(
        f"Modelled, not measured: every pass reads all weights once and nothing else takes time; at {options.bandwidth:g} GB/s the "
        f"target alone gives {options.bandwidth / target:.1f} tokens/s. On a CPU, and with many requests, rows of a pass are not free."
    )
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    """Print the faults of a server's drafts. returns: 0, PROBLEM or NO_VERDICT"""
    server, plain = _attach(options)
    words = load("servers")["doctor"]
    with console.reporting() as report:
        seen = doctor.examine(server, plain, lambda done, about: report(Progress(words["progress"], done, about)))  # fmt: skip
    if options.log:
        seen = replace(seen, log=_read([options.log])[0])
    found = doctor.diagnose(seen)
    if options.json:
        named = {"server": seen.about.server, "version": seen.about.version}
        console.write(json.dumps(named | {"findings": [asdict(one) for one in found]}, indent=1))
    else:
        table = Table(*words["columns"])
        for one in found:
            mark, style = LEVELS[one.level]
            texts = words["findings"][one.kind].values()
            cells = (Text(text.format(**_rounded(one.values))) for text in texts)
            table.add_row(Text(mark, style=style), *cells, words[one.sure])
        console.out.print(table)
    levels = {one.level for one in found}
    return PROBLEM if "problem" in levels else NO_VERDICT if "unknown" in levels else 0


def _attach(options: argparse.Namespace) -> tuple[Server, Server | None]:
    """Return the server of the command line and the one without drafts, if it is named. Raises UserError."""
    server, key = console.reached(options.url, options.key)
    return server, attach(options.plain, key) if options.plain else None


def _rounded(values: JsonView) -> dict[str, str]:
    return {
        name: "?" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }


def run_audit(options: argparse.Namespace) -> int:
    """Compare a server's answers with a plain server's. returns: 0, PROBLEM or NO_VERDICT"""
    server, plain = _attach(options)
    if plain is None:
        raise UserError("servers.no_plain")
    words = load("servers")["audit"]
    drawn: audit.DrawComparison | None = None
    with console.reporting() as report:
        result = audit.greedy_audit(server, plain, doctor.prompts(), options.tokens, lambda done: report(Progress("audit", done)))  # fmt: skip
        if options.samples:
            drawn = audit.compare_draws(server, plain, doctor.PROBES["prose"], options.samples, lambda done: report(Progress("samples", done)))  # fmt: skip
    if options.json:
        console.write(json.dumps(asdict(result) | {"verdict": result.verdict, "draws": drawn and asdict(drawn)}))  # fmt: skip
    else:
        for one in result.differences:
            console.write(
                f"prompt {one.prompt}, token {one.place}: {one.gap:.3f} nat, {one.verdict}"
            )
        verdicts = [(result.verdict, result.values())]
        verdicts += [(drawn.kind, drawn.values())] if drawn else []
        for kind, values in verdicts:
            console.write(words[kind].format(**_rounded(values)))
    broken = result.verdict == "lossy" or bool(drawn and not drawn.held)
    return PROBLEM if broken else 0 if result.verdict == "held" else NO_VERDICT
