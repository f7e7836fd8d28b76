"""The recorded runs that are shipped with the page, and their menu."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from specdemo.config.strings import strings
from specdemo.ui import present
from specdemo.ui.view import RUNS, mounted

WORDS = strings("teach").WORDS


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A trace of `assets/runs`: its name is the file's, without `.jsonl`."""

    name: str
    title: str
    prompt: str = ""
    method: str = ""


def recorded_runs(folder: Path = RUNS) -> list[RecordedRun]:
    """The recorded runs in the order of the folder's index, without those whose file is missing."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))["runs"]
    runs = [
        RecordedRun(
            entry["name"],
            entry["title"],
            entry.get("prompt", ""),
            entry.get("settings", {}).get("method", ""),
        )
        for entry in index
    ]
    return [run for run in runs if (folder / f"{run.name}.jsonl").is_file()]


def opening_line() -> str:
    """The stream with which the page opens: the first recorded run, or nothing yet."""
    for run in recorded_runs():
        return present.recorded_line(run.name, run.title, "opening")
    return present.open_line("live", "empty")


def create_runs() -> gr.HTML:
    """The menu of recorded runs; its event `sent` leaves the chosen one's name as its value."""
    runs = [[run.name, run.title, run.prompt, run.method] for run in recorded_runs()]
    return mounted(
        "", "play/runs.js", "mountRuns", "sd-runs", own_words={"label": WORDS["runs"], "runs": runs}
    )
