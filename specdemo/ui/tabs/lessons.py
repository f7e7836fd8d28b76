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

WORDS = strings("lessons").WORDS


def create_lessons(studio: EngineClient) -> gr.HTML:
    """Create the tab's component, inside its tab. All of it happens in the browser."""
    value = lessons_value(RUNS, live=not studio.replay_only)
    return mounted(
        value, "lessons/lessons.js", "mountLessons", "sd-lessons", own_words=lessons_words()
    )


def lessons_value(folder: Path, *, live: bool) -> str:
    """Return the script's input: available recorded runs by name, and whether there is a model."""
    recorded = recorded_runs(folder)
    runs = {run.name: {"prompt": run.prompt, "settings": run.settings} for run in recorded}
    return json.dumps({"runs": runs, "live": live})


def lessons_words() -> dict[str, object]:
    """Return the lessons' strings, with the player's and the names of the policies."""
    return {**WORDS, "view": words.VIEW, "policies": words.POLICIES}


def _site(_studio: EngineClient, runs: Path) -> dict[str, object]:
    own = {name: value for name, value in lessons_words().items() if name != "view"}
    return {"value": lessons_value(runs, live=False), "words": own}


TAB = Tab(5, "lessons", words.TAB_LESSONS, create_lessons, _site)
