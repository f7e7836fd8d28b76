"""Prompt suites: JSON lines with `id`, `task` and `turns`, or the bundled ones: those of the page, and `examples`."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.paths import ASSETS

EXAMPLES = ASSETS / "examples.json"


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation of a suite."""

    name: str
    task: str
    turns: tuple[str, ...]


def read_suite(path: Path | None, limit: int | None = None) -> list[Item]:
    """Return the items of a JSON-lines file, at most `limit` a task, tasks in turn; by default those of the page."""
    path = path or EXAMPLES
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            rows = json.loads(text)["examples"]
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        items = [
            Item(
                str(row.get("id", number)),
                str(row.get("task", "all")),
                tuple(row.get("turns") or [row["prompt"]]),
            )
            for number, row in enumerate(rows)
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("bench.not_a_suite", path=path, error=error) from error
    if not items or not all(isinstance(turn, str) for item in items for turn in item.turns):
        raise UserError("bench.empty_suite", path=path)
    by_task: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_task[item.task].append(item)
    chosen = [group[:limit] for group in by_task.values()]
    longest = max(map(len, chosen), default=0)
    return [group[number] for number in range(longest) for group in chosen if number < len(group)]
