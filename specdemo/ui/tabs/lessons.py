"""Eight short lessons, each with a recorded run, a live part, questions and a takeaway."""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

from specdemo.config.strings import strings
from specdemo.session.door import EngineClient
from specdemo.trace.replay import RUNS, recorded_runs
from specdemo.ui import words
from specdemo.ui.view import Tab, mounted

WORDS = {**strings("lessons").WORDS, "policies": words.POLICIES}


def create_lessons(studio: EngineClient) -> gr.HTML:
    """Create the tab's component, inside its tab. All of it happens in the browser."""
    value = lessons_value(RUNS, live=not studio.replay_only)
    own = {**WORDS, "view": words.VIEW}
    return mounted(value, "lessons/lessons.js", "mountLessons", "sd-lessons", own_words=own)


def lessons_value(folder: Path, *, live: bool) -> str:
    """Return the script's input: available recorded runs by name, and whether there is a model."""
    recorded = recorded_runs(folder)
    runs = {run.name: {"prompt": run.prompt, "settings": run.settings} for run in recorded}
    return json.dumps({"runs": runs, "live": live})


def _site(_studio: EngineClient, runs: Path) -> dict[str, object]:
    return {"value": lessons_value(runs, live=False), "words": WORDS}


TAB = Tab(5, "lessons", words.TAB_LESSONS, create_lessons, _site)
