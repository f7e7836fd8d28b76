"""The program's process: Ctrl+C ends it with status 130, within a second and silently, at any moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socketpair
from typing import NoReturn

INTERRUPTED = 130  # exit status
GRACE_SECONDS = (
    0.7  # time that a command has to return from its work, which is then shown and saved
)
SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"  # a bar hides it


class _State:
    """keeping: inside `keep_results`; returned: set when Ctrl+C has ended that block; count: number of Ctrl+C"""

    keeping = False
    returned = threading.Event()
    count = 0


def watch_interrupts() -> None:
    """End the process at Ctrl+C. The thread is for moments in which the main thread does not run Python code."""
    reader, writer = socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        kept = writer  # it must stay open
        while reader.recv(1) != bytes([signal.SIGINT]):
            pass
        # In this order: a block may have ended at this very interrupt before the thread came here.
        grace = GRACE_SECONDS if _State.keeping else 0
        if not _State.returned.wait(grace):
            _end()
        while reader.recv(1) and kept:
            _end()

    signal.signal(signal.SIGINT, _interrupted)
    threading.Thread(target=watch, name="specdemo-interrupts", daemon=True).start()


def _interrupted(*_: object) -> None:
    _State.count += 1
    if not _State.keeping or _State.count > 1:
        _end()
    raise KeyboardInterrupt


def _end() -> NoReturn:
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os._exit(INTERRUPTED)


class Kept:
    """Exit status of a block whose results are kept: 0, or INTERRUPTED."""

    status = 0


@contextmanager
def keep_results() -> Iterator[Kept]:
    """Let Ctrl+C end this block, not the process, so that its results can be shown and saved."""
    kept = Kept()
    _State.keeping = True
    try:
        yield kept
    except KeyboardInterrupt:
        kept.status = INTERRUPTED
        _State.returned.set()
    finally:
        _State.keeping = False
