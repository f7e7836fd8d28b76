"""`run --prompts FILE`: reads the prompts, prints each answer when it is whole, the totals last."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from specdemo.bench.suite import read_suite
from specdemo.cli import console
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.files.progress import Progress
from specdemo.session.studio import Studio
from specdemo.session.work.batch import Answer, Totals, answer_all


def answer_prompts(
    studio: Studio, prompts: Sequence[str], settings: RunSettings, options: argparse.Namespace
) -> int:
    """Answer prompts together. returns: 1 when one of them failed"""
    batch: Any = answer_all(
        studio, prompts, settings, at_once=options.at_once, system=options.system
    )
    show = _show_json if options.json else _show
    done = failed = 0
    with console.reporting() as report, closing(batch):
        report(Progress("answer", 0.0, f"{len(prompts)} prompts"))
        for item in batch:
            if isinstance(item, Answer) and not item.ended:
                continue
            with report.paused():  # the bar and standard output may be one terminal
                show(item)
            if isinstance(item, Totals):
                failed = item.failed
            else:
                done += 1
                report(Progress("answer", done / len(prompts), f"{done} of {len(prompts)} prompts"))
    return int(failed > 0)


def read_prompts(path: Path) -> list[str]:
    """Prompts of a suite, the first turn of each, or of a text file with one a line. Raises UserError."""
    if path.suffix in (".json", ".jsonl"):
        items = read_suite(path)
        if any(len(item.turns) > 1 for item in items):
            console.note("Only the first turn of each prompt is answered.", style="yellow")
        prompts = [item.turns[0] for item in items]
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UserError("cli.prompts_unread", path=path, error=error) from error
        prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise UserError("cli.no_prompts", path=path)
    return prompts


def _show_json(item: Answer | Totals) -> None:
    values = asdict(item) | {"tokens_per_second": item.tokens_per_second}
    if isinstance(item, Answer):
        values["error"] = item.error and str(item.error)
    console.write(json.dumps(values))


def _show(item: Answer | Totals) -> None:
    out, rate = console.out, f"{item.tokens_per_second or 0:.0f} tokens/s"
    if isinstance(item, Totals):
        sums = f"{item.prompts} prompts, {item.new_tokens} tokens in {item.seconds:.1f} s"
        out.print(f"{sums}, {rate} together", soft_wrap=True, markup=False)
        return
    out.print(Text(console.printable(item.prompt), style="bold"), soft_wrap=True)
    out.print(Text(console.printable(item.text)), soft_wrap=True)
    if item.error:
        console.note(str(item.error), style="red")
    facts = f"{item.state}, {item.new_tokens} tokens, {rate}"
    out.print(Text(facts, style="dim"), end="\n\n")
