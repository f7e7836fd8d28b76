"""Files that the page loads. Their address contains a version instead of a path of this machine, so browsers may cache them."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import Path

import plotly
from starlette.responses import FileResponse
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from specdemo.config.paths import ASSETS

FOLDERS = {name: ASSETS / name for name in ("view", "runs", "icons")}
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
PLOTLY_NAME = "plotly/plotly.min.js"
CACHED_FOREVER = b"public, max-age=31536000, immutable"
ASKED_ANEW = b"no-cache"


@cache
def version() -> str:
    """Return a digest of all files; it is part of their address, so that browsers may cache them forever."""
    digest = hashlib.sha256(plotly.__version__.encode())
    for folder in FOLDERS.values():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(path.relative_to(ASSETS).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def address(name: str) -> str:
    """Return the address of a file in `assets/`, relative to the page."""
    return f"files/{version()}/{name}"


def files_route() -> Mount:
    """The route that serves them; a page that was opened before an update finds its files under its old version too."""
    mimetypes.add_type("text/javascript", ".js")  # some Windows machines call it plain text
    folders = [Mount(f"/{name}", StaticFiles(directory=path)) for name, path in FOLDERS.items()]
    charts = Route(f"/{PLOTLY_NAME}", lambda _: FileResponse(PLOTLY))
    return Mount("/files/{version}", _Kept(Router([*folders, charts])))


class _Kept:
    """Middleware that sets the caching headers."""

    def __init__(self, app: Router) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        same = scope["path_params"]["version"] == version()

        async def kept(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (200, 206, 304):
                value = CACHED_FOREVER if same else ASKED_ANEW
                message["headers"] = [*message["headers"], (b"cache-control", value)]
            await send(message)

        await self.app(scope, receive, kept)
