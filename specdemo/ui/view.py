"""HTML components with a static template; what they show arrives as text and is drawn by the script."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import gradio as gr
import plotly

from specdemo.export.table import SCRIPTS, modules
from specdemo.paths import ASSETS
from specdemo.ui import words

RUNS = ASSETS / "runs"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

# Scripts of what is seen first.
OPENING = (
    *("page/language.js", "play/view.js", "play/runs.js"),
    *("page/status.js", "methods/note.js", "page/teach.js"),
)

# The script is an ES module: it is imported once by the browser and mounted by each component.
_MOUNT = """
const base = (window.gradio_config && window.gradio_config.root) || "";
const file = (path) => import(base + "/gradio_api/file=" + path);
Promise.all([file(%(path)s), file(%(language)s).then(({ said }) => said(%(words)s, base))]).then(
  ([module, words]) => module.%(mount)s(element.querySelector(".sd-mount"), {
    read: () => props.value,
    watch: (call) => watch("value", call),
    send: (value) => { props.value = value; trigger("sent"); },
    server,
    words,
  }),
);
"""


def mounted(
    value: str,
    file: str,
    function: str,
    elem_id: str,
    *,
    own_words: dict[str, object] | None = None,
    answers: Sequence[Callable[[str], object]] = (),
) -> gr.HTML:
    """An element that a script of `assets/view` fills; the script reads the component's value, a text.

    What the script sends becomes the value and fires the component's event `sent`.
    own_words: a part's own; else all of the view's
    answers: functions that the script may ask, by name, each with one text
    """
    return gr.HTML(
        value=value,
        html_template='<div class="sd-mount"></div>',
        js_on_load=_mount(file, function, words.VIEW if own_words is None else own_words),
        elem_id=elem_id,
        apply_default_css=False,
        server_functions=[_plain(answer) for answer in answers],
    )


def run_view(value: str) -> gr.HTML:
    """The run: an append-only text of JSON lines, page lines and events (see docs/trace-format.md)."""
    return mounted(value, "play/view.js", "mount", "sd-view")


def status_view() -> gr.HTML:
    """What the model is doing: one JSON object with state, text and done."""
    return mounted("{}", "page/status.js", "mountStatus", "sd-model", own_words=_only("loading"))


def note_view(value: str) -> gr.HTML:
    """What the chosen method is and needs: a JSON list of [kind, sentence]."""
    return mounted(value, "methods/note.js", "mountNote", "sd-note", own_words=_only())


def audit_view() -> gr.HTML:
    """The last audit: one JSON object, or null."""
    return mounted("null", "methods/audit.js", "mountAudit", "sd-audit", own_words=_only("audit"))


def card_view() -> gr.HTML:
    """How the chosen method's weights were trained: a JSON object with a `card`, or with a sentence as `none`."""
    return mounted("{}", "methods/card.js", "mountCard", "sd-card", own_words=_only("card"))


def batch_view() -> gr.HTML:
    """Several prompts and their answers: one JSON object, see `present.batch`."""
    return mounted("{}", "play/batch.js", "mountBatch", "sd-batch", own_words=_only("batch"))


def page_head() -> str:
    """Plotly from the installed package, once the page is idle: no request leaves the machine, and text comes first."""
    return f"""<script>
(window.requestIdleCallback ?? setTimeout)(() => {{
  const script = document.createElement("script");
  script.src = {json.dumps(_address(PLOTLY))};
  document.head.append(script);
}}, {{ timeout: 3000 }});
</script>"""


class Preload:
    """Middleware: the page's answer names the files of the opening view, which a browser then fetches while Gradio starts."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app
        scripts = [f"<{_address(path)}>; rel=modulepreload" for path in _opening()]
        self.header = (b"link", ", ".join(scripts).encode())

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        """One request of ASGI."""

        async def named(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self.header]
            await send(message)

        page = scope["type"] == "http" and scope["path"] == "/"
        await self.app(scope, receive, named if page else send)


def serve_assets() -> None:
    """Let the server hand out the script, the recorded runs, the icons and Plotly."""
    mimetypes.add_type("text/javascript", ".js")  # some Windows machines call it plain text
    gr.set_static_paths([SCRIPTS, RUNS, ASSETS / "icons", PLOTLY])


def _address(path: Path) -> str:
    """Of a file that is served, relative to the page."""
    return f"gradio_api/file={path.as_posix()}"


def _opening() -> list[Path]:
    """Scripts of what is seen first and everything that they import, each once."""
    return [SCRIPTS / name for name in modules(*OPENING)]


def _only(*names: str) -> dict[str, object]:
    """These of the view's words."""
    return {name: words.VIEW[name] for name in names}


def _plain(answer: Callable[[str], object]) -> Callable[[str], object]:
    """The same as a function of its own: Gradio leaves a mark on it, which a method would not take."""

    @wraps(answer)
    def plain(asked: str) -> object:
        return answer(asked)

    return plain


def _mount(file: str, function: str, given: dict[str, object]) -> str:
    return _MOUNT % {
        "path": json.dumps((SCRIPTS / file).as_posix()),
        "language": json.dumps((SCRIPTS / "page/language.js").as_posix()),
        "mount": function,
        "words": json.dumps(given, ensure_ascii=True),
    }
