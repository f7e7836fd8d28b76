"""torch's own team of threads, which compiled code borrows, and whether it is there."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.kernels import cpu_features


@cache
def parallel() -> Any:
    """How torch's OpenMP runtime runs a function in all threads of the caller's team; None where the runtime is another."""
    library = openmp()
    if library is None:
        return None
    run = ctypes.CDLL(library).GOMP_parallel
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    run.restype = None
    return run


@cache
def openmp() -> str | None:
    """GNU's OpenMP library that torch has loaded."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    loaded = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text().splitlines()}
    found = sorted(path for path in loaded if "libgomp" in Path(path).name)
    beside = [path for path in found if "torch" in path]
    return next(iter(beside or found), None)


@cache
def runs_here() -> bool:
    """Whether this processor and installation have what the compiled pass needs."""
    if sys.platform != "linux" or not cpu_features.has_vectors() or openmp() is None:
        return False
    import llvmlite.binding as llvm

    llvm.load_library_permanently(openmp())
    return True
