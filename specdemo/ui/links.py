"""Links to the page, with values of settings, a tab or a recorded run in the query; and the page's address for other machines."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import gradio as gr
import segno
from gradio.components import Component

from specdemo.config.settings import OWN, PRESET_NAMES, field, loopback, replacement
from specdemo.config.strings import JsonView, strings
from specdemo.trace.replay import recorded_runs
from specdemo.ui.checks import MOST_NUMBER

words = strings("teach")

LESSONS = tuple(str(number + 1) for number in range(len(strings("lessons").WORDS["lessons"])))
LONGEST_TEXT = 8000  # characters of a prompt in a link


def follow(query: str | None, fields: JsonView, tabs: tuple[str, ...]) -> list[object]:
    """Apply a link. returns: problems as JSON, the tab, then an update of each field"""
    values, problems = read_link(query or "", fields, tabs)
    tab = gr.Tabs(selected=str(values["tab"])) if "tab" in values else gr.skip()
    updates = [gr.update(value=values[name]) if name in values else gr.skip() for name in fields]
    return [json.dumps(problems), tab, *updates]


def read_link(
    query: str, fields: JsonView, tabs: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """Return the values in a link, and a problem for each impossible one."""
    choices = {
        "tab": tabs,
        "recorded": tuple(run.name for run in recorded_runs()),
        "lesson": LESSONS,
    }
    values: dict[str, object] = {}
    problems = []
    named = parse_qsl(query, keep_blank_values=True)
    if "lesson" in dict(named) and "lessons" in tabs:
        values["tab"] = "lessons"
    for name, text in named:
        try:
            if name in fields and (new := replacement(name, text)):
                values |= new
                sentence = str(words.WORDS["replaced_value"])
                problems.append(sentence.format(value=text, new=", ".join(new.values())))
            elif name in fields:
                values[name] = accepted(fields[name], text)
            elif name in choices:
                values[name] = choices[name][choices[name].index(text)]
        except ValueError:
            sentence = str(words.WORDS["unknown_value"])
            problems.append(sentence.format(name=name, value=text[:80]))
    return {**_own_values(values), **values}, problems


def _own_values(values: Mapping[str, object]) -> dict[str, object]:
    """Return the implied values of a link with own values of sampling: the others are off."""
    preset, drawn = (
        field("preset").link,
        {row.link: row.default for row in map(field, PRESET_NAMES)},
    )
    if values.get(preset) == OWN or (preset not in values and drawn.keys() & values.keys()):
        return {preset: OWN, **drawn}
    return {}


def accepted(control: Component, text: str) -> object:
    """Return a text of a link as the value of a control. Raises ValueError for an impossible one."""
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


QUIET_MODULES = 4  # light modules around a QR code
OTHERS = "python app.py --host 0.0.0.0"


def qr(address: str) -> dict[str, object]:
    """Make a QR code. returns: modules a side with the margin, and SVG path data of the dark ones; size 0 if it is too long"""
    try:
        code = segno.make_qr(address, error="l")
    except segno.DataOverflowError:
        return {"size": 0, "path": ""}
    rows = list(code.matrix_iter(border=QUIET_MODULES))
    dark = [(x, y) for y, row in enumerate(rows) for x, module in enumerate(row) if module]
    return {"size": len(rows), "path": "".join(f"M{x} {y}h1v1h-1z" for x, y in dark)}


def others_reach(origin: str, host: str, own: str) -> dict[str, str]:
    """Return whether others can open the page at the address that this browser uses.

    host: address on which the server listens; own: this machine's address in its network, "" if it has none
    returns: a message, "" if they can; and the address that they can open, "" if there is none yet
    """
    parts = urlsplit(origin)
    if not loopback(parts.hostname or "") or not own:
        return {"sentence": "", "address": ""}
    address = f"{parts.scheme}://{own}" + (f":{parts.port}" if parts.port else "")
    if loopback(host):
        sentence = words.LOCAL_ONLY.format(command=OTHERS, address=address)
        return {"sentence": sentence, "address": ""}
    sentence = words.LOCAL_NAME.format(here=origin, address=address)
    return {"sentence": sentence, "address": address}


def own_address() -> str:
    """Return this machine's address in its network, or "". Nothing is sent: a UDP socket only computes the route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if loopback(found) else found
