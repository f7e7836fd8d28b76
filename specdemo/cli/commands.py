"""The commands of the command line: each takes parsed options and returns an exit status."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from specdemo.cli.batch import printable, read_prompts, run_all
from specdemo.cli.parser import app_settings, lane_settings, run_settings
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.errors import UserError
from specdemo.models.progress import Progress as Report
from specdemo.session.conversation import PLAIN, SPECULATIVE
from specdemo.session.studio import Studio
from specdemo.trace.codec import dumps, encode
from specdemo.trace.events import (
    Event,
    Node,
    RunFailed,
    RunFinished,
    RunStarted,
    Status,
    Trace,
    Verified,
)
from specdemo.trace.metrics import Metrics, measure, speedup

if TYPE_CHECKING:
    from specdemo.bench.lanes import LaneResult

STYLES = {
    Status.ACCEPTED: "green",
    Status.REJECTED: "strike red",
    Status.CORRECTION: "bold yellow",
    Status.BONUS: "bold cyan",
    Status.PLAIN: "",
}
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def run(options: argparse.Namespace) -> int:
    """Answer one prompt, or a file of prompts."""
    if bool(options.prompts) == bool(options.prompt):
        raise UserError("run takes either one prompt or --prompts FILE.")
    _check_folders(options.save, options.online_weights)
    if options.prompts:
        if options.save or options.online_weights:
            raise UserError("--save and --online-weights take one prompt, not --prompts FILE.")
        prompts, settings = read_prompts(options.prompts), run_settings(options, options.method)
        studio = _studio(options)
        with _bar() as bar:
            return run_all(studio, prompts, settings, options, bar)
    settings = replace(run_settings(options, options.method), baseline=not options.no_baseline)
    studio = _studio(options)
    conversation = studio.open()
    conversation.memory.saved_head = options.online_weights
    events: list[Event] = []
    for event in conversation.run(
        options.prompt, settings, system=options.system, every=LOOK_SECONDS
    ):
        events.append(event)
        if options.json:
            sys.stdout.write(encode(event) + "\n")
            sys.stdout.flush()
        elif event.lane == SPECULATIVE or settings.method == "nothing":
            _show(event)
    if options.save:
        options.save.write_text(dumps(events), encoding="utf-8")
    if options.online_weights:
        conversation.memory.save_head(options.online_weights)
    if not options.json:
        out.print()
        _print_metrics(Trace(tuple(events)), err, "measured")
    return int(any(isinstance(event, RunFailed) for event in events))


def compare(options: argparse.Namespace) -> int:
    """Plain decoding against methods on one prompt: medians of several runs in turn."""
    from specdemo.bench.lanes import run_once

    studio = _studio(options)
    available = {method.name: method for method in studio.methods()}
    wanted = [name.strip() for name in options.methods.split(",") if name.strip()] or [
        name for name, method in available.items() if method.available and name != "nothing"
    ]
    lanes = {"nothing": run_settings(options, "nothing")} | {
        name: run_settings(options, name) for name in wanted
    }
    results: dict[str, list[LaneResult]] = {name: [] for name in lanes}
    for attempt in range(max(1, options.repeat) + 1):
        for name, settings in lanes.items():
            conversation = studio.open()
            conversation.memory.saved_head = options.online_weights
            result = run_once(conversation, name, options.prompt, settings, options.system)
            if attempt:  # the first round warms up
                results[name].append(result)
    table = Table(
        title=f"{options.prompt[:60]!r}, medians of {max(1, options.repeat)} runs, measured"
    )
    for head in (
        "method",
        "tokens/s",
        "speedup",
        "first accepted",
        "drafts accepted",
        "tokens/step",
        "same output",
    ):
        table.add_column(head)
    plain = median(result.metrics.tokens_per_second or 0 for result in results["nothing"])
    for name, runs in results.items():
        metrics = runs[-1].metrics
        rate = median(result.metrics.tokens_per_second or 0 for result in runs)
        table.add_row(
            name,
            f"{rate:.0f}",
            f"{rate / plain:.2f}x" if plain else "-",
            _percent(metrics.first_accept_rate),
            _percent(metrics.drafted_accept_rate),
            f"{metrics.tokens_per_step or 0:.2f}",
            "yes" if runs[-1].ids == results["nothing"][-1].ids else "no",
        )
    out.print(table)
    return 0


def record(options: argparse.Namespace) -> int:
    """Record the runs that are shipped with the page."""
    from specdemo.bench.recordings import RUNS, record_all

    def open_studio(precision: str) -> Studio:
        options.precision = precision
        return _studio(options)

    record_all(
        open_studio,
        options.folder or RUNS,
        names=tuple(options.names),
        takes=options.takes,
        tell=err.print,
    )
    return 0


def bench(options: argparse.Namespace) -> int:
    """Lanes on a suite, peers beside them."""
    from specdemo.bench.html_report import render
    from specdemo.bench.run import BenchOptions, run_bench
    from specdemo.bench.suite import EXAMPLES, read_suite

    options.suite = options.suite or EXAMPLES
    options.command_line = shlex.join(["python", "-m", "specdemo", *sys.argv[1:]])
    _check_folders(options.json, options.html)
    items = read_suite(options.suite, options.limit)
    studio = _studio(options)
    with _bar() as bar:
        result = run_bench(
            studio,
            items,
            BenchOptions(
                **{part.name: getattr(options, part.name) for part in fields(BenchOptions)}
            ),
            lambda lane: lane_settings(options, lane),
            tell=lambda sentence: err.print(sentence, style="yellow", markup=False),
            progress=_to(bar),
        )
    if options.json:
        text = json.dumps(result.to_dict(), indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.html:
        options.html.write_text(render(result.to_dict()), encoding="utf-8")
    sys.stdout.write((result.readme() if options.readme else result.tables()) + "\n")
    err.print(
        f"{result.facts['machine']}; {len(items)} prompts; {studio.pair.target.info.kernel}",
        markup=False,
    )
    return 0


def audit(options: argparse.Namespace) -> int:
    """Prove that methods are lossless on the real model; fails when one that claims it does not hold."""
    from specdemo.bench.audit import RUNS, TOKENS, run_audit
    from specdemo.bench.audit_result import as_table

    names = None if options.method == "all" else options.method.split(",")
    studio = _studio(options)
    with _bar() as bar:
        result = run_audit(studio, names, options.runs or RUNS, options.tokens or TOKENS, _to(bar))
    if options.json:
        sys.stdout.write(json.dumps(result.to_dict(), indent=1) + "\n")
    else:
        sys.stdout.write(as_table(result) + "\n")
    return 0 if result.held else 1


def counterexample(options: argparse.Namespace) -> int:
    """Stopping early is exact, looking back is not: two words, by fractions and by real runs."""
    from specdemo.bench.counterexample import as_table, demonstrate

    sys.stdout.write(as_table(demonstrate(options.runs)) + "\n")
    return 0


def datastore(options: argparse.Namespace) -> int:
    """Build what `retrieval` looks things up in: from files, or from the target's answers to prompts."""
    from specdemo.bench.suite import read_suite
    from specdemo.training.datastore import build, build_from_prompts

    if bool(options.files) == bool(options.prompts):
        raise UserError(
            "A datastore is built either from files or from --prompts FILE.",
            advice="Name text files and saved runs, or one file of prompts.",
        )
    pair = _studio(options).pair
    with _bar() as bar:
        if options.prompts:
            examples = read_suite(options.examples) if options.examples else []
            build_from_prompts(
                options.prompts,
                pair.tokenizer,
                pair.target.model,
                pair.target.info,
                options.out,
                _to(bar),
                examples=[item.turns[0] for item in examples],
                licence=options.licence,
            )
        else:
            build(
                options.files,
                pair.tokenizer,
                pair.target.info.name,
                options.out,
                _to(bar),
                licence=options.licence,
            )
    err.print(f"Wrote {options.out}.", markup=False)
    return 0


