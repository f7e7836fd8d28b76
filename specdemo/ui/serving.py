"""How the page is served: the files that it loads, which of them first, its looks, and what must stay off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from specdemo.config.errors import UserError
from specdemo.config.paths import ASSETS
from specdemo.config.settings import AppSettings
from specdemo.models.doctor import installed
from specdemo.trace.tables import SCRIPTS, modules, player_page, style_files
from specdemo.ui import words
from specdemo.ui.files import address, files_route
from specdemo.ui.first_words import first_words
from specdemo.ui.gate import outermost
from specdemo.ui.monitor import Watched, monitor_routes
from specdemo.ui.recorded import recorded_runs
from specdemo.ui.site import NOTEBOOK, lesson_package
from specdemo.ui.theme import create_theme

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
        raise UserError("cli.no_mcp")
    return {
        "theme": create_theme(),
        "css_paths": style_files(),
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
            "middleware": [Middleware(Head)],
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


class Head:
    """Middleware: the page arrives with its styles and its first words, and names the files that come next.

    Gradio's own `head` is put in by its scripts, long after the first paint. A browser fetches what is named while
    Gradio starts.
    """

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
        self.link = (b"link", ", ".join([*scripts, *first]).encode())
        sheets = [path.relative_to(SCRIPTS).as_posix() for path in style_files()]
        self.styles = "".join(
            f'<link rel="stylesheet" href="{address(f"view/{name}")}">' for name in sheets
        ).encode()
        self.words = first_words().encode()

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        """One request of ASGI."""
        if scope["type"] != "http" or scope["path"] != "/":
            await self.app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = b""

        async def whole(message: dict[str, Any]) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                page = self._with_words(body)
                length = (b"content-length", str(len(page)).encode())
                kept = [each for each in start["headers"] if each[0] != length[0]]
                await send({**start, "headers": [*kept, length, self.link]})
                await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, whole)

    def _with_words(self, page: bytes) -> bytes:
        """The page's HTML with the styles at the end of its head, and the words at the beginning of its body."""
        head, end, rest = page.partition(b"</head>")
        begin, close, body = rest.partition(b">")
        return head + self.styles + end + begin + close + self.words + body if end else page


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
