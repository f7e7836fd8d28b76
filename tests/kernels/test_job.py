"""A job is one record, the same for NumPy, C and compiled code, and a pass uses no memory but that of its job."""

import copy
import ctypes
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from guarded import guard, in_child
from passes import passes_of, tiny_nf4
from tiny_compact import compact, features_of, injecting

from specdemo.kernels import job as jobs
from specdemo.kernels.plan import DraftPlan, StopRule
from specdemo.models.decoders.choose import open_decoder
from specdemo.models.networks.chain import CompactDecoder, CompactModel

pytestmark = pytest.mark.usefixtures("compiled_pass")
needs_fork = pytest.mark.skipif(
    sys.platform != "linux", reason="pages are protected on Linux alone"
)


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


def drafts() -> list[torch.Tensor]:
    """Logits of a draft up to the last slot of its cache: a text, guessed positions, a tree, and a chain."""
    model = CompactModel(CompactDecoder(injecting(compact())), features_of(0))
    rows = [
        model.read(TEXT[:250])[None],
        model.guess(TEXT[250:252]),
        model.grow([3, 4, 5, 6], [-1, 0, 0, 1]),
    ]
    plain = replace(model.weights, depth=1)
    drafter = CompactModel(CompactDecoder(plain), features_of(0))
    drafter.read(TEXT[:250])
    uniforms = torch.rand(5, generator=torch.Generator().manual_seed(1)).double()
    chain = drafter.draft([100, 3], DraftPlan(5, StopRule.never(5), uniforms))
    return [*rows, *chain.rows]


TEXT = [(7 * number) % 128 for number in range(256)]


@needs_fork
def test_a_draft_uses_its_own_memory_alone():
    wanted = drafts()

    def work():
        guard()
        for found, same in zip(drafts(), wanted, strict=True):
            assert torch.equal(found, same)

    assert in_child(work) == 0


@needs_fork
@pytest.mark.parametrize("name", ["qwen2", "smollm3", "gemma3_text"])
def test_a_targets_pass_uses_its_own_memory_alone(name):
    model = tiny_nf4(name)
    wanted = passes_of(open_decoder(copy.deepcopy(model))[0])

    def work():
        guard()
        decoder, way = open_decoder(model)
        assert way.startswith("compiled pass")
        for found, same in zip(passes_of(decoder), wanted, strict=True):
            assert torch.equal(found, same)

    assert in_child(work) == 0


@needs_fork
@pytest.mark.parametrize("short", ["inputs", "results", "cache", "scratch"])
def test_memory_that_is_too_small_ends_the_process(short):
    def work():
        guard(short)
        drafts()

    assert in_child(work) == -signal.SIGSEGV
