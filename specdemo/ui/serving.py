"""How the page is served: the files that it loads, which of them first, its looks, and what must stay off."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from specdemo.export.table import SCRIPTS, modules, player_page, style_files
from specdemo.paths import ASSETS
from specdemo.ui import words
from specdemo.ui.monitor import Watched, monitor_routes
from specdemo.ui.theme import create_theme
from specdemo.ui.view import RUNS

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

# Scripts of what is seen first.
OPENING = (
    *("page/language.js", "play/view.js", "play/runs.js"),
    *("page/status.js", "methods/note.js", "page/teach.js"),
)


def launch_options(studio: Watched | None = None) -> dict[str, object]:
    """What Gradio takes at launch: looks, Plotly, the empty player and what must stay off.

    studio: whose health and figures are served too
    """
    watched = monitor_routes(studio) if studio else []
    return {
        "theme": create_theme(),
        "css_paths": style_files(),
        "head": _page_head(),
        "app_kwargs": {
            "routes": [
                Route("/player.html", _player),
                Route("/words/{language}.json", _words),
                *watched,
            ],
            "middleware": [Middleware(Preload)],
        },
        "favicon_path": ASSETS / "icons" / "favicon.svg",
        "ssr_mode": False,
        "run_history": False,
        "show_error": False,
        "quiet": True,
    }


def _page_head() -> str:
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


def _player(_request: Request) -> HTMLResponse:
    """The one-file player, into which the script puts the run that is exported."""
    return HTMLResponse(player_page(words.VIEW))


def _words(request: Request) -> Response:
    """The page's texts in another language, by the English ones."""
    language = request.path_params["language"]
    if language not in words.LANGUAGES:
        return Response(status_code=404)
    return JSONResponse(words.translations(language))
