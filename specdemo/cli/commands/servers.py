"""Read, tune and diagnose the drafts of servers of other programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.cli import console
from specdemo.config.strings import load

if TYPE_CHECKING:
    from specdemo.attach.pasted import Findings


def run_import(options: argparse.Namespace) -> int:
    """Print the records of files as one table. returns: 1 if a line of them could not be read"""
    from specdemo.attach.records import MOST_ROWS, markdown

    found = _read(options.files)
    records = [record for one in found for record in one.records]
    console.write(markdown(records))
    if len(records) > MOST_ROWS:
        console.note(f"{len(records) - MOST_ROWS} more requests are only in the sum.")
    if options.aiperf:
        known = [report for record in records if (report := record.aiperf())]
        lines = (json.dumps(report) + "\n" for report in known)
        options.aiperf.write_text("".join(lines), encoding="utf-8")
        console.note(f"Wrote {len(known)} of {len(records)} records to {options.aiperf}.")
    return int(any(one.problems.count for one in found))


def _read(paths: Iterable[Path]) -> list[Findings]:
    """Read files and report their formats and malformed lines on standard error."""
    from specdemo.attach.pasted import read_file

    found, words = [], load("servers")["import_problems"]
    for path in paths:
        one = read_file(path)
        found.append(one)
        count = len(one.records)
        console.note(f"{path.name}: {', '.join(one.kinds)}, {count} record{'s' * (count != 1)}")
        if one.synthetic:
            console.note(words["synthetic"], style="yellow")
        for line, kind in one.problems.first:
            console.note(f"{path.name}:{line}: {words[kind]}", style="yellow")
        if one.problems.count > len(one.problems.first):
            console.note(f"{path.name}: {one.problems.count} problems in all", style="yellow")
    return found
