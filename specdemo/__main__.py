"""python -m specdemo"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from specdemo.cli.interrupts import watch_interrupts


def program(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end the process, also while the engine's thread is inside torch.

    The interpreter's own end would destroy objects that such a thread uses, which aborts the process.
    """
    for name in ("stdout", "stderr"):  # None if it was closed before the start
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        watch_interrupts()
    from specdemo.cli.parser import main

    try:
        status = main(arguments)
    except SystemExit as ended:  # of the parser
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - an error of this program
        sys.excepthook(*sys.exc_info())
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe
            status = status or 1
    os._exit(status)


if __name__ == "__main__":
    program()
