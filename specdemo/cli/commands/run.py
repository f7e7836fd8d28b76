"""Answers one prompt, or a file of prompts."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.batch import answer_prompts, read_prompts
from specdemo.cli.options import (
    add_models,
    add_option,
    add_run_settings,
    check_folders,
    run_settings,
)
from specdemo.cli.show import show_event, show_metrics
from specdemo.config.errors import UserError
from specdemo.config.settings import RECOMMENDED
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.work.batch import AT_ONCE
from specdemo.trace.codec import dumps, encode
from specdemo.trace.events import SPECULATIVE, Event, RunFailed, Trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to answer, and what to print and keep."""
    parser.add_argument("prompt", nargs="?", help="the prompt; --prompts takes a file of them")
    add_option(
        parser,
        "--prompts",
        type=Path,
        metavar="FILE",
        about="answer all prompts of a file together, without a baseline: one per line, or JSON lines with "
        "`prompt` or `turns`",
    )
    add_option(
        parser,
        "--at-once",
        type=int,
        default=AT_ONCE,
        metavar="N",
        about="prompts of --prompts that are answered at the same time, at most",
    )
    add_option(
        parser,
        "--json",
        action="store_true",
        about="print the trace as JSON lines; with --prompts, one line per answer",
    )
    add_option(parser, "--save", type=Path, metavar="FILE", about="also write the trace to a file")
    add_option(
        parser,
        "--online-weights",
        type=Path,
        metavar="FILE",
        about="what `online` has learned is read from this file and written back to it",
    )
    add_run_settings(parser, preset=RECOMMENDED)
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """returns: 1 when a run broke off"""
    if bool(options.prompts) == bool(options.prompt):
        raise UserError("cli.run_source")
    check_folders(options.save, options.online_weights)
    if options.prompts:
        if options.save or options.online_weights:
            raise UserError("cli.run_one_prompt")
        prompts, settings = read_prompts(options.prompts), run_settings(options)
        return answer_prompts(console.open_studio(options), prompts, settings, options)
    return _run_one(options)


def _run_one(options: argparse.Namespace) -> int:
    settings = run_settings(options)
    conversation = console.open_studio(options).open()
    conversation.memory.saved_head = options.online_weights
    events: list[Event] = []
    for event in conversation.run(
        options.prompt, settings, system=options.system, every=LOOK_SECONDS
    ):
        events.append(event)
        if options.json:
            console.write(encode(event))
        elif event.lane == SPECULATIVE or settings.method == "nothing":
            show_event(event)
    if options.save:
        options.save.write_text(dumps(events), encoding="utf-8")
    if options.online_weights:
        conversation.memory.save_head(options.online_weights)
    if not options.json:
        console.out.print()
        show_metrics(Trace(tuple(events)), "measured")
    return int(any(isinstance(event, RunFailed) for event in events))
