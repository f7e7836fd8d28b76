"""Servers on loopback that play another machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """A handler that writes no log."""

    def log_message(self, *_):
        pass

    def answer(self, status: int, body: bytes = b"", headers=(), kind: str = "text/html") -> None:
        self.send_response(status)
        named = {"Content-Type": kind, "Content-Length": str(len(body)), **dict(headers)}
        for name, value in named.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Files(Handler, SimpleHTTPRequestHandler):
    """Serves the files of a folder."""


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """The server answers until the block ends. yields: its address"""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def serving_files(folder: Path, handler: type[Handler] = Files):
    """Serve a folder until the block ends. yields: its address"""
    made = partial(handler, directory=folder)
    return serving(ThreadingHTTPServer(("127.0.0.1", 0), made))
