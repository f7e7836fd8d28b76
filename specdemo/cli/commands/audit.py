"""Test on the real model that methods are lossless, and show a scheduler that is not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdemo.cli import console

if TYPE_CHECKING:
    from specdemo.bench.results import Table
    from specdemo.session.work.two_words import Row


def run(options: argparse.Namespace) -> int:
    """Audit methods. returns: 1 if one that claims to be lossless is not"""
    from specdemo.bench.audit import run_audit
    from specdemo.bench.report import text

    names = None if options.methods == "all" else options.methods.split(",")
    studio = console.open_studio(options)
    with console.reporting() as progress:
        found = run_audit(studio, names, options.runs, options.tokens, progress)
    result = found.result()
    console.write(json.dumps(result.to_dict(), indent=1) if options.json else text(result))
    return 0 if found.held else 1


def run_counterexample(options: argparse.Namespace) -> int:
    """Print three schedulers on a vocabulary of two tokens, by fractions and by real runs."""
    from specdemo.bench.report import markdown
    from specdemo.session.work.two_words import demonstrate

    console.write(markdown(counterexample_table(demonstrate(options.runs))))
    return 0


def counterexample_table(rows: Sequence[Row]) -> Table:
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
