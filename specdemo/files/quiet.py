"""Hide progress bars and warnings of libraries from the program's output, for as long as needed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

NO_COMPILER = "TORCHDYNAMO_DISABLE"  # makes `torch.compile` give functions back as they are


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide transformers' bars and its messages below errors, then restore the settings."""
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
    from transformers import modeling_gguf_pytorch_utils

    reader: Any = modeling_gguf_pytorch_utils  # its type has no `tqdm`
    bar = getattr(reader, "tqdm", None)
    reader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        reader.tqdm = bar


@cache
def import_bitsandbytes() -> None:
    """Import bitsandbytes without its messages, without letting it download native code, and without torch's compiler.

    With the package `kernels` installed, importing bitsandbytes fetches a library from the hub.
    Hiding that package during the import makes it use its own compiled kernels. Four functions that it
    marks for `torch.compile`, and that run as well without, would load the compiler: a second and 46 MB.
    """
    for name in ("bitsandbytes.backends.cpu.ops", "bitsandbytes.autograd._functions"):
        logging.getLogger(name).setLevel(logging.ERROR)
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    present = "kernels" in modules
    before = modules.get("kernels")
    modules["kernels"] = None  # makes `import kernels` fail
    compiles = os.environ.get(NO_COMPILER)
    os.environ[NO_COMPILER] = "1"
    try:
        import bitsandbytes  # noqa: F401
    finally:
        os.environ.pop(NO_COMPILER)
        if compiles is not None:
            os.environ[NO_COMPILER] = compiles
        if present:
            modules["kernels"] = before
        else:
            del modules["kernels"]
