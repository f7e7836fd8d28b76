"""A job is one record, the same for NumPy, C and compiled code, and the check finds each field that leaves its memory."""

from __future__ import annotations

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

pytestmark = pytest.mark.skipif(
    not runtime.runs_here(), reason="the compiled pass does not run on this processor or system"
)


def test_numpy_c_and_compiled_code_have_the_same_records():
    from specdemo.kernels.parts import record_sizes

    sizes = np.zeros(len(jobs.RECORDS), dtype=np.int64)
    record_sizes.ctypes(sizes.ctypes.data)
    assert sizes.tolist() == [record.itemsize for record in jobs.RECORDS]
    jobs.check_sizes(tuple(sizes.tolist()))
    with pytest.raises(RuntimeError, match="records of"):
        jobs.check_sizes((*sizes.tolist()[:-1], int(sizes[-1]) + 8))


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
        chain = drafter.draft(
            [100, 3],
            DraftPlan(
                4,
                StopRule.never(4),
                torch.rand(4, generator=torch.Generator().manual_seed(1)).double(),
            ),
        )
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


def refused(caught, record, field: str, value: int, name: str) -> None:
    """With another value in a field the check raises, and names it."""
    job, owned, threads, *_ = caught
    before = getattr(record, field)
    setattr(record, field, value)
    try:
        with pytest.raises(job_check.JobError, match=name):
            job_check.check_job(job, owned, threads)
    finally:
        setattr(record, field, before)
    job_check.check_job(job, owned, threads)


@pytest.mark.parametrize("field", JOB_ADDRESSES)
@pytest.mark.parametrize("off", [-8, PAST])
def test_an_address_that_is_off_is_named(caught, field, off):
    job = caught[0]
    refused(caught, job, field, getattr(job, field) + off, f"{field} of the job|{field} ")


@pytest.mark.parametrize("field", JOB_SIZES)
def test_a_size_that_is_off_is_named(caught, field):
    job = caught[0]
    more = {"head_dim": 64, "hidden": 64, "inner": 64, "scratch_bytes": PAST, "rotated": PAST}.get(
        field, 1
    )
    refused(caught, job, field, getattr(job, field) + more, field)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("field", SEQUENCE_FIELDS)
def test_a_conversation_that_is_off_is_named(caught, field, number):
    job = caught[0]
    table = (jobs.SequenceStructure * job.num_sequences).from_address(job.sequences)
    name = rf"sequences\[{number}\].*{field}"
    refused(caught, table[number], field, getattr(table[number], field) + PAST, name)


@pytest.mark.parametrize("part", ["codes", "scales", "zeros"])
@pytest.mark.parametrize("owner", ["head", "extra", "qkv", "output", "gate_up", "down"])
def test_a_matrix_that_is_off_is_named(caught, owner, part):
    job = caught[0]
    record, off = job.head, 64
    if owner == "extra":
        off = PAST  # there is room for more rows
        record = jobs.SequenceStructure.from_address(job.sequences).extra
    elif owner != "head":
        layer = jobs.LayerStructure.from_address(job.layers + jobs.LAYER.itemsize)
        record = getattr(layer, owner)
    refused(caught, record, part, getattr(record, part) + off, rf"{owner}\.{part}")


def test_a_rotary_embedding_that_is_not_there_is_named(caught):
    layer = jobs.LayerStructure.from_address(caught[0].layers + jobs.LAYER.itemsize)
    refused(caught, layer, "rotary", 1, "cos")


@pytest.mark.parametrize("field", DRAFT_FIELDS)
def test_a_draft_that_is_off_is_named(caught, field):
    job = caught[0]
    sequence = jobs.SequenceStructure.from_address(job.sequences)
    draft = jobs.DraftStructure.from_address(sequence.draft)
    names = {
        "most": "most|drafted",
        "position": "cos",
        "num_penalised": r"draft.penalised.*num_penalised",
    }
    name = names.get(field, rf"draft.{field}")
    refused(caught, draft, field, getattr(draft, field) + PAST, name)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("part", ["keys", "values"])
def test_a_cache_that_is_off_is_named(caught, layer, part):
    sequence = jobs.SequenceStructure.from_address(caught[0].sequences)
    places = (ctypes.c_int64 * 4).from_address(sequence.caches)
    at = 2 * layer + (part == "values")
    before = places[at]
    places[at] = before + 2
    try:
        with pytest.raises(job_check.JobError, match=rf"caches\[{layer}\].{part}"):
            job_check.check_job(*caught[:3])
    finally:
        places[at] = before
