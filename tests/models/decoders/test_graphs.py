"""Recorded passes equal ordinary passes. No GPU is needed: a traced function has the same limits as a recording.

Like a CUDA graph, a traced function is a list of operations on tensors at fixed addresses: it sees no value that Python computes
later. `Unwaiting` refuses every operation that a GPU refuses while it records.
"""

import gc
import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import VOCABULARY, tiny_llama
from passes import TEXT, TREE, in_one_pass, nf4_layers, passes_of, tiny
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models.decoders import graphs
from specdemo.models.decoders.choose import open_on_gpu
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import stack
from specdemo.models.decoders.rotary import TABLE_POSITIONS

aten = torch.ops.aten


class Unwaiting(TorchDispatchMode):
    """Refuses operations whose outcome the processor would have to wait for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (aten._local_scalar_dense, aten.nonzero, aten.equal):
            raise RuntimeError("operation not permitted when stream is capturing")
        return func(*args, **(kwargs or {}))


class Tracing:
    """Records as a GPU does, and counts the replays."""

    def __init__(self):
        self.recorded = self.replayed = 0

    def __call__(self, work):
        with Unwaiting():
            work()
        traced = make_fx(work)()
        answers = traced()
        self.recorded += 1

        def again():
            self.replayed += 1
            for answer, new in zip(answers, traced(), strict=True):
                if new is not None:
                    answer.copy_(new)
            return answers

        return again


def close(got, want):
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-4)


def test_recorded_passes_equal_ordinary_ones(model):
    lean, tracing = LeanDecoder(model), Tracing()
    graphed = GraphDecoder(lean, tracing)
    want = passes_of(lean)
    for _ in range(2):  # the second text lies in the home of the first
        close(passes_of(graphed), want)
        gc.collect()
    assert tracing.replayed == 12
    assert tracing.recorded == 5  # passes of 6, 2, 8 and 3 rows, and 2 rows of two layers


def test_4_bit_products_are_recorded_too():
    """As a GPU stores them, and by the call that multiplies there."""
    lean, tracing = LeanDecoder(tiny("llama")), Tracing()
    joined = stack(nf4_layers(3))
    lean.head = lambda x: joined(F.pad(x, (0, 32)).bfloat16()).float()
    graphed = GraphDecoder(lean, tracing)
    torch.testing.assert_close(passes_of(graphed), passes_of(lean), atol=0.05, rtol=0.05)
    assert graphed.records


def test_a_text_may_outgrow_its_home_and_the_rotary_tables():
    model, tracing = tiny_llama(0), Tracing()
    lean = LeanDecoder(model)
    graphed, plain = (CachedModel(one) for one in (GraphDecoder(lean, tracing), lean))
    text = torch.arange(TABLE_POSITIONS - 6).remainder(VOCABULARY).tolist()
    close(graphed.read(text), plain.read(text))
    for _ in range(6):
        pair = [one.forward(5, Proposal.chain([6, 7])).logits for one in (graphed, plain)]
        close(*pair)
        for one in (graphed, plain):
            one.keep([])
    assert tracing.replayed == 6
    assert tracing.recorded == 3  # at first, in the larger home, with the longer tables


def test_conversations_do_not_see_each_other():
    lean = LeanDecoder(tiny_llama(0))
    graphed = GraphDecoder(lean, Tracing())
    texts = TEXT, TEXT[::-1]
    want = []
    for text in texts:
        target = CachedModel(lean)
        target.read(text)
        want.append(target.forward(1, TREE).logits)
    targets = [CachedModel(graphed) for _ in texts]
    for target, text in zip(targets, texts, strict=True):
        target.read(text)
    for _ in range(2):
        close([target.forward(1, TREE).logits for target in targets], want)
    # Shared passes use the lean decoder, over the same keys.
    together = in_one_pass([partial(target.forward, 1, TREE) for target in targets])
    close([answer.logits for answer in together], want)


def test_an_answer_outlives_the_next_pass():
    target = CachedModel(GraphDecoder(LeanDecoder(tiny_llama(0)), Tracing()))
    first = target.read(TEXT)
    kept = first.clone()
    target.forward(3, Proposal.chain([]))
    target.rollback(0)
    target.read(TEXT[::-1])
    assert torch.equal(first, kept)


@pytest.mark.parametrize("look", [float, bool, torch.nonzero])
def test_a_model_that_waits_for_a_value_takes_the_lean_pass(monkeypatch, look):
    model = tiny("llama")
    lean = LeanDecoder(model)
    logits = lean.logits

    def looking(x):
        look(x.sum()[None])
        return logits(x)

    monkeypatch.setattr(lean, "logits", looking)
    graphed = GraphDecoder(lean, Tracing())
    close(passes_of(graphed), passes_of(LeanDecoder(model)))
    assert not graphed.records


def test_on_a_gpu_the_fastest_way_that_agrees_is_taken(monkeypatch):
    model = tiny("llama")
    lean, module = LeanDecoder(model), ModuleDecoder(model)
    assert open_on_gpu(lean, module, Tracing())[1] == "lean pass in CUDA graphs"

    def refuse(*_args):
        raise RuntimeError("out of memory")

    decoder, way = open_on_gpu(lean, module, refuse)
    assert way == "lean pass"
    close(passes_of(decoder)[0], passes_of(module)[0])
    monkeypatch.setattr(lean, "sizes", replace(lean.sizes, scaling=0.5 * lean.sizes.scaling))
    assert open_on_gpu(lean, module, Tracing()) == (module, "transformers' own pass")
    monkeypatch.setattr(lean, "through", refuse)
    assert open_on_gpu(lean, module, Tracing()) == (module, "transformers' own pass")


def test_recordings_and_homes_are_bounded(monkeypatch):
    monkeypatch.setattr(graphs, "KEPT_GRAPHS", 3)
    graphed = GraphDecoder(LeanDecoder(tiny_llama(0)), Tracing())
    for rows in graphs.GRAPH_ROWS[:5]:
        target = CachedModel(graphed)
        target.read(TEXT)
        target.forward(3, Proposal.chain([4] * (rows - 1)))
        del target
        gc.collect()
    assert len(graphed._recordings) == 3
    assert [static.is_empty for static in graphed._static] == [True]


def test_empty_homes_are_given_back_when_memory_runs_out(monkeypatch):
    lean = LeanDecoder(tiny_llama(0))
    graphed, plain = GraphDecoder(lean, lambda work: work), CachedModel(lean)
    gone = [CachedModel(graphed) for _ in range(2)]
    for one in gone:
        one.read(TEXT)
    homes = [weakref.ref(static) for static in graphed._static]
    del gone, one
    gc.collect()
    assert [static.is_empty for static in graphed._static] == [True, True]
    real, refused = graphs.StaticCache, []

    def made(layers, like, slots):
        if not refused:
            refused.append(slots)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(layers, like, slots)

    monkeypatch.setattr(graphs, "StaticCache", made)
    text = [token % VOCABULARY for token in range(graphs.SLOTS)]
    target = CachedModel(graphed)
    close(target.read(text), plain.read(text))
    assert refused == [2 * graphs.SLOTS]
    gc.collect()
    # The text started in one of them, and was copied from there.
    assert sum(home() is None for home in homes) == 1
