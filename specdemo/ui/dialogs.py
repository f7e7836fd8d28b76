"""The dialogs around the page: a link to share, the presenter mode, the list of keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr

from specdemo.config.strings import strings
from specdemo.session.door import Door
from specdemo.ui.address import others_reach, own_address, qr
from specdemo.ui.files import address
from specdemo.ui.recorded import recorded_runs
from specdemo.ui.view import mounted
from specdemo.ui.words import languages

words = strings("teach")

_CALL = '(...values) => import(((window.gradio_config || {{}}).root || "") + "/" + {path}).then((module) => {{ module.{function}(values); }})'


def create_dialog_buttons() -> gr.Button:
    """The buttons of the header. returns: Share, which wants the controls' values"""
    share = gr.Button(words.SHARE, size="sm", scale=0, elem_id="sd-share")
    present = gr.Button(words.PRESENT, size="sm", scale=0, elem_id="sd-present")
    keys = gr.Button(words.KEYS, size="sm", scale=0, elem_id="sd-keys")
    present.click(None, js=script("present"))
    keys.click(None, js=script("keys"))
    return share


def create_dialogs(studio: Door, share: gr.Button, fields: Mapping[str, Any]) -> gr.HTML:
    """The dialogs and what a link does. fields: the controls that it holds, by their names in it

    returns: what the script sends queries through, see `links.follow`
    """

    def reach(origin: str) -> dict[str, str]:
        return others_reach(origin, studio.settings.host, own_address())

    given = {
        "fields": [[name, control.value] for name, control in fields.items()],
        "languages": ["en", *languages()],
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
    return _CALL.format(path=json.dumps(address("view/page/teach.js")), function=function)
