"""The threads that run a job: torch's own where its OpenMP library is GNU's, else threads of Python."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.kernels import cpu_features

OWN_TEAM = "SPECDEMO_OWN_TEAM"  # environment variable: threads of Python, also where torch's are
WINDOWS = ("SwitchToThread", "QueryPerformanceCounter")


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
def is_borrowed() -> bool:
    """Whether jobs run in torch's own threads. Code is compiled for one kind of team, see `parts`."""
    return openmp() is not None and os.environ.get(OWN_TEAM, "") in ("", "0")


@cache
def runs_here() -> bool:
    """Whether the compiled pass runs on this processor and installation."""
    if not cpu_features.compiles():
        return False
    import llvmlite.binding as llvm

    if is_borrowed():
        llvm.load_library_permanently(openmp())
    elif sys.platform == "win32":
        for name in WINDOWS:
            function = getattr(ctypes.WinDLL("kernel32"), name)
            llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return True


def run(compiled: Any, job: int, threads: int) -> None:
    """Run a compiled function of `parts.part_of` in so many threads, this one among them. job: its address"""
    if not is_borrowed():
        own_team(threads).run(compiled.ctypes, job)
    elif threads > 1:
        _parallel()(compiled.address, job, threads, 0)
    else:
        compiled.ctypes(job)


@cache
def _parallel() -> Any:
    """Return the function of GNU's OpenMP runtime that runs a function in all threads of a team."""
    run = ctypes.CDLL(openmp()).GOMP_parallel
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    run.restype = None
    return run


class OwnTeam:
    """Threads of Python that run parts of one job at a time. A call through ctypes releases Python's lock.

    All parts must run in parallel, since they wait for each other: callers run in turn, and each part has a thread.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._turn = threading.Lock()
        self._others = ThreadPoolExecutor(max(1, threads - 1), "compiled-pass")

    def run(self, function: Any, job: int) -> None:
        """Call a function with the address of each thread's part: (job, thread, threads) int64."""
        numbers = [number for n in range(self.threads) for number in (job, n, self.threads)]
        parts = (ctypes.c_int64 * len(numbers))(*numbers)
        first = ctypes.addressof(parts)
        with self._turn:
            others = [self._others.submit(function, first + 24 * n) for n in range(1, self.threads)]
            function(first)
            for one in others:
                one.result()


own_team = cache(OwnTeam)
