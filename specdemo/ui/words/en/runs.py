"""Titles of what is shipped to look at: recorded runs and examples. Each stands in its own file of `assets/`, in English."""

from __future__ import annotations

import json

from specdemo.config.paths import ASSETS


def _titles(file: str, entries: str) -> dict[str, str]:
    """By themselves, so that a language names what it translates."""
    listed = json.loads((ASSETS / file).read_text(encoding="utf-8"))[entries]
    return {entry["title"]: entry["title"] for entry in listed}


RUNS = _titles("runs/index.json", "runs")
EXAMPLES = _titles("examples.json", "examples")