def methods(_options: argparse.Namespace) -> int:
    """The table of methods."""
    from specdemo.drafters.methods import METHODS, NEEDED

    table = Table("method", "title", "what it does", "needs", "options")
    for name, method in METHODS.items():
        table.add_row(
            name,
            method.title,
            method.summary,
            ", ".join(NEEDED[need] for need in method.needs),
            ", ".join(method.options),
        )
    out.print(table)
    return 0


def models(_options: argparse.Namespace) -> int:
    """The catalogue."""
    from specdemo.models.files.catalogue import pairs

    table = Table("name", "target + draft", "4-bit", "licence", "suits")
    for pair in pairs():
        table.add_row(
            pair.target.name,
            pair.title,
            f"{pair.memory_4bit_gb} GB",
            pair.licence,
            pair.target.suits,
        )
    out.print(table)
    return 0


def doctor(_options: argparse.Namespace) -> int:
    """What this machine can do."""
    from specdemo.models.doctor import facts

    found = facts()
    table = Table("", "what", "value", "what to do")
    for fact in found:
        table.add_row("ok" if fact.ok else "!", fact.name, Text(fact.value), Text(fact.advice))
    out.print(table)
    return 0 if all(fact.ok for fact in found) else 1


def replay(options: argparse.Namespace) -> int:
    """Show a saved trace."""
    from specdemo.trace.replay import read

    replayed = read(options.file)
    trace = replayed.trace
    if options.json:
        found = {lane: _metric_values(measure(trace.lane(lane))) for lane in trace.lanes}
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        shown = SPECULATIVE if SPECULATIVE in trace.lanes else trace.lanes[0]
        for event in trace.lane(shown).events:
            _show(event)
        out.print()
        _print_metrics(trace, err, "recorded")
    if replayed.problem:
        err.print(replayed.problem, style="yellow", markup=False)
    return 0


