"""Answer one prompt or a file of prompts, and show saved traces."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from specdemo.cli import console
from specdemo.cli.interrupts import keep_results
from specdemo.cli.options import run_settings
from specdemo.cli.show import TokenPrinter, note_dropped, show_metrics, show_run
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.files.progress import Progress
from specdemo.session.text import read_prompts
from specdemo.trace.events import NOTHING, PLAIN, SPECULATIVE
from specdemo.trace.metrics import measure
from specdemo.trace.replay import read

if TYPE_CHECKING:
    from specdemo.session.studio import Studio
    from specdemo.session.work.batch import BatchAnswer, BatchTotals


def run(options: argparse.Namespace) -> int:
    """Answer a prompt, or a file of prompts. returns: 1 if a run broke off"""
    if bool(options.prompts) == bool(options.prompt):
        raise UserError("cli.run_source")
    if options.prompts:
        if options.save:
            raise UserError("cli.run_one_prompt")
        items, settings = read_prompts(options.prompts), run_settings(options)
        if any(len(item.turns) > 1 for item in items):
            console.note("Only the first turn of each prompt is answered.", style="yellow")
        prompts = [item.turns[0] for item in items]
        return answer_prompts(console.open_studio(options), prompts, settings, options)
    return _run_one(options)


def _run_one(options: argparse.Namespace) -> int:
    from specdemo.engine.runner import LOOK_SECONDS

    settings = run_settings(options)
    conversation = console.open_studio(options).open()
    running = conversation.run(options.prompt, settings, system=options.system, every=LOOK_SECONDS)
    lanes = (PLAIN, SPECULATIVE) if settings.method == NOTHING else (SPECULATIVE,)
    return show_run(running, options, "measured", lanes)


def answer_prompts(
    studio: Studio, prompts: Sequence[str], settings: RunSettings, options: argparse.Namespace
) -> int:
    """Answer prompts with shared passes. returns: 1 if one of them failed"""
    from specdemo.session.work.batch import Batch, BatchAnswer, BatchTotals

    batch = Batch(
        studio, prompts, settings, at_once=options.at_once, system=options.system
    ).answers()
    show = _show_json if options.json else _show
    done = failed = 0
    with keep_results() as kept, console.reporting() as report, closing(batch):
        report(Progress("answer", 0.0, f"{len(prompts)} prompts"))
        for item in batch:
            if isinstance(item, BatchAnswer) and not item.ended:
                continue
            show(item)
            if isinstance(item, BatchTotals):
                failed = item.failed
            else:
                done += 1
                report(Progress("answer", done / len(prompts), f"{done} of {len(prompts)} prompts"))
    return kept.status or int(failed > 0)


def _show_json(item: BatchAnswer | BatchTotals) -> None:
    values = asdict(item) | {"tokens_per_second": item.tokens_per_second}
    if values.get("error"):
        values["error"] = str(values["error"])
    console.write(json.dumps(values))


def _show(item: BatchAnswer | BatchTotals) -> None:
    from specdemo.session.work.batch import BatchTotals

    out, rate = console.out, f"{item.tokens_per_second or 0:.0f} tokens/s"
    if isinstance(item, BatchTotals):
        sums = f"{item.prompts} prompts, {item.new_tokens} tokens in {item.seconds:.1f} s"
        out.print(f"{sums}, {rate} together", soft_wrap=True, markup=False)
        return
    out.print(Text(console.printable(item.prompt), style="bold"), soft_wrap=True)
    out.print(Text(console.printable(item.text)), soft_wrap=True)
    if item.error:
        console.note(str(item.error), style="red")
    if item.dropped:
        note_dropped(item.dropped)
    facts = f"{item.state}, {item.new_tokens} tokens, {rate}"
    out.print(Text(facts, style="dim"), end="\n\n")


def run_replay(options: argparse.Namespace) -> int:
    """Print the answer and the figures of a saved trace; needs no model and no torch."""
    replayed = read(options.file)
    trace = replayed.trace
    if options.json:
        found = {lane: measure(trace.lane(lane)).values() for lane in trace.lanes}
        console.write(json.dumps(found, indent=1))
    else:
        shown = SPECULATIVE if SPECULATIVE in trace.lanes else trace.lanes[0]
        printer = TokenPrinter()
        for event in trace.lane(shown).events:
            printer.show(event)
        console.out.print()
        show_metrics(trace, "recorded")
    if replayed.problem:
        console.note(replayed.problem, style="yellow")
    return 0
