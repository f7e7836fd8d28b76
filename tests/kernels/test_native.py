"""The compiled pass computes what transformers computes, and every row alike however rows are read together."""

from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import VOCABULARY
from passes import ROPE, TEXT, TREE, passes_of
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from specdemo.drafters.base import DraftingContext
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.policies.lookahead import make_lookahead
from specdemo.engine.cache import RollbackCache
from specdemo.engine.cost import CostProfile
from specdemo.engine.draft_plan import DraftPlan, StopRule
from specdemo.engine.features import Features
from specdemo.engine.forward import ForwardInput, answered, immediate
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.engine.prefix import FeatureReader, PrefixReader
from specdemo.engine.sampling import ReducedVocabulary, Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features as processor
from specdemo.kernels import packing
from specdemo.kernels import runtime as native
from specdemo.models import loading
from specdemo.models.decoders.choose import agrees, compile_pass, open_decoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import Nf4Joined
from specdemo.models.drafts.compact import (
    CompactConfig,
    CompactLayer,
    CompactModel,
    CompactWeights,
    Injection,
    compiled,
    pack_linear,
)
from specdemo.models.drafts.copy import _quantised, matrices
from specdemo.settings import RunSettings, Sampling

pytestmark = pytest.mark.skipif(
    not native.runs_here(), reason="the compiled pass does not run on this processor or system"
)
WORDS = -(-VOCABULARY // 32) * 32
BUILDS = {
    "llama": {"tie_word_embeddings": True},
    "llama3-rope": {"rope_parameters": ROPE},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
}


def tiny(name: str, *, fused: bool = True):
    """A random NF4 model of a family, with or without what bitsandbytes has for some processors only."""
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(3)
    options = {"head_dim": 64, **BUILDS[name]}
    if name == "qwen2":
        options.pop("head_dim")  # hidden size over heads
    config = AutoConfig.for_model(
        name.removesuffix("3-rope"), vocab_size=WORDS, hidden_size=256, intermediate_size=192,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, **options,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    model.requires_grad_(False)
    for parameter_name, parameter in model.named_parameters():
        if "bias" in parameter_name or "norm" in parameter_name:
            parameter.add_(0.3 * torch.randn_like(parameter))
        elif "embed" not in parameter_name:
            parameter.mul_(4)  # so that layers say something
    for path in matrices(model):
        parent, _, attribute = path.rpartition(".")
        linear = _quantised(model.get_submodule(path))
        linear.support_avx512bf16_for_cpu &= fused
        setattr(model.get_submodule(parent), attribute, linear)
    loading.prepare_kernels(model, "nf4", torch.device("cpu"))
    loading.warm_up(model)
    return model


@pytest.fixture(scope="module", params=BUILDS)
def model(request):
    return tiny(request.param)


@pytest.fixture(scope="module")
def decoder(model):
    found = compile_pass(LeanDecoder(model))
    assert found is not None
    return found


def error(found, wanted) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def test_it_is_transformers_pass(model, decoder):
    assert open_decoder(model)[1].startswith("compiled pass on ")
    assert agrees(decoder, ModuleDecoder(model))
    lean = passes_of(LeanDecoder(model))
    for found, wanted, other in zip(
        passes_of(decoder), passes_of(ModuleDecoder(model)), lean, strict=True
    ):
        assert error(found, wanted) < 0.03
        assert error(found, wanted) < 2 * error(other, wanted)  # no worse than rounding


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_it_reads_what_bitsandbytes_stores_for_any_processor(name):
    """Without a fused kernel bitsandbytes keeps NF4 as on a GPU, and writes it out as bfloat16 in every pass."""
    model = tiny(name, fused=False)
    assert isinstance(LeanDecoder(model).layers[0].qkv, Nf4Joined)
    decoder, way = open_decoder(model)
    assert way.startswith("compiled pass on ")
    exact = ModuleDecoder(in_float32(model))
    for found, wanted, other in zip(
        *(passes_of(one) for one in (decoder, exact, ModuleDecoder(model))), strict=True
    ):
        assert error(found, wanted) < 0.03
        assert error(found, wanted) < error(other, wanted)  # nearer than transformers' own pass


def in_float32(model):
    """What 4-bit matrices mean, without any rounding on the way."""
    from bitsandbytes.functional import dequantize_4bit

    exact = copy.deepcopy(model).float()
    for path in matrices(model):
        parent, _, attribute = path.rpartition(".")
        packed = model.get_submodule(path)
        state = copy.deepcopy(packed.weight.quant_state)
        state.dtype = torch.float32
        linear = torch.nn.Linear(*reversed(state.shape), bias=packed.bias is not None)
        linear.weight.data = dequantize_4bit(packed.weight.data, state)
        if packed.bias is not None:
            linear.bias.data = packed.bias.data.float()
        setattr(exact.get_submodule(parent), attribute, linear)
    return exact


def test_a_row_is_the_same_alone_in_a_chain_in_a_tree_and_in_company(decoder):
    text = [(7 * n) % WORDS for n in range(90)]
    alone = CachedModel(decoder)
    alone.read(text[:70])
    rows = []
    for token in text[70:]:
        rows.append(alone.forward(token, Proposal.chain([])).logits[0])
        alone.keep([])
    in_pieces = CachedModel(decoder)
    in_pieces.read(text[:33])
    in_pieces.read(text[33:70])
    chain = in_pieces.forward(text[70], Proposal.chain(text[71:])).logits
    assert torch.equal(chain, torch.stack(rows))
    # In a tree, behind siblings that are refused.
    tree = CachedModel(decoder)
    tree.read(text[:70])
    guess = Proposal((1, text[71], 2, text[72]), (-1, -1, 1, 1))
    found = tree.forward(text[70], guess).logits
    assert torch.equal(found[[0, 2, 4]], torch.stack(rows[:3]))
    tree.keep([1, 3])
    assert torch.equal(tree.forward(text[73], Proposal.chain([])).logits[0], rows[3])
    # Beside another conversation, in one pass.
    caches = [RollbackCache(3), RollbackCache(3)]
    one, other = text[:40], text[50:67]
    passes = [
        ForwardInput(ids, range(len(ids)), None, cache, answers=len(ids))
        for ids, cache in zip((one, other), caches, strict=True)
    ]
    together = decoder.run(passes)
    fresh = ForwardInput(other, range(len(other)), None, RollbackCache(3), answers=len(other))
    assert torch.equal(together[1].logits, decoder.run([fresh])[0].logits)


def test_one_thread_computes_what_two_compute(decoder):
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            target = CachedModel(decoder)
            target.read(TEXT[:-1])
            found.append(target.forward(TEXT[-1], TREE).logits)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_long_text_fills_more_than_one_block_of_the_cache(model, decoder):
    text = [(11 * n) % WORDS for n in range(700)]
    found, wanted = CachedModel(decoder), CachedModel(ModuleDecoder(model))
    assert error(found.read(text), wanted.read(text)) < 0.03


@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize("rows", [1, 5, 16, 17, 40])
def test_products_are_those_of_the_decoded_matrix(group, rows):
    torch.manual_seed(0)
    width, outputs = 128, 96
    levels = torch.randint(0, 16, (outputs, width))
    scale, zero = torch.rand(outputs, width // group), torch.randn(outputs, width // group)
    matrix = packing.pack_codes(levels, scale, zero)
    scale, zero = (one.bfloat16().float().repeat_interleave(group, dim=1) for one in (scale, zero))
    weight = (levels - 8) * scale + zero
    x = torch.randn(rows, width)
    found = product(x, matrix, outputs, group)
    # What inputs are rounded to: bfloat16, or whole numbers of fifteen bits in each group.
    assert error(found, x @ weight.T) < (0.003 if processor.has_tiles() else 2e-4)
    alone = torch.cat([product(one[None], matrix, outputs, group) for one in x])
    assert torch.equal(found, alone)


def product(x, matrix: packing.Packed, outputs: int, group: int) -> torch.Tensor:
    rows, width = x.shape
    padded = -(-rows // 16) * 16
    y = torch.zeros(padded, width, dtype=torch.bfloat16)
    about = torch.zeros(2, padded, width // group)
    into, own = torch.zeros(rows, outputs), torch.zeros(8192 + 128 * padded, dtype=torch.uint8)
    addresses = np.array(matrix.addresses(), dtype=np.int64)
    table, _ = packing.meanings(packing.AFFINE)
    shapes = native.NativeLayers._shapes(_Kept(), min(rows, 16), 1)[0]
    compiled_product()(
        shapes.ctypes.data, x.data_ptr(), y.data_ptr(), about.data_ptr(), addresses.ctypes.data,
        table.data_ptr(), into.data_ptr(), own.data_ptr(), rows, width, group, outputs // 32,
    )  # fmt: skip
    return into


@cache
def compiled_product():
    from numba import njit

    from specdemo.kernels.llama import products

    @njit
    def run(shapes, x, y, about, matrix, table, into, own, rows, width, group, blocks):
        products.begin(shapes)
        products.lay_in(x, width * 4, y, about, rows, width, group, True)
        products.product(
            y, about, rows, width, matrix, table, group, into, blocks * 32, 0, blocks, own
        )
        products.end()

    return run


class _Kept:
    _tiles: dict = {}


def test_what_is_kept_on_disk_is_as_new_as_its_parts():
    from specdemo.kernels import draft_loop as team
    from specdemo.kernels import jit as compiling
    from specdemo.kernels import llama as layers
    from specdemo.kernels import llvm as emit
    from specdemo.kernels import matmul_amx as amx
    from specdemo.kernels import matmul_avx as avx
    from specdemo.kernels import simd as vector

    parts = [Path(one.__file__).read_bytes() for one in (amx, avx, compiling, emit, layers, vector)]
    wanted = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    assert wanted == team.PARTS, "write this into team.py, so that numba compiles it again"


def test_without_a_folder_to_keep_it_in_it_is_compiled_all_the_same():
    from specdemo.kernels import jit as compiling

    def compiler(*, cache=False):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, "compiled")

    assert compiling.kept(compiler)(len) == (len, "compiled")


def test_softmax_and_gates_are_torchs():
    from numba import njit

    from specdemo.kernels import simd as vector

    torch.manual_seed(0)
    scores = 30 * torch.randn(41, 16)
    scores[7, 3] = -1e30  # hidden
    found = scores.clone()
    gates, up = 20 * torch.randn(4, 16), torch.randn(4, 16)
    into = torch.zeros(4, 16)

    @njit
    def run(scores_, gates_, up_, into_):
        vector.soften(scores_, 40, np.float32(0.25))
        vector.gate(gates_, up_, into_, 4)

    run(found.data_ptr(), gates.data_ptr(), up.data_ptr(), into.data_ptr())
    wanted = (scores[:40] * 0.25).softmax(dim=0)
    torch.testing.assert_close(found[:40] / found[40], wanted, rtol=1e-5, atol=1e-9)
    assert found[7, 3] == 0
    torch.testing.assert_close(into, F.silu(gates) * up)


def compact() -> CompactWeights:
    """A random compact draft of two layers that says half of the words."""
    torch.manual_seed(5)
    config = CompactConfig(128, 4, 2, 64, 1e-5, 10000.0)

    def matrix(rows: int, columns: int):
        return pack_linear(
            torch.randn(rows, columns).bfloat16() / columns**0.5, four_bit=True, in_pass=True
        )

    def layer() -> CompactLayer:
        norms = [1 + 0.1 * torch.randn(128).bfloat16() for _ in range(2)]
        return CompactLayer(
            norms[0], matrix(512, 128), matrix(128, 256), norms[1], matrix(384, 128),
            matrix(128, 192),
        )  # fmt: skip

    return CompactWeights(
        config, (layer(), layer()), torch.ones(128).bfloat16(), torch.randn(128, 128).bfloat16(),
        matrix(64, 128), ReducedVocabulary(torch.randperm(128)[:64], 128), extends=1,
        mask=torch.randn(3, 128).bfloat16(), depth=4,
    )  # fmt: skip


@pytest.mark.parametrize("reads", [False, True])
def test_a_compact_draft_is_what_torch_makes_of_it(reads):
    plain, fast = compact(), compiled(compact())
    assert fast.native is not None
    found, features = [], Features((3,))
    matrix, states = torch.randn(128, 128).bfloat16() / 11, torch.randn(60, 128).bfloat16()
    features.write(0, [states])
    features.length = 60
    inject = Injection(torch.ones(128).bfloat16(), lambda x: F.linear(x, matrix))
    for weights in (plain, fast):
        if reads:
            weights = replace(weights, reads=(3,), inject=inject)
        model = CompactModel(weights, features)
        rows = [model.read(TEXT[:5])[None], model.guess(TEXT[5:7])]
        states = model.states
        rows += [model.grow([3, 4], [-1, -1]), model.grow([5], [1])]
        model.rollback(6)
        model.adjust = lambda states: 2 * states
        rows += [model.read([9])[None]]
        assert len(model.words.tokens) > 64  # some are the text's
        found.append((torch.cat([row.flatten() for row in rows]), states))
    for one, other in zip(*found, strict=True):
        assert error(other, one) < 0.02


def drafting(sampling: Sampling, policy: str, *, alone: bool, reads: bool) -> list[Proposal]:
    """Drafts of a model, in one go or token by token, along a text that keeps some of each."""
    weights, features = replace(compact(), depth=1), Features((3,))
    if reads:
        matrix = torch.randn(128, 128).bfloat16() / 11
        inject = Injection(torch.ones(128).bfloat16(), lambda x: F.linear(x, matrix))
        weights = replace(weights, reads=(3,), inject=inject)
        features.write(0, [torch.randn(60, 128).bfloat16()])
    model = CompactModel(compiled(weights), features)
    reader = FeatureReader(model) if reads else PrefixReader(model)
    if not alone:
        model.drafting = immediate(lambda *_: None)
    profile = CostProfile(((1, 1.0), (4, 1.1), (8, 1.6)), draft_step=0.02)
    settings = RunSettings(sampling=sampling, policy=policy, lookahead=9, threshold=0.05)
    context = DraftingContext(settings, Shaper(sampling), 128, profile)
    context.costs.observe_draft = lambda _seconds: None
    lookahead = make_lookahead(settings, context.costs, context.calibration)
    drafter = DraftModel(DraftReader(reader, context.shaper, 128, context.costs), lookahead)
    text, found = list(TEXT[:7]), []
    answered(drafter.start(text))
    for keeps in (2, 0, 5, 1):
        features.length = len(text) - 1
        found.append(answered(drafter.propose(text, 6)))
        text += [*found[-1].token_ids[:keeps], 40]
    return found


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("policy", ["constant", "confidence", "cost"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(0.6)])
def test_a_draft_in_one_go_is_the_one_made_token_by_token(sampling, policy, reads):
    pairs = zip(
        drafting(sampling, policy, alone=True, reads=reads),
        drafting(sampling, policy, alone=False, reads=reads),
        strict=True,
    )
    for one, other in pairs:
        assert one.token_ids == other.token_ids
        assert one.reason == other.reason
        torch.testing.assert_close(one.confidences, other.confidences, rtol=1e-5, atol=1e-6)
        for row, wanted in zip(one.draft_probs, other.draft_probs, strict=True):
            torch.testing.assert_close(row, wanted, rtol=1e-5, atol=1e-7)


def test_a_draft_that_memory_corrects_is_made_token_by_token():
    model = CompactModel(replace(compiled(compact()), depth=1))
    guide = DraftPlan(3, StopRule.never(3))
    assert model.draft_on([1, 2], guide) is not None
    model.rollback(0)
    model.adjust = lambda states: states
    assert model.draft_on([1, 2], guide) is None
    assert model.length == 0


@pytest.mark.skipif(not processor.has_wide_vectors(), reason="this processor has no more than AVX2")
def test_processors_with_less_compute_the_same():
    """numba compiles for AVX2 alone when asked to, as on most laptops."""
    features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2"
    asked = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    picked = "transformers_pass and qwen or same_alone and llama or products or one_go and cost"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", __file__, "-k", picked]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_without_its_library_or_its_processor_there_is_no_compiled_pass(monkeypatch):
    model = tiny("llama")
    monkeypatch.setattr(native, "runs_here", lambda: False)
    decoder, way = open_decoder(model)
    assert isinstance(decoder, LeanDecoder)
    assert way.startswith("lean pass")
