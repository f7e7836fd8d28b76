"""Measured tables of the documents, rendered from the JSON files in docs/measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specdemo.bench.audit_result import AuditResult
from specdemo.bench.audit_result import as_table as audit_table
from specdemo.bench.lanes import PLAIN
from specdemo.bench.report import aligned, by_position, summary
from specdemo.bench.report import readme as by_task

FOLDER = "docs/measured"
FACTOR = re.compile(r"(?<=\d)x\b")  # as the commands print it: the documents have the sign


def read_measurements(root: Path) -> Iterator[dict[str, Any]]:
    """Each file as plain values, in the order of the file names.

    Every file has `title`, `machine`, `date` and, when it was noted, `command`. ConcatInput them stand the values that
    `bench --json` writes (`rows`), those of `audit --json` (`methods`), or plain tables (`tables`).
    """
    for path in sorted((root / FOLDER).glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def measured_tables(root: Path) -> str:
    """All measurements as Markdown: a section for each file."""
    return FACTOR.sub("×", "\n\n".join(_section(data) for data in read_measurements(root)))


def readme_table(root: Path) -> str:
    """The README's table: the lanes that a bench lists under `readme`, the fastest first."""
    data = next(data for data in read_measurements(root) if "readme" in data)
    rows = [row for row in data["rows"] if row["lane"] in data["readme"]]
    means = sorted((row for row in rows if row["task"] == "mean"), key=lambda row: -row["speedup"])
    body = []
    for mean in means:
        tasks = [row for row in rows if row["lane"] == mean["lane"] and row["task"] != "mean"]
        worst, best = (
            f"{row['speedup']:.2f}× {row['task'].replace('_', ' ')}"
            for row in (pick(tasks, key=lambda row: row["speedup"]) for pick in (min, max))
        )
        body.append(
            [
                f"`{mean['lane']}`",
                f"**{mean['speedup']:.2f}×**",
                best,
                worst,
                f"{100 * mean['first_accept_rate']:.0f} %",
                f"{mean['tokens_per_step']:.2f}",
            ]
        )
    heads = ["method", "speedup", "best task", "worst task", "first accepted", "tokens/step"]
    return f"{aligned(heads, body)}\n\n{data['machine']}, {data['date']}. {data['about']}"


def _section(data: dict[str, Any]) -> str:
    blocks = [f"## {data['title']}", f"{data['machine']}; {data['date']}. {data['about']}"]
    if "command" in data:
        needs = "time, data" if "--suite" in data["command"] else "time"
        blocks.append(f"<!-- needs: {needs} -->\n```sh\n{data['command']}\n```")
    if "rows" in data:
        blocks += _bench(data)
    elif "methods" in data:
        blocks.append(audit_table(AuditResult.from_dict(_only_audit(data))))
    else:
        blocks += _tables(data)
    return "\n\n".join(blocks)


def _tables(data: dict[str, Any]) -> list[str]:
    return [
        aligned(table["columns"], [[str(cell) for cell in row] for row in table["rows"]])
        for table in data["tables"]
    ]


def _bench(data: dict[str, Any]) -> Iterator[str]:
    rows, show = data["rows"], data.get("show", ("summary", "tasks", "positions"))
    if "summary" in show:
        yield summary(rows, data["memory_mb"], data["training_minutes"])
    if "tasks" in show:
        yield by_task(rows, PLAIN)
    if "positions" in show:
        yield by_position(rows)


def _only_audit(data: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in data.items() if name not in ("title", "command", "about")
    }