def export(options: argparse.Namespace) -> int:
    """Write a saved trace in other forms."""
    from specdemo.export.table import csv_table, html_replay
    from specdemo.trace.replay import read
    from specdemo.ui.words import VIEW

    if not (options.csv or options.html):
        raise UserError("export takes --csv FILE, --html FILE or both.")
    _check_folders(options.csv, options.html)
    trace = dumps(read(options.file).trace.events)
    if options.csv:
        options.csv.write_text("\ufeff" + csv_table(trace), encoding="utf-8", newline="")
    if options.html:
        page = html_replay(trace, options.file.stem, VIEW)
        options.html.write_text(page, encoding="utf-8")
    return 0


def export_site(options: argparse.Namespace) -> int:
    """Write the static site."""
    from specdemo.ui.site import write_site

    write_site(options.folder)
    err.print(
        f"Wrote {options.folder}. Look at it: python -m http.server -d {options.folder}",
        markup=False,
    )
    return 0


def export_draft(options: argparse.Namespace) -> int:
    """Write the draft as a transformers model."""
    from specdemo.models.drafts.compact_files import export, is_compact
    from specdemo.models.files.catalogue import partner
    from specdemo.models.files.sources import resolve

    settings = app_settings(options)
    name = settings.draft if settings.draft != "auto" else partner(settings.target) or ""
    folder = Path(name) if is_compact(Path(name)) else resolve(name, settings.cache_dir).folder
    if not is_compact(folder):
        raise UserError(f"{name} is an ordinary model already.", advice="Use it as it is.")
    with _bar() as bar:
        target = resolve(settings.target, settings.cache_dir, _to(bar))
    export(folder, target.folder, options.out)
    err.print(
        f"Wrote {options.out}; load it with AutoModelForCausalLM.from_pretrained.", markup=False
    )
    return 0


def train(options: argparse.Namespace) -> int:
    """Train what `options.kind` names."""
    return _train_lookahead(options) if options.kind == "lookahead" else _train_drafter(options)


def _train_lookahead(options: argparse.Namespace) -> int:
    from specdemo.training.lookahead import run_training

    _check_folders(options.out)
    with _bar() as bar:
        numbers = run_training(options.traces, None, options.out, _to(bar))
    for name, value in numbers.items():
        err.print(f"{name}: {value}", markup=False)
    return 0


def _train_drafter(options: argparse.Namespace) -> int:
    """Train a drafter."""
    from specdemo.training.card import title
    from specdemo.training.options import TrainOptions
    from specdemo.training.train import train as train_drafter

    settings = app_settings(options)
    with _bar() as bar:
        report = train_drafter(
            TrainOptions(
                kind=options.kind,
                target=settings.target,
                prompts=tuple(options.prompts),
                answers=tuple(options.answers),
                out=options.out,
                work_dir=options.work or settings.cache_dir / "training",
                minutes=options.minutes,
                init=options.init,
                layers=options.layers,
                words=options.words,
                depth=options.depth,
                learning_rate=options.learning_rate,
                max_answers=options.max_answers,
                seed=options.seed,
                device=settings.device,
                precision=settings.precision,
                cache_dir=settings.cache_dir,
            ),
            _to(bar),
        )
    err.print(
        f"Wrote {report.out}, {report.parameters / 1e6:.1f} million parameters.", markup=False
    )
    for name, value in report.results.items():
        err.print(f"{title(name)}: {value:.4g}", markup=False)
    return 0


