"""A stand-in for another program's server: replies by path, as recorded or hostile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import loopback

Reply = tuple[int, dict[str, str], Iterable[bytes]]


@contextmanager
def serving(reply: Callable[[str, dict[str, str], bytes], Reply]) -> Iterator[str]:
    """Serve replies, a function of path, headers and body, on a free port. yields: the address"""

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

    with loopback.serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


def true_seconds(rates: Sequence[float], tokens: int, seconds: Callable[[int], float]) -> float:
    """Return the expected seconds of an answer after its first token, of a server that simulates acceptance.

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
