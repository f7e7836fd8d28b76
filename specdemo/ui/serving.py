"""How the page is served: the files that it loads, which of them first, its looks, and what must stay off."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from specdemo.errors import UserError
from specdemo.export.table import SCRIPTS, modules, player_page, style_files
from specdemo.models.doctor import installed
from specdemo.paths import ASSETS
from specdemo.settings import AppSettings
from specdemo.ui import words
from specdemo.ui.files import PLOTLY_NAME, address, files_route
from specdemo.ui.gate import outermost
from specdemo.ui.monitor import Watched, monitor_routes
from specdemo.ui.recorded import recorded_runs
from specdemo.ui.site import NOTEBOOK, lesson_package
from specdemo.ui.theme import create_theme

UNTRANSLATED_MS = 8000  # the page waits for its words no longer
WORDLESS_MS = 4000  # charts wait for the first word of a run no longer: there may be none
FIRST_WORD = "#sd-view .sd-answer .sd-token"
THREADS = 40  # of Gradio's own accord

# Scripts of what is seen first.
OPENING = (
    *("page/language.js", "play/view.js", "play/runs.js"),
    *("page/status.js", "methods/note.js", "page/teach.js"),
)


def launch_options(studio: Watched | None = None) -> dict[str, object]:
    """What Gradio takes at launch: looks, files, the empty player and what must stay off.

    studio: whose settings say who may come in; its health and figures are served too
    Raises UserError for an MCP server without its package.
    """
    watched = monitor_routes(studio) if studio else []
    settings = studio.settings if studio else AppSettings()
    if settings.mcp and not installed("mcp"):
        raise UserError(
            "The MCP server needs the package mcp, which this installation does not have.",
            advice="pip install -r requirements-mcp.txt, or start without --mcp and SPECDEMO_MCP.",
        )
    return {
        "theme": create_theme(),
        "css_paths": style_files(),
        "head": _page_head(),
        "app_kwargs": {
            "routes": [
                Route("/player.html", _player),
                Route("/words/{language}.json", _words),
                Route("/class/{language}/lessons-scorm-1.2.zip", _lessons),
                Route("/class/{language}/speculative_decoding.ipynb", _notebook),
                files_route(),
                *watched,
            ],
            "lifespan": outermost(settings),
            "middleware": [Middleware(Preload)],
        },
        "favicon_path": ASSETS / "icons" / "favicon.svg",
        "max_threads": _threads(studio.settings) if studio else THREADS,
        "ssr_mode": False,
        "run_history": False,
        "show_error": False,
        "enable_monitoring": False,
        "share": False,
        "mcp_server": settings.mcp,
        "footer_links": ["gradio", "settings"],
        "quiet": True,
    }


def _threads(settings: AppSettings) -> int:
    """Whoever runs or waits needs a thread at times, in two parts of the page too; the rest is for what is quick."""
    return THREADS + 2 * (settings.runs_at_once + settings.waiting_visitors)


def _page_head() -> str:
    """The styles, so that the first paint has them, and no text in a language that is about to be replaced.

    Plotly comes from the installed package: no request leaves the machine. It takes a browser as long as all the rest,
    so that it waits for the first words.
    """
    sheets = [path.relative_to(SCRIPTS).as_posix() for path in style_files()]
    links = "".join(f'<link rel="stylesheet" href="{address(f"view/{name}")}">' for name in sheets)
    return f"""{links}<style>.sd-translating gradio-app {{ visibility: hidden; }}</style>
<script>
{{
  const asked = [new URLSearchParams(location.search).get("lang"), navigator.language.slice(0, 2)];
  const known = {json.dumps(["en", *words.languages()])};
  const language = asked.find((wished) => known.includes(wished)) ?? "en";
  document.documentElement.classList.toggle("sd-translating", language !== "en");
  setTimeout(() => document.documentElement.classList.remove("sd-translating"), {UNTRANSLATED_MS});
}}
{{
  const begun = performance.now();
  const waiting = setInterval(() => {{
    if (!document.querySelector("{FIRST_WORD}") && performance.now() - begun < {WORDLESS_MS}) return;
    clearInterval(waiting);
    const script = document.createElement("script");
    script.src = {json.dumps(address(PLOTLY_NAME))};
    document.head.append(script);
  }}, 50);
}}
</script>"""


class Preload:
    """Middleware: the page's answer names the files of the opening view, which a browser then fetches while Gradio starts."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app
        scripts = [
            f"<{address(f'view/{name}')}>; rel=modulepreload; fetchpriority=low"
            for name in modules(*OPENING)
        ]
        first = [
            f"<{address(f'runs/{run.name}.jsonl')}>; rel=preload; as=fetch; crossorigin; fetchpriority=low"
            for run in recorded_runs()[:1]
        ]
        self.header = (b"link", ", ".join([*scripts, *first]).encode())

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


def _player(_request: Request) -> HTMLResponse:
    """The one-file player, into which the script puts the run that is exported."""
    return HTMLResponse(player_page(words.VIEW))


def _lessons(request: Request) -> Response:
    """The static site as a SCORM package, for the class pack that a browser makes."""
    language = request.path_params["language"]
    if language not in ("en", *words.languages()):
        return Response(status_code=404)
    return Response(_package(language), media_type="application/zip")


@cache
def _package(language: str) -> bytes:
    return lesson_package(language)


def _notebook(_request: Request) -> Response:
    """The notebook, where it is: a wheel does not hold it."""
    if not NOTEBOOK.is_file():
        return Response(status_code=404)
    return FileResponse(NOTEBOOK, media_type="application/x-ipynb+json")


def _words(request: Request) -> Response:
    """The page's texts in another language, by the English ones."""
    language = request.path_params["language"]
    if language not in words.languages():
        return Response(status_code=404)
    return JSONResponse(words.translations(language))
