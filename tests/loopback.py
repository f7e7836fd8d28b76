"""A server on loopback that plays another machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Files(SimpleHTTPRequestHandler):
    """Answers with the files of a folder, without a log."""

    def log_message(self, *_: object) -> None:
        pass


def serving_files(folder: Path, handler: type[Files] = Files) -> AbstractContextManager[str]:
    """The files of a folder; see `serving`."""
    return serving(ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder)))


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """The server answers until the block ends. yields: its address"""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
