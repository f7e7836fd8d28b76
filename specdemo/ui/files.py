"""Files that the page loads. Their address contains a version instead of a path of this machine, so browsers may cache them."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from functools import cache
from importlib import metadata

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from specdemo.config.strings import ASSETS
from specdemo.ui.player import plotly_path

FOLDERS = {name: ASSETS / name for name in ("view", "runs", "icons")}
PLOTLY_NAME = "plotly/plotly.min.js"
CACHED_FOREVER = "public, max-age=31536000, immutable"
ASKED_ANEW = "no-cache"


@cache
def version() -> str:
    """Return a digest of all files; it is part of their address, so that browsers may cache them forever."""
    digest = hashlib.sha256(metadata.version("plotly").encode())
    for folder in FOLDERS.values():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(path.relative_to(ASSETS).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def address(name: str) -> str:
    """Return the address of a file in `assets/`, relative to the page."""
    return f"files/{version()}/{name}"


def files_route() -> Route:
    """Return the route of the files; a page that was opened before an update finds them under its old version too.

    One route, since a proxy may remove the prefix of the page: nested mounts then compare a path with the prefix.
    """
    mimetypes.add_type("text/javascript", ".js")  # some Windows machines call it plain text
    folders = {name: StaticFiles(directory=path) for name, path in FOLDERS.items()}
    plotly_file = plotly_path()
    folders["plotly"] = StaticFiles(directory=plotly_file.parent)

    async def file(request: Request) -> Response:
        asked, name = request.path_params["version"], request.path_params["name"]
        folder, _, path = name.partition("/")
        if folder not in folders or (folder == "plotly" and path != plotly_file.name):
            return Response(status_code=404)
        response = await folders[folder].get_response(os.path.normpath(path), request.scope)
        response.headers["cache-control"] = CACHED_FOREVER if asked == version() else ASKED_ANEW
        return response

    return Route("/files/{version}/{name:path}", file)
