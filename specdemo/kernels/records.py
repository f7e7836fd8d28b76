"""The records of a job as compiled code reads them: functions from an address to a record."""

from __future__ import annotations

import numba
from numba import carray, cfunc, types

from specdemo.kernels import job as jobs
from specdemo.kernels import simd
from specdemo.kernels.jit import compiled, kept

LAYER_BYTES, SEQUENCE_BYTES = jobs.LAYER.itemsize, jobs.SEQUENCE.itemsize
TOKEN_BYTES, SECONDS_OFFSET = jobs.TOKEN.itemsize, jobs.TOKEN.fields["seconds"][1]

_jobs_at, _layers_at, _sequences_at, _drafts_at, _tokens_at = (
    simd.pointers_to(numba.from_dtype(record)) for record in jobs.RECORDS
)


@compiled
def job_at(address):
    return carray(_jobs_at(address), 1)[0]


@compiled
def layer_at(address):
    return carray(_layers_at(address), 1)[0]


@compiled
def sequence_at(job, number):
    return carray(_sequences_at(job.sequences + number * SEQUENCE_BYTES), 1)[0]


@compiled
def draft_at(address):
    return carray(_drafts_at(address), 1)[0]


@compiled
def token_at(address):
    return carray(_tokens_at(address), 1)[0]


@kept(cfunc, types.void(types.intp), nopython=True)
def record_sizes(address):
    """Write the bytes of each of `jobs.RECORDS`, as compiled code counts them. address: of as many int64"""
    found = carray(simd.int64s_at(address), 5)
    found[0] = carray(_jobs_at(address), 1).itemsize
    found[1] = carray(_layers_at(address), 1).itemsize
    found[2] = carray(_sequences_at(address), 1).itemsize
    found[3] = carray(_drafts_at(address), 1).itemsize
    found[4] = carray(_tokens_at(address), 1).itemsize
