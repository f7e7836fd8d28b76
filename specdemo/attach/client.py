"""HTTP to a server that the user named at the start, within bounds of size and time. Its replies are untrusted.

No redirect is followed, no proxy or stored password is used, a compressed reply is refused, and the key is in no message.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, WrapValidator

from specdemo.config.errors import UserError
from specdemo.config.strings import Json
from specdemo.trace.events import Amount, Count

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "SPECDEMO_SERVER_KEY"  # environment variable of the key that servers require
CONNECT_SECONDS = 5.0
REPLY_SECONDS = 10.0  # for a reply that is no stream
SILENT_SECONDS = 180.0  # between two parts of a stream: a request may wait for a free slot
STREAM_SECONDS = 3600.0  # duration of a whole stream, at most
POLL_SECONDS = 0.05  # between two checks whether a stream was cancelled
LARGEST_REPLY = 4 * 2**20  # bytes of a reply that is no stream
LARGEST_STREAM = 64 * 2**20  # bytes of a stream
LONGEST_LINE = 2**20  # bytes of one line of a stream
MOST_CHARACTERS = 200  # shown characters of a server's own message


class Foreign(BaseModel):
    """Values that another program wrote; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)


def _or_unknown(value: object, check: Callable[[object], object]) -> object:
    with suppress(ValueError):
        return check(value)
    return None


OR_UNKNOWN = WrapValidator(_or_unknown)  # None for an unusable value
KnownCount = Annotated[Count | None, OR_UNKNOWN]
KnownAmount = Annotated[Amount | None, OR_UNKNOWN]
Milliseconds = Annotated[Amount, AfterValidator(lambda value: value / 1000)]  # read as seconds


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. headers: by their names in lower case"""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def value(self) -> object:
        """The reply as a JSON value; None if it is not JSON."""
        return parsed(self.text)

    @property
    def values(self) -> Json:
        """The reply as a JSON object; empty if it is not one."""
        found = self.value
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Client:
    """One server. url: of its root, without a path of the API; key: sent with each request, "" for none"""

    url: str
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Raise UserError for an address that is no plain http or https one."""
        try:
            parts = urlsplit(self.url)
            wrong = (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or parts.port == 0
                or parts.username is not None
                or bool(parts.query or parts.fragment)
            )
        except ValueError:  # a port that is no number or too large, or a wrong IPv6 address
            wrong = True
        if wrong:
            without_secrets = re.sub(r"[?#].*", "", self.url.rpartition("@")[2])
            raise UserError("attach.address", url=shown(without_secrets))
        object.__setattr__(self, "url", re.sub(r"(/v1)?/*$", "", self.url))
        if not (self.key.isascii() and self.key.isprintable()):
            raise UserError("attach.key_unusable")

    def get(self, path: str) -> Reply:
        """Request a page; an error of the server is returned as any other reply is. Raises UserError without a whole reply."""
        with self._open("GET", path, None, REPLY_SECONDS) as response:
            return self._read_whole(response)

    def post(self, path: str, body: Json) -> Json:
        """Return the JSON object of a reply. Raises UserError, also for an error of the server."""
        with self._open("POST", path, body, REPLY_SECONDS) as response:
            reply = self._read_whole(response)
        self._check(reply)
        if not reply.values:
            raise UserError("attach.not_json", url=self.url, path=path)
        return reply.values

    def stream(self, path: str, body: Json, cancel: threading.Event) -> Iterator[Json]:
        """Yield the JSON objects of an event stream until it ends or is cancelled. Raises UserError."""
        try:
            with self._open("POST", path, body, SILENT_SECONDS, cancel) as response:
                if "event-stream" not in response.headers.get("content-type", ""):
                    self._check(self._read_whole(response))
                    raise UserError("attach.no_stream", url=self.url, path=path)
                yield from self._objects(self._parts(response, LARGEST_STREAM))
        except UserError:
            if not cancel.is_set():
                raise

    def _parts(self, response: httpx.Response, most: int) -> Iterator[bytes]:
        """Yield the parts of a reply of limited size. Raises UserError."""
        size = 0
        for part in response.iter_raw():
            size += len(part)
            if size > most:
                raise UserError("attach.endless", url=self.url)
            yield part

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        body: Json | None,
        silent: float,
        cancel: threading.Event | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request. Raises UserError for a connection that fails, a redirect and a compressed reply.

        silent: seconds between two parts of the reply, of which only a stream takes longer; cancel: ends a stream
        """
        import httpx

        headers = {"Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        limits = httpx.Timeout(silent, connect=CONNECT_SECONDS)
        # Certificates load slowly, so plain connections do without them.
        encrypted = self.url.startswith("https:")
        late = threading.Event()
        try:
            with (
                _ended_by(cancel, late, STREAM_SECONDS if cancel else silent) as trace,
                httpx.Client(
                    timeout=limits, verify=encrypted, follow_redirects=False, trust_env=False
                ) as client,
                client.stream(
                    method, self.url + path, json=body, headers=headers, extensions={"trace": trace}
                ) as response,
            ):
                if response.is_redirect or 300 <= response.status_code < 400:
                    raise UserError("attach.redirected", url=self.url)
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    raise UserError("attach.compressed", url=self.url)
                yield response
            if late.is_set():  # the connection was ended, which may seem to be the end of the reply
                raise UserError("attach.endless", url=self.url)
        except httpx.TimeoutException as error:
            raise UserError("attach.silent", url=self.url, seconds=round(silent)) from error
        except httpx.ConnectError as error:
            raise UserError("attach.unreachable", url=self.url) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            if late.is_set():
                raise UserError("attach.endless", url=self.url) from error
            raise UserError(
                "attach.broken", url=self.url, error=shown(self._hide(str(error)))
            ) from error

    def _check(self, reply: Reply) -> None:
        """Raise UserError for the reply of a server that reports an error."""
        if reply.status in (401, 403):
            raise UserError("attach.key", url=self.url)
        if reply.status >= 400:
            text = self._error(reply.values)
            raise UserError("attach.refused", url=self.url, status=reply.status, error=text)

    def _error(self, values: Json) -> str:
        """Return the message of a server's error."""
        found = values.get("error", values.get("message", ""))
        text = found.get("message", "") if isinstance(found, dict) else found
        return shown(self._hide(str(text)))

    def _read_whole(self, response: httpx.Response) -> Reply:
        parts = self._parts(response, LARGEST_REPLY)
        headers = {name.lower(): self._hide(value) for name, value in response.headers.items()}
        return Reply(response.status_code, headers, self._text(b"".join(parts)))

    def _objects(self, parts: Iterator[bytes]) -> Iterator[Json]:
        """Yield the JSON objects of the `data:` lines of an event stream. Raises UserError for any other data."""
        rest = bytearray()
        for part in parts:
            rest += part
            lines = rest.split(b"\n") if b"\n" in part else [rest]
            if max(map(len, lines)) > LONGEST_LINE:
                raise UserError("attach.endless", url=self.url)
            rest = lines.pop()
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                data = self._text(line[5:].strip())
                if data == "[DONE]":
                    return
                found = parsed(data)
                if not isinstance(found, dict):
                    raise UserError("attach.malformed", url=self.url, line=shown(data))
                if isinstance(found.get("error"), dict | str):
                    raise UserError("attach.stopped", url=self.url, error=self._error(found))
                yield found

    def _text(self, data: bytes | bytearray) -> str:
        return self._hide(data.decode("utf-8", "replace"))

    def _hide(self, text: str) -> str:
        """Return a foreign text without the key, also as JSON writes it: a server that returns it must not make it visible."""
        if not self.key:
            return text
        escaped = json.dumps(self.key)[1:-1]
        for form in {self.key, escaped, escaped.replace("/", "\\/")}:
            text = text.replace(form, "***")
        return text


