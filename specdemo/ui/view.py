"""The two components that our script draws: the view of a run and the status of the model.

Both have a static template and text as their value; the script alone turns that text into elements.
"""

from __future__ import annotations

import json

import gradio as gr

from specdemo.ui import shelf, words

_MOUNT = """{script}
const read = () => props.value;
modules.{module}.{mount}(element.querySelector(".{hook}"), {{
  read, watch: (call) => watch("value", call), words: {words},
}});"""


def trace_view(value: str) -> gr.HTML:
    """The view of a run; its value is a growing text of JSON lines."""
    return _component("view", "mount", "sd-view", value)


def model_status(value: str) -> gr.HTML:
    """The status of the model; its value is what `status_line` made."""
    return _component("status", "mountStatus", "sd-model-status", value)


def status_line(state: str, text: str, done: float | None = None) -> str:
    """The value of `model_status`: state is loading, ready or failed; done is a share or None when unknown."""
    return json.dumps({"state": state, "text": text, "done": done})


def _component(module: str, mount: str, hook: str, value: str) -> gr.HTML:
    return gr.HTML(
        value=value,
        html_template=f'<div class="{hook}"></div>',
        js_on_load=_MOUNT.format(
            script=shelf.script(), module=module, mount=mount, hook=hook, words=json.dumps(words.VIEW)
        ),
        apply_default_css=False,
        elem_id=hook,
        container=False,
        padding=False,
    )
