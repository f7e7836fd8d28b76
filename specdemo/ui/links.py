"""What a link does to the page: a query with values of settings, a tab, a recorded run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from specdemo.config.settings import DRAWN, OWN, field
from specdemo.config.strings import strings
from specdemo.ui.checks import MOST_NUMBER
from specdemo.ui.recorded import recorded_runs

words = strings("teach")

LONGEST_TEXT = 8000  # characters of a prompt in a link


def follow(query: str | None, fields: Mapping[str, Any], tabs: tuple[str, ...]) -> list[Any]:
    """What a link does to the page. returns: sentences as JSON, the tab, then an update of each field"""
    values, problems = read_link(query or "", fields, tabs)
    tab = gr.Tabs(selected=str(values["tab"])) if "tab" in values else gr.skip()
    updates = [gr.update(value=values[name]) if name in values else gr.skip() for name in fields]
    return [json.dumps(problems), tab, *updates]


def read_link(
    query: str, fields: Mapping[str, Any], tabs: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """The values that a link asks for, and a sentence for each one that is not possible."""
    choices = {"tab": tabs, "recorded": tuple(run.name for run in recorded_runs())}
    values: dict[str, object] = {}
    problems = []
    for name, text in parse_qsl(query, keep_blank_values=True):
        try:
            if name in fields:
                values[name] = accepted(fields[name], text)
            elif name in choices:
                values[name] = choices[name][choices[name].index(text)]
        except ValueError:
            sentence = str(words.WORDS["unknown_value"])
            problems.append(sentence.format(name=name, value=text[:80]))
    return {**_own_values(values), **values}, problems


def _own_values(values: Mapping[str, object]) -> dict[str, object]:
    """What a link means that names values of sampling, or that they are the visitor's own: the others are off."""
    preset, drawn = field("preset").link, {row.link: row.default for row in map(field, DRAWN)}
    if values.get(preset) == OWN or (preset not in values and drawn.keys() & values.keys()):
        return {preset: OWN, **drawn}
    return {}


def accepted(control: Any, text: str) -> object:
    """A text of a link as the value of a control. Raises ValueError for one that the control cannot have."""
    if isinstance(control, gr.Checkbox):
        return bool(("0", "1").index(text))
    if isinstance(control, gr.Dropdown | gr.Radio):
        names = [name for _, name in control.choices]
        return names[names.index(text)]
    if isinstance(control, gr.Slider | gr.Number):
        whole = control.step >= 1 if isinstance(control, gr.Slider) else control.precision == 0
        number = int(text) if whole else float(text)
        least = -MOST_NUMBER if control.minimum is None else control.minimum
        most = MOST_NUMBER if control.maximum is None else control.maximum
        if not least <= number <= most:  # nor when it is no number
            raise ValueError(text)
        return number
    return text[:LONGEST_TEXT]
