"""A job in compiled code: its records, a thread's part of it, how threads wait for each other, and the time.

There are two kinds of teams, see `team`: GNU's OpenMP library numbers torch's own threads; threads of our own
count arrivals in the job. Code is compiled for one of them.
"""

from __future__ import annotations

import sys
import time

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types

from specdemo.kernels import job as jobs
from specdemo.kernels import llvm, simd, team
from specdemo.kernels.llvm import compiled

BORROWED = team.is_borrowed()  # numba compiles only the branch that this selects
BARRIER_POLLS = 4096  # polls of a barrier before other threads of the system may run

gnu_barrier = types.ExternalFunction("GOMP_barrier", types.void())
gnu_number = types.ExternalFunction("omp_get_thread_num", types.int32())
gnu_count = types.ExternalFunction("omp_get_num_threads", types.int32())
yields = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
let_others_run = types.ExternalFunction(yields, types.int32())


@llvm.emits(result=types.int64)
def add_one(builder, address):
    """Add one to an int64 that other threads use, and return its value before."""
    place = llvm.pointer(builder, address, llvm.I64)
    return builder.atomic_rmw("add", place, ir.Constant(llvm.I64, 1), "seq_cst")


@llvm.emits(result=types.int64)
def now_at(builder, address):
    """An int64 that other threads write."""
    return builder.load_atomic(llvm.pointer(builder, address, llvm.I64), "seq_cst", 8)


@compiled
def meet(arrived, threads):
    """Wait until all threads have reached this barrier. arrived: address of an int64, 0 at the start"""
    all_here = (add_one(arrived) // threads + 1) * threads
    looks = 0
    while now_at(arrived) < all_here:
        looks += 1
        if looks > BARRIER_POLLS:
            let_others_run()


@compiled
def part_of(address):
    """Return a job's address, this thread's number and the number of threads. address: the argument of the team's function"""
    if BORROWED:
        return address, gnu_number(), gnu_count()
    part = carray(simd.int64s_at(address), 3)
    return part[0], part[1], part[2]


@compiled
def wait_for_threads(job, threads):
    """Wait until all threads are here."""
    if threads > 1:
        if BORROWED:
            gnu_barrier()
        else:
            meet(job.arrived, threads)


if sys.platform == "win32":
    # It writes ticks instead of seconds, see `job.SECOND`.
    write_time = types.ExternalFunction("QueryPerformanceCounter", types.int32(types.intp))
else:
    clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
    MONOTONIC = np.int32(time.CLOCK_MONOTONIC)

    @compiled
    def write_time(address):
        """Write seconds and nanoseconds of a monotonic clock. address: of two int64"""
        clock_gettime(MONOTONIC, address)


LAYER_BYTES, SEQUENCE_BYTES = jobs.LAYER.itemsize, jobs.SEQUENCE.itemsize
PART_BYTES = jobs.PART.itemsize
TOKEN_BYTES, SECONDS_OFFSET = jobs.TOKEN.itemsize, jobs.TOKEN.fields["seconds"][1]


def _reader(record):
    """Return a compiled function that returns the record at an address."""
    pointer_to = simd.pointers_to(numba.from_dtype(record))

    @compiled
    def at(address):
        return carray(pointer_to(address), 1)[0]

    return at


job_at, layer_at, _sequence_at, draft_at, token_at, block_part_at = map(_reader, jobs.RECORDS)


@compiled
def sequence_at(job, number):
    return _sequence_at(job.sequences + number * SEQUENCE_BYTES)
