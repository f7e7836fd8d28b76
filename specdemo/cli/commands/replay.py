"""Shows a saved trace; needs no model and no torch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_option
from specdemo.cli.show import show_event, show_metrics
from specdemo.trace.events import SPECULATIVE
from specdemo.trace.metrics import measure
from specdemo.trace.replay import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which trace."""
    parser.add_argument("file", type=Path, help="trace as JSON lines")
    add_option(parser, "--json", action="store_true", about="print the metrics as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the answer and the figures."""
    replayed = read(options.file)
    trace = replayed.trace
    if options.json:
        found = {lane: measure(trace.lane(lane)).values() for lane in trace.lanes}
        console.write(json.dumps(found, indent=1))
    else:
        shown = SPECULATIVE if SPECULATIVE in trace.lanes else trace.lanes[0]
        for event in trace.lane(shown).events:
            show_event(event)
        console.out.print()
        show_metrics(trace, "recorded")
    if replayed.problem:
        console.note(replayed.problem, style="yellow")
    return 0
