"""Files of prompts: JSON lines, a prompt a line, or the bundled ones: those of the page, and `examples`."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.paths import ASSETS
from specdemo.config.strings import JsonView

EXAMPLES = ASSETS / "examples.json"


@dataclass(frozen=True, slots=True)
class Item:
    """The user's messages of one conversation."""

    name: str
    task: str
    turns: tuple[str, ...]


def read_prompts(path: Path) -> list[Item]:
    """Return the items of a file in their order. Raises UserError for a file without prompts.

    JSON lines have `prompt` or `turns`, and may have `id` and `task`; a .json file has such rows as `examples`. Of any
        other text each line is a prompt.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            rows = json.loads(text)["examples"]
        elif path.suffix == ".jsonl" or text.lstrip().startswith("{"):
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        else:
            rows = [{"prompt": line} for line in map(str.strip, text.splitlines()) if line]
        items = [_item(row, number) for number, row in enumerate(rows)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("cli.prompts_unread", path=path, error=error) from error
    if not items:
        raise UserError("cli.no_prompts", path=path)
    return items


def _item(row: JsonView, number: int) -> Item:
    turns = row.get("turns") or [row.get("prompt")]
    if not all(isinstance(turn, str) for turn in turns):
        raise ValueError(f"line {number + 1} has no prompt")
    return Item(str(row.get("id", number)), str(row.get("task", "all")), tuple(turns))


def read_suite(path: Path | None, limit: int | None = None) -> list[Item]:
    """Return the items of a file, at most `limit` a task, tasks in turn; by default those of the page."""
    by_task: dict[str, list[Item]] = defaultdict(list)
    for item in read_prompts(path or EXAMPLES):
        by_task[item.task].append(item)
    chosen = [group[:limit] for group in by_task.values()]
    longest = max(map(len, chosen))
    return [group[number] for number in range(longest) for group in chosen if number < len(group)]
