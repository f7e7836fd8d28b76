"""What a lesson needs around the page: links that hold its state, QR codes, the presenter mode, the list of keys."""

from __future__ import annotations

import ipaddress
import json
import math
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import gradio as gr
import segno

from specdemo.session.studio import Studio
from specdemo.ui.runs import recorded_runs
from specdemo.ui.view import SCRIPTS, mounted
from specdemo.ui.words.en import teach as words

LONGEST_TEXT = 8000  # characters of a prompt in a link
QUIET = 4  # light modules around a QR code
OTHERS = "python app.py --host 0.0.0.0"
_CALL = '(...values) => import(((window.gradio_config || {{}}).root || "") + "/gradio_api/file=" + {path}).then((module) => {{ module.{function}(values); }})'


def create_teach_buttons() -> gr.Button:
    """The buttons of the header. returns: Share, which wants the controls' values"""
    share = gr.Button(words.SHARE, size="sm", scale=0, elem_id="sd-share")
    present = gr.Button(words.PRESENT, size="sm", scale=0, elem_id="sd-present")
    keys = gr.Button(words.KEYS, size="sm", scale=0, elem_id="sd-keys")
    present.click(None, js=script("present"))
    keys.click(None, js=script("keys"))
    return share


def create_teach(studio: Studio, share: gr.Button, fields: Mapping[str, Any]) -> gr.HTML:
    """The dialogs and what a link does. fields: the controls that it holds, by their names in it

    returns: what the script sends queries through, see `follow`
    """

    def reach(origin: str) -> dict[str, str]:
        return others_reach(origin, studio.settings.host, own_address())

    given = {
        "fields": [[name, control.value] for name, control in fields.items()],
        "opening": next((run.name for run in recorded_runs()), ""),
    }
    teach = mounted(
        json.dumps(given),
        "page/teach.js",
        "mountTeach",
        "sd-teach",
        own_words=words.WORDS,
        answers=(qr, reach),
    )
    share.click(None, list(fields.values()), None, js=script("share"))
    return teach


def script(function: str) -> str:
    """JavaScript that calls a function of teach.js with the values of an event's inputs."""
    return _CALL.format(path=json.dumps((SCRIPTS / "page/teach.js").as_posix()), function=function)


def follow(query: str | None, fields: Mapping[str, Any], tabs: tuple[str, ...]) -> list[Any]:
    """What a link does to the page. returns: sentences as JSON, the tab, then an update of each field"""
    values, problems = read_link(query or "", fields, tabs)
    tab = gr.Tabs(selected=values["tab"]) if "tab" in values else gr.skip()
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
    return values, problems


def accepted(control: Any, text: str) -> object:
    """A text of a link as the value of a control. Raises ValueError for one that the control cannot have."""
    if isinstance(control, gr.Checkbox):
        return bool(("0", "1").index(text))
    if isinstance(control, gr.Dropdown):
        names = [name for _, name in control.choices]
        return names[names.index(text)]
    if isinstance(control, gr.Slider | gr.Number):
        whole = control.step >= 1 if isinstance(control, gr.Slider) else control.precision == 0
        number = int(text) if whole else float(text)
        most = math.inf if control.maximum is None else control.maximum
        if not (control.minimum <= number <= most and math.isfinite(number)):
            raise ValueError(text)
        return number
    return text[:LONGEST_TEXT]


def qr(address: str) -> dict[str, object]:
    """A QR code. returns: modules a side with the margin, and SVG path data of the dark ones; size 0 when too long"""
    try:
        code = segno.make_qr(address, error="l")
    except segno.DataOverflowError:
        return {"size": 0, "path": ""}
    rows = list(code.matrix_iter(border=QUIET))
    dark = [(x, y) for y, row in enumerate(rows) for x, module in enumerate(row) if module]
    return {"size": len(rows), "path": "".join(f"M{x} {y}h1v1h-1z" for x, y in dark)}


def others_reach(origin: str, host: str, own: str) -> dict[str, str]:
    """Whether others can open the page at the address that this browser uses.

    host: what the server listens on; own: this machine's address in its network, "" if it has none
    returns: a sentence, "" when they can, and the address that they can open, "" when there is none yet
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


def loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_address() -> str:
    """This machine's address in its network, or "". Nothing is sent: a UDP socket only looks up the route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if loopback(found) else found