@contextmanager
def _ended_by(
    cancel: threading.Event | None, late: threading.Event, seconds: float
) -> Iterator[Callable[[str, Json], None]]:
    """Shut down a connection once `cancel` is set or its time is over, so that no silent or slow server can delay that.

    late: is set when the time is over; yields: the function that is called with the events of the connection
    """
    sockets: list[socket.socket] = []
    over, end = threading.Event(), time.monotonic() + seconds

    def trace(name: str, values: Json) -> None:
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            sockets.append(values["return_value"].get_extra_info("socket"))

    def watch() -> None:
        while not over.wait(POLL_SECONDS):
            if time.monotonic() > end:
                late.set()
            ended = late.is_set() or (cancel is not None and cancel.is_set())
            for one in sockets if ended else ():
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=watch, name="specdemo-attach", daemon=True).start()
    try:
        yield trace
    finally:
        over.set()


def parsed(text: str) -> object:
    """Return the value of a JSON text; None if it is none. Half of a pair of code units, which no file can contain, becomes "?"."""
    try:
        found: object = json.loads(text)
        if "\\ud" in text.lower():
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found


def shown(text: object) -> str:
    """Return a foreign text for a message: printable and short."""
    plain = str(text)
    line = "".join(
        letter if letter.isprintable() else " " for letter in plain[: 4 * MOST_CHARACTERS]
    )
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}…"
