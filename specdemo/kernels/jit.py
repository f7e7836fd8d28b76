"""Functions that numba compiles. What is called from outside is kept on disk with all that it calls."""

from __future__ import annotations

from typing import Any

from numba import njit

from specdemo.kernels import cpu_features as processor

_FAST = {"contract", "reassoc", "arcp", "nsz"}


def kept(compiler: Any, *kind: Any, **options: Any) -> Any:
    """A decorator that keeps what it compiles on disk, where there is a folder to write to."""

    def compile_(function: Any) -> Any:
        try:
            return compiler(*kind, cache=processor.keeps(), **options)(function)
        except RuntimeError:
            # numba found no such folder: it compiles at every start, some ten seconds.
            return compiler(*kind, **options)(function)

    return compile_


compiled = njit(nogil=True, error_model="numpy")
# Sums may be taken in another order than written, always the same one.
loose = njit(nogil=True, error_model="numpy", fastmath=_FAST)
