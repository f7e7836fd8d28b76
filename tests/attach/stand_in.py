"""Stand-ins for other programs' servers: replies by path, as recorded or hostile, and simulated acceptance."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer

import loopback

from specdemo.attach.servers import Piece, Round

KEY = "sk-very-secret"
STREAM = {"Content-Type": "text/event-stream"}
VLLM = {  # pages of a server that has not drafted
    "/version": b'{"version":"0.32.0"}',
    "/metrics": b'vllm:spec_decode_num_drafts_total{engine="0"} 0.0\n',
}
Reply = tuple[int, dict[str, str], Iterable[bytes]]
Server = Callable[[str, dict[str, str], bytes], Reply]  # a reply to path, headers and body


def serving(reply: Server) -> AbstractContextManager[str]:
    """Serve replies on a free port until the block ends. yields: the address"""

    class Handler(loopback.Handler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            status, headers, parts = reply(
                self.path, dict(self.headers.items()), self.rfile.read(length)
            )
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for part in parts:
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:  # the client has closed the connection
                pass

        do_POST = do_GET

    return loopback.serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler))


def sse(*values: object) -> list[bytes]:
    """Return the chunks of a stream of JSON values."""
    return [f"data: {json.dumps(value)}\n\n".encode() for value in values]


def llama(stream: Iterable[bytes], status: int = 200, headers: dict[str, str] = STREAM) -> Server:
    """Return a llama-server whose answer is this stream."""
    pages = {
        "/props": {
            "default_generation_settings": {},
            "model_path": "a/tiny.gguf",
            "build_info": "b1",
        },
        "/health": {"status": "ok"},
        "/slots": [{"id": 0, "speculative": True}],
        "/apply-template": {"prompt": "<user>hi"},
    }
    kind = {"Content-Type": "application/json", "Server": "llama.cpp"}

    def reply(path: str, given: dict[str, str], _body: bytes) -> Reply:
        if given.get("Authorization", f"Bearer {KEY}") != f"Bearer {KEY}":
            return 401, {}, [b"{}"]
        if path in pages:
            return 200, kind, [json.dumps(pages[path]).encode()]
        return status, headers, stream

    return reply


def chat(
    answer: Callable[[bytes], Iterable[bytes]], pages: dict[str, bytes], unknown: int = 404
) -> Server:
    """Return a server of chats. answer: chunks by a request's body; pages: by path; unknown: status of other paths"""
    pages = {"/v1/models": b'{"data":[{"id":"m"}]}', **pages}

    def reply(path: str, _headers: dict[str, str], body: bytes) -> Reply:
        if path == "/v1/chat/completions":
            return 200, STREAM, answer(body)
        return (200, {}, [pages[path]]) if path in pages else (unknown, {}, [b"no"])

    return reply


def simulated(
    tokens: int,
    chances: Sequence[float],
    draw: Callable[[], float],
    seconds: Callable[[int], float],
) -> tuple[Round, ...]:
    """Return the rounds of an answer after its first token; drafts are shortened near its end.

    chances: of acceptance by position; draw: a uniform number; seconds: of a round by its drafted tokens
    """
    rounds, left = list[Round](), tokens - 1
    while left > 0:
        drafted = min(len(chances), left - 1)
        accepted = next((n for n in range(drafted) if draw() >= chances[n]), drafted)
        pieces = (Piece("x", 1),) * (accepted + 1)
        rounds.append(Round(pieces, drafted, accepted, seconds(drafted)))
        left -= accepted + 1
    return tuple(rounds)


def true_seconds(rates: Sequence[float], tokens: int, seconds: Callable[[int], float]) -> float:
    """Return the expected seconds of the rounds that `simulated` draws.

    rates: that the draft is accepted up to each position; seconds: of a round by its drafted tokens
    """
    spent = [0.0]  # by the number of tokens that are still to come
    for left in range(1, tokens):
        drafted = min(len(rates), left - 1)
        ends = [1.0, *rates[:drafted], 0.0]
        later = sum((ends[n] - ends[n + 1]) * spent[left - 1 - n] for n in range(drafted + 1))
        spent.append(seconds(drafted) + later)
    return spent[-1]


def slowly(parts: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    """Yield parts with a pause before each."""
    for part in parts:
        time.sleep(seconds)
        yield part
