"""Options of the server: files, preloads, first content, theme, health and metrics of the page."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable
from html import escape
from importlib.util import find_spec
from pathlib import Path

import gradio as gr
from anyio import CapacityLimiter, to_thread
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from specdemo.attach.events import events as events_of
from specdemo.attach.pasted import read_text
from specdemo.attach.records import table
from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS, Json
from specdemo.session.door import EngineClient
from specdemo.trace.codec import dumps
from specdemo.trace.events import PLAIN, Verified
from specdemo.trace.replay import RUNS, parse, recorded_runs
from specdemo.ui import words
from specdemo.ui.files import PLOTLY_NAME, address, files_route
from specdemo.ui.gate import outermost, route_path
from specdemo.ui.player import data_block, modules, player_page, style_files, style_links
from specdemo.ui.room import room_routes
from specdemo.ui.site import NOTEBOOK, PREVIEW, lesson_package, preview_tags

THREADS = 40  # Gradio's default

# Scripts of the first view.
OPENING = (
    *("page/language.js", "play/view.js", "play/runs.js"),
    *("page/status.js", "page/teach.js"),
)


def launch_options(studio: EngineClient) -> dict[str, object]:
    """Return Gradio's options at launch: theme, files, the empty player and disabled features.

    studio: its settings restrict access; its health and metrics are served too
    Raises UserError for an MCP server without its package.
    """
    settings = studio.settings
    if settings.mcp and find_spec("mcp") is None:
        raise UserError("cli.no_mcp")
    return {
        "theme": create_theme(),
        "css_paths": style_files(),
        "app_kwargs": {
            "routes": [
                Route("/player.html", lambda _request: HTMLResponse(player_page(words.VIEW))),
                Route("/words/{language}.json", _words),
                Route("/class/{language}/lessons-scorm-1.2.zip", _lessons),
                Route("/class/{language}/speculative_decoding.ipynb", _notebook),
                Route("/pasted", _pasted(), methods=["POST"]),
                files_route(),
                *monitor_routes(studio),
                *room_routes(settings.host),
            ],
            "lifespan": outermost(settings),
            "middleware": [Middleware(Head)],
        },
        "favicon_path": ASSETS / "icons" / "favicon.svg",
        # Each run and each waiting visitor may need two, the rest is for quick events.
        "max_threads": THREADS + 2 * (settings.runs_at_once + settings.waiting_visitors),
        "ssr_mode": False,
        "run_history": False,
        "show_error": False,
        "enable_monitoring": False,
        "share": False,
        "root_path": _prefix(os.environ.get("GRADIO_ROOT_PATH", "")),
        "mcp_server": settings.mcp,
        "footer_links": ["gradio", "settings"],
        "quiet": True,
    }


def create_theme() -> gr.themes.Base:
    """Return Gradio's default theme in greys, with a blue for colour-blind readers and the fonts of this package."""
    values = json.loads(Path(__file__).with_name("theme.json").read_text(encoding="utf-8"))
    return gr.themes.Default(
        spacing_size="sm",
        radius_size="md",
        primary_hue="blue",
        neutral_hue="gray",
        # Not 600: the semi-bold files in the package contain few of the letters.
        font=(gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"),
        font_mono=(gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "monospace"),
    ).set(**values)


def _prefix(root: str) -> str:
    """Return the prefix of the page behind a proxy as Starlette compares it: "/demo" for "demo/"; a whole address stays."""
    root = root.strip().rstrip("/")
    return root if not root or "://" in root else f"/{root.lstrip('/')}"


class Head:
    """Middleware: adds styles and first content to the page, and preload headers for the next files.

    Gradio's own `head` is inserted by its scripts, long after the first paint. Browsers preload files while Gradio starts.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app
        scripts = [
            f"<{address(f'view/{name}')}>; rel=modulepreload; fetchpriority=low"
            for name in modules(*OPENING)
        ]
        self.runs = {run.name: run for run in recorded_runs()}
        self.link = (b"link", ", ".join(scripts).encode())
        self.styles = style_links(address)
        self.words = first_words().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) != "/":
            await self.app(scope, receive, send)
            return
        start: Message = {}
        body = b""

        async def whole(message: Message) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                page = self._with_words(body, Request(scope))
                length = (b"content-length", str(len(page)).encode())
                kept = [each for each in start["headers"] if each[0] != length[0]]
                await send({**start, "headers": [*kept, length, self.link]})
                await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, whole)

    def _with_words(self, page: bytes, request: Request) -> bytes:
        """Return the page's HTML with its own preview and styles at the end of the head, and the first content in the body.

        A link to a recorded run is previewed with the run's title and prompt; the picture needs a whole address.
        """
        head, end, rest = page.partition(b"</head>")
        run = self.runs.get(request.query_params.get("recorded", ""))
        title = f"{run.title} · {words.TITLE}" if run else words.TITLE
        sentence = run.prompt if run else words.SUBTITLE
        own = preview_tags(title, sentence, f"{request.base_url}{address(PREVIEW)}") + self.styles
        head = _PREVIEW_OF_GRADIO.sub(b"", head) + own.encode()
        begin, close, body = rest.partition(b">")
        return head + end + begin + close + self.words + body if end else page


# Tags of Gradio's template for programs that show a preview of a link.
_PREVIEW_OF_GRADIO = re.compile(
    rb'<meta\s+(?:property="og:(?:title|description|type|url|image)"|name="twitter:[a-z]+")[^>]*>'
)


def _lessons(request: Request) -> Response:
    """Return the static site as a SCORM package, for the class pack that a browser makes."""
    language = request.path_params["language"]
    if language not in ("en", *words.languages()):
        return Response(status_code=404)
    return Response(lesson_package(language), media_type="application/zip")


def _notebook(_request: Request) -> Response:
    """Return the notebook of a checkout; a wheel does not contain it."""
    if not NOTEBOOK.is_file():
        return Response(status_code=404)
    return FileResponse(NOTEBOOK, media_type="application/x-ipynb+json")


def _pasted() -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of files of other programs: a table of their requests, and the trace of the first whose rounds are known.

    One file is read at a time, in a thread; the gate limits its size.
    """
    limiter = CapacityLimiter(1)

    def read(text: str) -> Response:
        try:
            records = read_text(text, "").records
        except UserError:
            return Response(status_code=422)
        known = next((one.generation for one in records if one.generation), None)
        return JSONResponse(
            {"rows": table(records), "trace": dumps(events_of(known)) if known else ""}
        )

    async def handle(request: Request) -> Response:
        text = (await request.body()).decode("utf-8", "replace")
        return await to_thread.run_sync(read, text, limiter=limiter)

    return handle


def _words(request: Request) -> Response:
    """Return the page's texts in another language, by the English ones."""
    language = request.path_params["language"]
    if language not in words.languages():
        return Response(status_code=404)
    return JSONResponse(words.translations(language))


SCRIPT = ASSETS / "view/page/first.js"
BADGE, SENTENCE = "/VIEW/source/recorded", "/VIEW/headline/begin"  # their paths in the words


def first_words() -> str:
    """Return the HTML at the start of the body: the opening run, and the script that plays it until the page does.

    Plotly loads after that: it takes a browser as long as all the rest, and nothing moves meanwhile.
    """
    english = words.texts("page", "en")
    said = {language: words.texts("page", language) for language in words.languages()}
    run = recorded_runs()[0]
    events = parse((RUNS / f"{run.name}.jsonl").read_text(encoding="utf-8")).trace.events
    checks = [event for event in events if isinstance(event, Verified)]
    checks.sort(key=lambda event: event.elapsed_seconds)
    given = {
        "languages": ["en", *said],
        "words": {
            language: {english[path]: texts.get(path, english[path]) for path in (BADGE, SENTENCE)}
            for language, texts in said.items()
        },
        "steps": [_step(event) for event in checks],
        "until": _milliseconds(checks[-1]),
        "run": address(f"runs/{run.name}.jsonl"),
        "plotly": address(PLOTLY_NAME),
    }
    script = SCRIPT.read_text(encoding="utf-8")
    # The element in which the opening run is played; it resembles the page's view.
    shown = (
        (ASSETS / "cards/first.html")
        .read_text(encoding="utf-8")
        .format(
            title=words.TITLE,
            badge=escape(english[BADGE]),
            sentence=escape(english[SENTENCE]),
            prompt=escape(run.prompt),
        )
    )
    return f"{shown}{data_block('sd-given', given)}<script>{script}</script>"


def _milliseconds(event: Verified) -> int:
    return round(1000 * event.elapsed_seconds)


def _step(event: Verified) -> Json:
    """Return the new text of a step, and its milliseconds on the run's clock."""
    new, at = event.committed, _milliseconds(event)
    if event.lane == PLAIN:
        return {"at": at, "plain": "".join(token.text for token in new)}
    return {"at": at, "tokens": [[token.text, token.status] for token in new]}


def monitor_routes(studio: EngineClient) -> list[Route]:
    """Return `/health` and `/metrics`, which show numbers and the models' names, nothing of a visitor."""

    def health(_request: Request) -> Response:
        state = _state(studio)
        return JSONResponse({"status": state}, status_code=503 if state == "failed" else 200)

    def metrics(_request: Request) -> Response:
        return Response(studio.meter.text(), headers={"content-type": studio.meter.content_type})

    return [Route("/health", health), Route("/metrics", metrics)]


def _state(studio: EngineClient) -> str:
    """Return ready, replay, loading or failed; only the last one needs an operator."""
    if studio.replay_only:
        return "replay"
    if studio.ready:
        return "ready"
    return "failed" if studio.error else "loading"
