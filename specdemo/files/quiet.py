"""Hide progress bars and warnings of libraries from the program's output, for as long as needed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

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


@cache
def import_bitsandbytes() -> None:
    """Import bitsandbytes without its messages, without letting it download native code, and without torch's compiler.

    With the package `kernels` installed, importing bitsandbytes fetches a library from the hub.
    Hiding that package during the import makes it use its own compiled kernels. Four functions that it
    marks for `torch.compile`, and that run as well without, would load the compiler: a second and 46 MB.
    """
    from unittest.mock import patch

    for name in ("bitsandbytes.backends.cpu.ops", "bitsandbytes.autograd._functions"):
        logging.getLogger(name).setLevel(logging.ERROR)
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    before = {name: modules[name] for name in ("kernels",) if name in modules}
    modules["kernels"] = None  # makes `import kernels` fail
    try:
        with patch.dict(os.environ, {NO_COMPILER: "1"}):
            import bitsandbytes  # noqa: F401
    finally:
        del modules["kernels"]
        modules.update(before)
