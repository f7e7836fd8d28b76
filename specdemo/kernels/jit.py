"""How functions are compiled. What is called from outside is kept on disk with all that it calls."""

from __future__ import annotations

from typing import Any

from numba import njit

from specdemo.kernels import cache

_FAST = {"contract", "reassoc", "arcp", "nsz"}


def kept(compiler: Any, *kind: Any, **options: Any) -> Any:
    """A decorator that keeps what it compiles on disk. Without a folder to write to it compiles at every start, for half a minute."""

    def compile_(function: Any) -> Any:
        place = cache.folder(cache.bases(), cache.sources())
        with cache.kept_in(place):
            return compiler(*kind, cache=place is not None, **options)(function)

    return compile_


compiled = njit(nogil=True, error_model="numpy")
# Sums may be taken in another order than written, always the same one.
loose = njit(nogil=True, error_model="numpy", fastmath=_FAST)
