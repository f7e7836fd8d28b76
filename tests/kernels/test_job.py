"""A job is one record, the same for NumPy, C and compiled code, and the check finds each field that leaves its memory."""

import ctypes
from dataclasses import replace
from functools import partial

import job_check
import numpy as np
import pytest
import torch
from passes import Paused
from tiny_compact import compact, features_of, feeding, injecting

from specdemo.kernels import job as jobs
from specdemo.kernels import runtime
from specdemo.kernels.plan import DraftPlan, StopRule
from specdemo.models.networks.chain import CompactDecoder, CompactModel

pytestmark = pytest.mark.usefixtures("compiled_pass")


@pytest.mark.parametrize("record", jobs.RECORDS)
def test_numpy_c_and_compiled_code_have_the_same_records(record):
    from numba import carray, from_dtype, njit

    from specdemo.kernels.simd import pointers_to

    pointer_to = pointers_to(from_dtype(record))

    @njit
    def size_at(address):
        return carray(pointer_to(address), 1).itemsize

    assert size_at(0) == record.itemsize == ctypes.sizeof(jobs.structure(record))


@pytest.mark.parametrize("record", jobs.RECORDS)
def test_what_python_writes_by_name_is_there_by_name(record):
    """C structures and dtypes agree on the offset of every field, and all fields have 8 bytes."""
    structure = jobs.structure(record)()
    array = np.frombuffer(structure, dtype=record)
    for number, name in enumerate(record.names):
        kind = record.fields[name][0]
        if kind.names is None:
            assert kind.itemsize == 8
            setattr(structure, name, number + 1)
            assert array[name][0] == number + 1
        else:
            getattr(structure, name).zeros = number + 1
            assert array[name]["zeros"][0] == number + 1


class Stopped(Exception):
    """The job was caught before it ran."""


def test_a_good_job_passes_and_what_it_gives_is_unchanged(monkeypatch):
    found = []
    for inspect in (None, job_check.inspect):
        monkeypatch.setattr(runtime.CompiledLayers, "inspect", inspect)
        model = CompactModel(CompactDecoder(injecting(compact())), features_of(0))
        rows = [
            model.read([3, 14, 15, 9, 26])[None],
            model.guess([5, 35]),
            model.grow([3, 4, 5], [-1, 0, 0]),
        ]
        model.rollback(3)
        plain = replace(model.weights, depth=1)
        drafter = CompactModel(CompactDecoder(plain), features_of(0))
        uniforms = torch.rand(4, generator=torch.Generator().manual_seed(1)).double()
        chain = drafter.draft([100, 3], DraftPlan(4, StopRule.never(4), uniforms))
        found.append(torch.cat([row.flatten() for row in [*rows, *chain.rows]]))
    assert torch.equal(*found)


@pytest.fixture(scope="module")
def caught():
    """A job of two conversations that draft, as it lies in its buffer, and the memory that it owns."""
    patch = pytest.MonkeyPatch()
    seen, real = [], job_check.check_job

    def catch(job, owned, threads):
        real(job, owned, threads)
        seen.append((job, owned, threads))
        raise Stopped

    decoder = CompactDecoder(feeding(compact()))
    patch.setattr(runtime.CompiledLayers, "inspect", job_check.inspect)
    models = [CompactModel(decoder, features_of(number)) for number in (0, 2)]
    for model in models:
        model.read([5, 100, 101])
    plan = DraftPlan(5, StopRule.never(5), torch.rand(5, dtype=torch.float64))
    requests = [Paused(partial(model.draft, [7, 102, 3], plan)).request for model in models]
    patch.setattr(job_check, "check_job", catch)
    with pytest.raises(Stopped):
        decoder.run([request.input for request in requests])
    patch.undo()
    return *seen[0], decoder, requests


PAST = 1 << 20  # past the end of everything

JOB_ADDRESSES = [
    "table", "layers", "norm", "embedding", "cos", "sin", "input", "positions", "sequences", "asked", "logits",
    "states", "tiles", "shared", "scratch", "final", "feedback",
]  # fmt: skip
JOB_SIZES = [
    "num_rows", "last_layer", "heads", "kv_heads", "head_dim", "hidden", "inner", "head_columns",
    "num_sequences", "num_asked", "num_columns", "scratch_bytes", "rotated",
]  # fmt: skip
SEQUENCE_FIELDS = [
    "first_row", "num_rows", "start", "num_keys", "prefix", "capacity", "seen", "caches", "first_asked",
    "num_asked", "injected", "first_injected", "num_injected", "num_extra", "draft",
]  # fmt: skip
DRAFT_FIELDS = [
    "most", "word_ids", "rule", "uniforms", "tokens", "num_columns", "position", "penalised", "num_penalised",
]  # fmt: skip


def sequence_of(job, number=0):
    return (jobs.SequenceStructure * job.num_sequences).from_address(job.sequences)[number]


def layer_of(job):
    return jobs.LayerStructure.from_address(job.layers + jobs.LAYER.itemsize)


def draft_of(job):
    return jobs.DraftStructure.from_address(sequence_of(job).draft)


MORE = {"head_dim": 64, "hidden": 64, "inner": 64, "scratch_bytes": PAST, "rotated": PAST}
NAMES = {
    "most": "most|drafted",
    "position": "cos",
    "num_penalised": "draft.penalised.*num_penalised",
}
# Where the record is, the field, what is added to its value, and the name that the error must contain.
OFF = [
    *((lambda job: job, one, off, f"{one} of the job|{one} ") for one in JOB_ADDRESSES for off in (-8, PAST)),
    *((lambda job: job, one, MORE.get(one, 1), one) for one in JOB_SIZES),
    *(
        (lambda job, number=number: sequence_of(job, number), one, PAST, rf"sequences\[{number}\].*{one}")
        for one in SEQUENCE_FIELDS for number in (0, 1)
    ),
    *((draft_of, one, PAST, NAMES.get(one, f"draft.{one}")) for one in DRAFT_FIELDS),
    (layer_of, "rotary", 1, "cos"),
]  # fmt: skip
for PART in ("codes", "scales", "zeros"):
    OFF += [(lambda job: job.head, PART, 64, rf"head\.{PART}")]
    OFF += [
        (lambda job: sequence_of(job).extra, PART, PAST, rf"extra\.{PART}")
    ]  # it has spare rows
    for OWNER in ("qkv", "output", "gate_up", "down"):
        record = lambda job, owner=OWNER: getattr(layer_of(job), owner)  # noqa: E731
        OFF += [(record, PART, 64, rf"{OWNER}\.{PART}")]


@pytest.mark.parametrize(("find", "field", "more", "name"), OFF)
def test_a_field_that_is_off_is_named(caught, find, field, more, name):
    """With another value in a field the check raises, and names it."""
    job, owned, threads, *_ = caught
    record = find(job)
    before = getattr(record, field)
    setattr(record, field, before + more)
    try:
        with pytest.raises(job_check.JobError, match=name):
            job_check.check_job(job, owned, threads)
    finally:
        setattr(record, field, before)
    job_check.check_job(job, owned, threads)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("part", ["keys", "values"])
def test_a_cache_that_is_off_is_named(caught, layer, part):
    places = (ctypes.c_int64 * 4).from_address(sequence_of(caught[0]).caches)
    at = 2 * layer + (part == "values")
    before = places[at]
    places[at] = before + 2
    try:
        with pytest.raises(job_check.JobError, match=rf"caches\[{layer}\].{part}"):
            job_check.check_job(*caught[:3])
    finally:
        places[at] = before
