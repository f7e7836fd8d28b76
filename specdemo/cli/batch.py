"""The command `run --prompts FILE`: reads the prompts, prints each answer when it is whole, the totals last."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from specdemo.bench.suite import read_suite
from specdemo.errors import UserError
from specdemo.scenarios.batch import Answer, Totals, answer_all
from specdemo.session.studio import Studio
from specdemo.settings import RunSettings

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def run_all(
    studio: Studio,
    prompts: Sequence[str],
    settings: RunSettings,
    options: argparse.Namespace,
    bar: Progress,
) -> int:
    """Answer prompts together. returns: 1 when one of them failed"""
    task = bar.add_task("answers", total=len(prompts))
    batch = answer_all(studio, prompts, settings, at_once=options.at_once, system=options.system)
    failed = 0
    with closing(batch):
        for told in batch:
            if isinstance(told, Answer) and not told.ended:
                continue
            bar.live.stop()  # the bar and standard output may be one terminal
            (_print_json if options.json else _print)(told)
            bar.live.start()
            if isinstance(told, Totals):
                failed = told.failed
            else:
                bar.advance(task)
    return int(failed > 0)


def read_prompts(path: Path) -> list[str]:
    """Prompts of a suite, the first turn of each, or of a text file with one a line."""
    if path.suffix in (".json", ".jsonl"):
        items = read_suite(path)
        if any(len(item.turns) > 1 for item in items):
            err.print("Only the first turn of each prompt is answered.", style="yellow")
        prompts = [item.turns[0] for item in items]
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}.") from error
        prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise UserError(
            f"{path} holds no prompts.",
            advice="Write one a line, or JSON lines with `prompt` or `turns`.",
        )
    return prompts


def printable(text: str) -> str:
    """Text without control characters: it comes from a model and must not steer the terminal."""
    return "".join(
        letter if letter == "\n" or letter.isprintable() else f"\\x{ord(letter):02x}"
        for letter in text
    )


def _print_json(told: Answer | Totals) -> None:
    values = asdict(told) | {"tokens_per_second": told.tokens_per_second}
    if isinstance(told, Answer):
        values["error"] = told.error and str(told.error)
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _print(told: Answer | Totals) -> None:
    rate = f"{told.tokens_per_second or 0:.0f} tokens/s"
    if isinstance(told, Totals):
        sums = f"{told.prompts} prompts, {told.new_tokens} tokens in {told.seconds:.1f} s"
        out.print(f"{sums}, {rate} together", soft_wrap=True, markup=False)
        return
    out.print(Text(printable(told.prompt), style="bold"), soft_wrap=True)
    out.print(Text(printable(told.text)), soft_wrap=True)
    if told.error:
        err.print(str(told.error), style="red", soft_wrap=True, markup=False)
    facts = f"{told.state}, {told.new_tokens} tokens, {rate}"
    out.print(Text(facts, style="dim"), end="\n\n")