def _check_folders(*files: Path | None) -> None:
    """Raises UserError for a file to be written that is a folder, or into a folder that is not there."""
    for path in filter(None, files):
        if path.is_dir():
            raise UserError(f"{path} is a folder.", advice="Name a file to write to.")
        if not path.absolute().parent.is_dir():
            raise UserError(f"There is no folder to write {path} to.", advice="Make it first.")


def _studio(options: argparse.Namespace) -> Studio:
    """A studio with its pair loaded, progress on the way. Raises UserError."""
    studio = Studio(app_settings(options))
    with _bar() as bar:
        studio.load(_to(bar))
    if studio.error:
        raise studio.error
    return studio


@contextmanager
def _bar() -> Iterator[Progress]:
    """Progress on standard error, so that standard output holds only what was asked for."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        yield bar


def _to(bar: Progress):  # noqa: ANN202 - a ProgressCallback with a memory of its stages
    tasks: dict[str, int] = {}

    def report(progress: Report) -> None:
        task = tasks.setdefault(progress.stage, -1)
        if task < 0:
            task = tasks[progress.stage] = bar.add_task(progress.stage, total=None)
        total = None if progress.done is None else 1.0
        bar.update(
            task,
            description=f"{progress.stage} {progress.detail}",
            total=total,
            completed=progress.done or 0,
        )

    return report


def _show(event: Event) -> None:
    """Print what a step adds, in colour; refused tokens stay visible, except where nothing can strike them through."""
    if isinstance(event, Verified):
        struck = [node for node in event.nodes if node.status is Status.REJECTED]
        refused = struck if out.is_terminal else []
        for node in [
            *(event.nodes[place] for place in event.path),
            *refused,
            *([event.next] if event.next else []),
        ]:
            out.print(_styled(node), end="")
    elif isinstance(event, RunFailed):
        err.print(f"{event.message} {event.unharmed} {event.advice}", style="red", markup=False)


def _styled(node: Node) -> Text:
    return Text(printable(node.text), style=STYLES[node.status])


def _print_metrics(trace: Trace, console: Console, label: str) -> None:
    lanes = {lane: measure(trace.lane(lane)) for lane in trace.lanes}
    for event in trace.events:
        if isinstance(event, RunStarted) and event.lane == trace.lanes[-1]:
            console.print(
                f"{event.target.name}, {event.target.kernel}; {event.machine}",
                style="dim",
                markup=False,
            )
    for lane, metrics in lanes.items():
        console.print(f"{lane}: {_sentence(metrics)} ({label})", markup=False)
    if PLAIN in lanes and SPECULATIVE in lanes:
        ratio = speedup(lanes[PLAIN], lanes[SPECULATIVE])
        if ratio:
            console.print(f"speedup: {ratio:.2f}x ({label})", style="bold", markup=False)
    ended = [event for event in trace.events if isinstance(event, RunFinished)]
    if ended:
        console.print(f"ended: {ended[-1].reason.value}", style="dim", markup=False)


def _sentence(metrics: Metrics) -> str:
    parts = [f"{metrics.new_tokens} tokens", f"{metrics.tokens_per_second or 0:.0f} tokens/s"]
    if metrics.drafted:
        parts.append(f"{_percent(metrics.drafted_accept_rate)} of drafts accepted")
        parts.append(f"{metrics.tokens_per_step or 0:.2f} tokens a step")
    if metrics.chances:
        hidden = f"{metrics.saved_seconds:.2f} s of drafting hidden"
        parts.append(f"{_percent(metrics.hit_rate)} of prepared drafts used, {hidden}")
    return ", ".join(parts)


def _metric_values(metrics: Metrics) -> dict[str, object]:
    derived = ("tokens_per_second", "tokens_per_step", "drafted_accept_rate", "first_accept_rate")
    return {**asdict(metrics), **{name: getattr(metrics, name) for name in derived}}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
