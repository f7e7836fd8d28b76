"""A browser's tab without a screen: asks a served page for its events as the page's own script does."""

from __future__ import annotations

import http.client
import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from gradio_client.utils import apply_diff

from specdemo.config.errors import UserError

SILENCE_SECONDS = 60.0  # without a word from a server that sends a sign of life every 15 s

Call = dict[str, Any]


class Outline:
    """What a page is made of, as it tells every browser: its components, and what happens at which event."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = urlsplit(url).netloc
        config = json.loads(_asked(self.address, "GET", "/config"))
        self.prefix: str = config["api_prefix"]
        self.calls: list[Call] = config["dependencies"]
        self.parts = {part["id"]: part for part in config["components"]}
        self.names = {
            part["props"]["elem_id"]: part["id"]
            for part in config["components"]
            if part["props"].get("elem_id")
        }

    def call(self, name: str, event: str = "click") -> Call:
        """What happens first at an event of the component with this id on the page."""
        wanted = [self.names[name], event]
        return next(call for call in self.calls if wanted in map(list, call["targets"]))

    def after(self, call: Call) -> Call:
        """What happens once another call has ended."""
        return next(then for then in self.calls if then["trigger_after"] == call["id"])

    def opening(self) -> list[Call]:
        """What happens when the page is opened."""
        return [call for call in self.calls if any(event == "load" for _, event in call["targets"])]


class Visit:
    """One tab: a session of its own, with the components as this visitor has them.

    Not for several threads, except that any may call `leave`, and `ask` beside a stream.
    """

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.session = uuid.uuid4().hex
        self._props: dict[int, dict[str, Any]] = {}
        self._alive = self._connected("GET", f"/heartbeat/{self.session}")
        self._stream: http.client.HTTPConnection | None = None
        self.left = False

    def open(self) -> None:
        """What a browser asks for when it has the page."""
        for call in self.outline.opening():
            self.ask(call)

    def get(self, name: str, prop: str = "value") -> Any:
        """A property of the component with this id on the page."""
        return self._prop(self.outline.names[name], prop)

    def set(self, name: str, value: object) -> None:
        """Enter a value."""
        self.enter(self.outline.names[name], value)

    def enter(self, part: int, value: object) -> None:
        """Enter a value, or take an update, of a component by its number."""
        update = value if isinstance(value, dict) and "__type__" in value else {"value": value}
        self._props.setdefault(part, {}).update(update)

    def ask(self, call: Call) -> list[Any]:
        """Call a handler that answers at once. returns: what it gives each output. Raises UserError when it fails"""
        answer = json.loads(self._post("/run/predict", call))
        if "data" not in answer:
            raise UserError("bench.page_failed", error=answer.get("error"))
        for part, value in zip(call["outputs"], answer["data"], strict=True):
            self.enter(part, value)
        return list(answer["data"])

    def stream(self, call: Call) -> Iterator[bytes]:
        """Call a handler that waits for its turn. yields: the server's lines as they come, until it ends

        Raises UserError when it is refused, OSError when the server is not heard of any more.
        """
        self._post("/queue/join", call)
        self._stream = self._connected("GET", f"/queue/data?session_hash={self.session}")
        answer = None
        try:
            answer = self._stream.getresponse()
            yield from answer
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            if not self.left:  # by another thread, which takes the connection away
                raise
        finally:
            if answer is not None:
                answer.close()
            self._stream.close()

    def leave(self) -> None:
        """Close the tab: the connections end without a word."""
        self.left = True
        for connection in (self._stream, self._alive):
            if connection is not None and connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        self._alive.close()

    def _prop(self, part: int, prop: str) -> Any:
        return self._props.get(part, {}).get(prop, self.outline.parts[part]["props"].get(prop))

    def _connected(self, method: str, path: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.outline.address, timeout=SILENCE_SECONDS)
        connection.request(method, self.outline.prefix + path)
        return connection

    def _post(self, path: str, call: Call) -> bytes:
        parts = self.outline.parts
        data = [
            None if parts[part]["type"] == "state" else self._prop(part, "value")
            for part in call["inputs"]
        ]
        asked = {"data": data, "fn_index": call["id"], "session_hash": self.session}
        body = json.dumps(asked).encode()
        return _asked(self.outline.address, "POST", self.outline.prefix + path, body)


def last_value(sent: bytes) -> str:
    """The only output of a handler after all that was sent: a whole value first, then what each yield changed.

    Raises UserError when the handler failed.
    """
    value: Any = None
    for line in sent.decode().splitlines():
        message = json.loads(line.removeprefix("data: ")) if line else {}
        if message.get("msg") == "process_generating":
            (new,) = message["output"]["data"]
            value = new if value is None else apply_diff(value, new)
        elif message.get("msg") == "process_completed" and not message["success"]:
            raise UserError("bench.page_gave_no_answer")
        elif message.get("msg") == "unexpected_error":
            raise UserError("bench.page_failed", error=message.get("message"))
    return str(value)


def _asked(address: str, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=SILENCE_SECONDS)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 500):  # 500 comes with the handler's own error
            raise UserError("bench.page_status", status=answer.status, path=path, answer=text[:200])
        return text
    finally:
        connection.close()
