"""HTML components with a static template; what they show arrives as text and is drawn by the script."""

from __future__ import annotations

import json
import mimetypes
from pathlib import Path

import gradio as gr
import plotly

from specdemo.ui import words

ASSETS = Path(__file__).resolve().parents[2] / "assets"
SCRIPTS = ASSETS / "view"
RUNS = ASSETS / "runs"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

# The script is an ES module: it is imported once by the browser and mounted by each component.
_MOUNT = """
const base = (window.gradio_config && window.gradio_config.root) || "";
import(base + "/gradio_api/file=" + %(path)s).then((module) => module.%(mount)s(
  element.querySelector(".sd-mount"),
  { read: () => props.value, watch: (call) => watch("value", call), words: %(words)s },
));
"""


class RunView(gr.HTML):
    """The run. Its value is an append-only text of JSON lines: page lines and events (see docs/trace-format.md)."""

    def __init__(self) -> None:
        super().__init__(
            value="",
            html_template='<div class="sd-mount"></div>',
            js_on_load=_mount("view.js", "mount"),
            elem_id="sd-view",
            apply_default_css=False,
        )

    def get_block_name(self) -> str:
        """The front-end component that draws it."""
        return "html"


class StatusView(gr.HTML):
    """What the model is doing. Its value is one JSON object: state, text, done."""

    def __init__(self) -> None:
        super().__init__(
            value="{}",
            html_template='<div class="sd-mount"></div>',
            js_on_load=_mount("status.js", "mountStatus"),
            elem_id="sd-model",
            apply_default_css=False,
        )

    def get_block_name(self) -> str:
        """The front-end component that draws it."""
        return "html"


class NoteView(gr.HTML):
    """What the chosen method is and needs. Its value is a JSON list of [kind, sentence]."""

    def __init__(self, value: str) -> None:
        super().__init__(
            value=value,
            html_template='<div class="sd-mount"></div>',
            js_on_load=_mount("note.js", "mountNote"),
            elem_id="sd-note",
            apply_default_css=False,
        )

    def get_block_name(self) -> str:
        """The front-end component that draws it."""
        return "html"


class AuditView(gr.HTML):
    """The last audit. Its value is one JSON object, or null."""

    def __init__(self) -> None:
        super().__init__(
            value="null",
            html_template='<div class="sd-mount"></div>',
            js_on_load=_mount("audit.js", "mountAudit"),
            elem_id="sd-audit",
            apply_default_css=False,
        )

    def get_block_name(self) -> str:
        """The front-end component that draws it."""
        return "html"


def page_head() -> str:
    """Plotly from the installed package: no request leaves the machine."""
    return f'<script defer src="/gradio_api/file={PLOTLY.as_posix()}"></script>'


def serve_assets() -> None:
    """Let the server hand out the script, the icons and Plotly."""
    mimetypes.add_type("text/javascript", ".js")  # some Windows machines call it plain text
    gr.set_static_paths([SCRIPTS, ASSETS / "icons", PLOTLY])


def _mount(file: str, function: str) -> str:
    return _MOUNT % {
        "path": json.dumps((SCRIPTS / file).as_posix()),
        "mount": function,
        "words": json.dumps(words.VIEW, ensure_ascii=True),
    }
