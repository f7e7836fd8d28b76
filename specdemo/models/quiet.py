"""Keeps the libraries' own bars and warnings out of the program's output, for as long as needed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide transformers' bars and remarks below errors, then restore what was set."""
    from transformers.utils import logging as chatter

    bars, level = chatter.is_progress_bar_enabled(), chatter.get_verbosity()
    chatter.disable_progress_bar()
    chatter.set_verbosity_error()
    try:
        yield
    finally:
        chatter.set_verbosity(level)
        if bars:
            chatter.enable_progress_bar()


@contextmanager
def quiet_gguf() -> Iterator[None]:
    """Hide the bar that transformers always draws while it reads a GGUF file."""
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = getattr(reader, "tqdm", None)
    reader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        reader.tqdm = bar


@cache
def import_bitsandbytes() -> None:
    """Import bitsandbytes without its remarks and without letting it download native code.

    With the package `kernels` installed, importing bitsandbytes fetches a library from the hub.
    Hiding that package for the moment of the import makes it take its own compiled kernels.
    """
    for name in ("bitsandbytes.backends.cpu.ops", "bitsandbytes.autograd._functions"):
        logging.getLogger(name).setLevel(logging.ERROR)
    missing = object()
    before = sys.modules.get("kernels", missing)
    sys.modules["kernels"] = None  # type: ignore[assignment] - makes `import kernels` fail
    try:
        import bitsandbytes  # noqa: F401
    finally:
        if before is missing:
            del sys.modules["kernels"]
        else:
            sys.modules["kernels"] = before
