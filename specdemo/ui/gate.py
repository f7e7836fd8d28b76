"""Checks of each request before the page sees it: host name, origin, closed paths and size."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import strings

words = strings("limits")

_LOG = logging.getLogger(__name__)

API = "/gradio_api/"
# Features of Gradio that this page does not use: files of the server, uploads, other servers, editors, tokens.
CLOSED_ROUTES = (
    *("/monitoring", "/login", "/logout", "/svelte/", "/custom_component/"),
    *(f"{API}{name}" for name in ("upload", "file", "proxy", "stream", "process_recording")),
    *(f"{API}{name}" for name in ("vibe", "undo-vibe", "deep_link", "dev/", "custom_component")),
    *(f"{API}{name}" for name in ("run-history", "runs", "profiling", "token", "login", "user")),
)
PORTS = {"http": 80, "https": 443}
NO_SNIFF = (b"x-content-type-options", b"nosniff")


def outermost(settings: AppSettings) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan of the server that puts the gate around all of it; Gradio's own middleware would come before ours.

    Only Starlette's answer to an exception stays outside: it would be sent before the gate sees the exception.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        app.middleware_stack.app = Gate(app.middleware_stack.app, settings)
        if settings.mcp:
            agents = app.get_blocks().mcp_server_obj
            agents.postprocess_output_data = partial(json_answer, agents.types.TextContent)
        yield

    return lifespan


def json_answer(text: Callable[..., object], answer: Sequence[Any], _root: str) -> list[object]:
    """Return the answer to an agent as one JSON text; Gradio would write Python's notation. text: the class of a text"""
    values = answer[0] if len(answer) == 1 else answer
    named = dict(zip(("text", "metrics", "trace"), values, strict=True))
    return [text(type="text", text=json.dumps(named, ensure_ascii=False))]


class Gate:
    """Middleware: refuses requests that the page must not see, and turns exceptions of the page into error messages."""

    def __init__(self, app: ASGIApp, settings: AppSettings) -> None:
        self.app = app
        self.most_bytes = settings.upload_mb * 1_000_000
        self.named = _names(settings.allowed_hosts) | _names(os.environ.get("SPACE_HOST", ""))
        own = socket.gethostname().lower()
        self.own = {"localhost", "*.localhost", settings.host.lower(), own, f"{own}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused:
            await refused(scope, receive, send)
            return
        try:
            read = await self._read(scope, receive)
        except ClientDisconnect:
            return  # nobody waits for an answer
        if read is None:
            refused = _refusal(413, words.TOO_MUCH.format(most=self.most_bytes // 1_000_000))
            await refused(scope, receive, send)
            return
        begun = False

        async def send_on(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], NO_SNIFF]
            await send(message)

        try:
            await self.app(scope, read, send_on)
        except Exception as error:  # noqa: BLE001 - what was sent is wrong, or we are: the log gets a line, not a page
            _LOG.warning("%s %s: %s", scope["method"], scope["path"], type(error).__name__)
            _LOG.debug("what broke", exc_info=True)
            if begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            sentence = str(error) if isinstance(error, UserError) else words.NO_ANSWER
            await _refusal(400, sentence)(scope, receive, send)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        """Return the refusal of a request; None for one that may pass."""
        headers = Headers(scope=scope)
        scheme, host, port = _address(f"{scope.get('scheme', 'http')}://{headers.get('host', '')}")
        if not self._known(host):
            return _refusal(421, words.UNKNOWN_HOST)
        origin = headers.get("origin")
        if origin is not None:
            whence = _address(origin)
            # A proxy may have taken off the encryption.
            same = whence in ((scheme, host, port), ("https", host, port), ("https", host, 443))
            if not (same or _matches(whence[1], self.named)):
                return _refusal(403, words.FOREIGN_ORIGIN)
        if route_path(scope).startswith(CLOSED_ROUTES):
            return _refusal(404, words.CLOSED)
        return None

    def _known(self, host: str) -> bool:
        """Return whether the page is served under this name. Addresses cannot be rebound, so all of them are accepted."""
        if "*" in self.named or _matches(host, self.own | self.named):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    async def _read(self, scope: Scope, receive: Receive) -> Receive | None:
        """Return a `receive` that first returns the whole body; None if it is too large, and then the rest is not read.

        Raises ClientDisconnect for a client that leaves before the end of the body.
        """
        told = Headers(scope=scope).get("content-length", "0")
        if not told.isdigit() or int(told) > self.most_bytes:
            return None
        body = bytearray()
        while scope["method"] not in ("GET", "HEAD"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self.most_bytes:
                return None
            if not message.get("more_body"):
                break
        first = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])

        async def again() -> Message:
            return next(first, None) or await receive()

        return again


def route_path(scope: Scope) -> str:
    """Return the path of a request within the page, without the prefix that a proxy may have left in it."""
    path, prefix = re.sub("/+", "/", scope["path"]), scope.get("root_path", "")
    return path.removeprefix(prefix) if f"{path}/".startswith(f"{prefix}/") else path


def _address(url: str) -> tuple[str, str, int | None]:
    """Return scheme, name and port of an address; the name is empty if there is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", "", None
    return parts.scheme, (parts.hostname or "").rstrip("."), port or PORTS.get(parts.scheme)


def _names(text: str) -> set[str]:
    return {name.strip().lower() for name in text.split(",") if name.strip()}


def _matches(host: str, names: set[str]) -> bool:
    return any(fnmatchcase(host, name) for name in names - {"*"})


def _refusal(status: int, sentence: str) -> JSONResponse:
    """Return an error message under both names that Gradio's clients read."""
    return JSONResponse({"error": sentence, "detail": sentence}, status)
