"""The compiled pass computes what transformers computes, and every row alike however rows are read together."""

from __future__ import annotations

import copy
import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from passes import COMPILED_BUILDS, TEXT, TREE, WORDS, passes_of, tiny_nf4
from tiny_compact import compact, features_of, feeding, injecting
from torch.nn import functional as F

from specdemo.drafters.base import DraftingContext
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.policies.lookahead import make_lookahead
from specdemo.engine.cache import RollbackCache
from specdemo.engine.cost import CostProfile
from specdemo.engine.draft_plan import DraftPlan, StopRule
from specdemo.engine.features import Features
from specdemo.engine.forward import ForwardInput, answer_together, answered, immediate
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.engine.prefix import FeatureReader, PrefixReader
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features, packing, runtime, weights
from specdemo.kernels import job as jobs
from specdemo.models.decoders.choose import agrees, compile_pass, open_decoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import Nf4Joined
from specdemo.models.drafts.compact import CompactModel
from specdemo.models.drafts.compact_decoder import CompactDecoder
from specdemo.models.drafts.compact_weights import Injection, MixedEmbedding
from specdemo.models.drafts.copy import matrices
from specdemo.settings import RunSettings, Sampling

pytestmark = pytest.mark.skipif(
    not runtime.runs_here(), reason="the compiled pass does not run on this processor or system"
)


@pytest.fixture(scope="module", params=COMPILED_BUILDS)
def model(request):
    return tiny_nf4(request.param)


@pytest.fixture(scope="module")
def decoder(model):
    found = compile_pass(model)
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
    model = tiny_nf4(name, fused=False)
    assert isinstance(LeanDecoder(model).layers[0].qkv, Nf4Joined)
    exact = ModuleDecoder(in_float32(model))
    decoder, way = open_decoder(model)
    assert way.startswith("compiled pass on ")
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


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 64), (8, 64)])
@pytest.mark.parametrize("rows", [1, 5, 16, 17, 40])
def test_products_are_those_of_the_decoded_matrix(bits, group, rows):
    torch.manual_seed(0)
    width, outputs = 128, 96
    matrix, weight = of_levels(outputs, width, group) if bits == 4 else of_bytes(outputs, width)
    assert matrix.bits == bits
    x = torch.randn(rows, width)
    found = product(x, matrix, outputs, group)
    # What inputs are rounded to: bfloat16, or whole numbers of fifteen bits in each group.
    assert error(found, x @ weight.T) < (0.003 if cpu_features.has_tiles() else 2e-4)
    alone = torch.cat([product(one[None], matrix, outputs, group) for one in x])
    assert torch.equal(found, alone)


def of_levels(outputs: int, width: int, group: int) -> tuple[packing.Packed, torch.Tensor]:
    """A random 4-bit matrix, and its values."""
    levels = torch.randint(0, 16, (outputs, width))
    scale, zero = torch.rand(outputs, width // group), torch.randn(outputs, width // group)
    matrix = packing.pack_codes(levels, scale, zero)
    scale, zero = (one.bfloat16().float().repeat_interleave(group, dim=1) for one in (scale, zero))
    return matrix, (levels - 8) * scale + zero


def of_bytes(outputs: int, width: int) -> tuple[packing.Packed, torch.Tensor]:
    """A random 8-bit matrix with very different scales, and its values."""
    codes = torch.randint(-127, 128, (outputs, width // packing.GROUP, packing.GROUP))
    codes[..., 5] = 127
    scales = 2.0 ** torch.randint(-9, 9, (outputs, width // packing.GROUP, 1))
    weight = (codes * scales).flatten(1)
    matrix = packing.whole_numbers(weight)
    assert torch.equal(packing.from_whole_numbers(matrix, 32, outputs), weight[32:])
    return matrix, weight


def product(x, matrix: packing.Packed, outputs: int, group: int) -> torch.Tensor:
    rows, width = x.shape
    padded = -(-rows // 16) * 16
    y = torch.zeros(padded, width, dtype=torch.bfloat16)
    about = torch.zeros(2, padded, width // group)
    into, own = torch.zeros(rows, outputs), torch.zeros(8192 + 128 * padded, dtype=torch.uint8)
    record = jobs.LayerStructure()
    weights.write_matrix(record.qkv, matrix)
    table, _ = runtime.meanings(packing.AFFINE)
    shapes = runtime._tile_shapes()[min(rows, 16)]
    compiled_product()(
        shapes.ctypes.data, x.data_ptr(), y.data_ptr(), about.data_ptr(), ctypes.addressof(record),
        table.data_ptr(), into.data_ptr(), own.data_ptr(), rows, width, group, outputs // 32,
    )  # fmt: skip
    return into


@cache
def compiled_product():
    from numba import njit

    from specdemo.kernels.attention import products
    from specdemo.kernels.records import layer_at

    @njit
    def run(shapes, x, y, about, layer, table, into, own, rows, width, group, blocks):
        products.begin(shapes)
        products.quantize_inputs(x, width * 4, y, about, rows, width, group, True)
        matrix = layer_at(layer).qkv
        products.product(
            y, about, rows, width, matrix, table, group, into, blocks * 32, 0, blocks, own
        )
        products.end()

    return run


def test_softmax_and_gates_are_torchs():
    from numba import njit

    from specdemo.kernels import simd

    torch.manual_seed(0)
    scores = 30 * torch.randn(41, 16)
    scores[7, 3] = -1e30  # hidden
    found = scores.clone()
    gates, up = 20 * torch.randn(4, 16), torch.randn(4, 16)
    into = torch.zeros(4, 16)

    @njit
    def run(scores_, gates_, up_, into_):
        simd.softmax(scores_, 40, np.float32(0.25))
        simd.gate(gates_, up_, into_, 4)

    run(found.data_ptr(), gates.data_ptr(), up.data_ptr(), into.data_ptr())
    wanted = (scores[:40] * 0.25).softmax(dim=0)
    torch.testing.assert_close(found[:40] / found[40], wanted, rtol=1e-5, atol=1e-9)
    assert found[7, 3] == 0
    torch.testing.assert_close(into, F.silu(gates) * up)


@pytest.mark.parametrize("reads", [False, True, "own"])
def test_a_compact_draft_is_what_torch_makes_of_it(reads):
    plain, fast = (CompactDecoder(compact(), compiled=compiled) for compiled in (False, True))
    assert fast.compiled is not None
    found, features = [], Features((3,))
    matrix, states = torch.randn(128, 128).bfloat16() / 11, torch.randn(60, 128).bfloat16()
    features.write(0, [states])
    features.length = 60
    inject = Injection(torch.ones(128).bfloat16(), lambda x: F.linear(x, matrix))
    for decoder in (plain, fast):
        if reads:
            weights = replace(decoder.weights, reads=(3,), inject=inject)
            if reads == "own":
                weights = replace(weights, extends=0, depth=1, feedback=matrix[0] * 5)
                features.length = 5
            decoder = CompactDecoder(weights, compiled=decoder is fast)
        model = CompactModel(decoder, features)
        rows = [model.read(TEXT[:5])[None]]
        rows += [model.read(TEXT[5:6])[None], model.guess(TEXT[6:7])]
        states = model.states
        rows += [model.grow([3, 4], [-1, -1]), model.grow([5, 6], [1, 2])]
        model.rollback(6)
        model.adjust = lambda states: 2 * states
        rows += [model.read([9])[None]]
        assert len(model.words.tokens) > 64  # some are the text's
        found.append((torch.cat([row.flatten() for row in rows]), states))
    for one, other in zip(*found, strict=True):
        assert error(other, one) < 0.02


def drafting(sampling: Sampling, policy: str, *, alone: bool, reads: bool | str) -> list[Proposal]:
    """Drafts of a model, in one go or token by token, along a text that keeps some of each."""
    weights, features = replace(compact(), depth=1), Features((3,))
    if reads:
        matrix = torch.randn(128, 128).bfloat16() / 11
        inject = Injection(torch.ones(128).bfloat16(), lambda x: F.linear(x, matrix))
        weights = replace(weights, reads=(3,), inject=inject)
        if reads == "own":
            feedback = torch.randn(128).bfloat16()
            weights = replace(weights, extends=0, feedback=feedback)
        if reads == "mixed":
            blend = torch.randn(128, 128) / 11
            mixed = MixedEmbedding(weights.embedding, blend, weights.words.ids)
            feedback = torch.randn(128).bfloat16() / 8
            weights = replace(weights, extends=0, feedback=feedback, mixed=mixed)
        features.write(0, [torch.randn(60, 128).bfloat16()])
    model = CompactModel(weights, features)
    reader = FeatureReader(model) if reads else PrefixReader(model)
    if not alone:
        model.drafting = immediate(lambda *_: None)
    profile = CostProfile(((1, 1.0), (4, 1.1), (8, 1.6)), draft_step=0.02)
    settings = RunSettings(sampling=sampling, policy=policy, lookahead=9, threshold=0.05)
    context = DraftingContext(settings, Shaper(sampling), 128, profile)
    context.costs.observe_draft = lambda *_: None
    lookahead = make_lookahead(settings, context.costs, context.calibration)
    drafter = DraftModel(DraftReader(reader, context.shaper, 128, context.costs), lookahead)
    text, found = list(TEXT[:7]), []
    answered(drafter.start(text))
    for keeps in (2, 0, 5, 1):
        features.length = len(text) - 1
        found.append(answered(drafter.propose(text, 6)))
        text += [*found[-1].token_ids[:keeps], 40]
    return found


@pytest.mark.parametrize("reads", [False, True, "own", "mixed"])
@pytest.mark.parametrize("policy", ["constant", "confidence", "cost"])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(1.0), Sampling(0.6), Sampling(1.0, top_p=0.8)]
)
def test_a_draft_in_one_go_is_the_one_made_token_by_token(sampling, policy, reads):
    pairs = zip(
        drafting(sampling, policy, alone=True, reads=reads),
        drafting(sampling, policy, alone=False, reads=reads),
        strict=True,
    )
    # A state that is fed back differs in its last bit, which may round a cached key or value the other way.
    near = (2e-3, 1e-4) if reads == "mixed" else (1e-5, 1e-6)
    for one, other in pairs:
        assert one.token_ids == other.token_ids
        assert one.reason == other.reason
        torch.testing.assert_close(one.confidences, other.confidences, rtol=near[0], atol=near[1])
        for row, wanted in zip(one.draft_probs, other.draft_probs, strict=True):
            torch.testing.assert_close(row, wanted, rtol=near[0], atol=near[1] / 10)


def test_a_draft_that_memory_corrects_is_made_token_by_token():
    model = CompactModel(replace(compact(), depth=1))
    guide = DraftPlan(3, StopRule.never(3))
    assert model.draft_on([1, 2], guide) is not None
    model.rollback(0)
    model.adjust = lambda states: states
    assert model.draft_on([1, 2], guide) is None
    assert model.length == 0


def test_rows_of_drafts_are_the_same_alone_and_in_one_pass():
    """Several runs' drafts read, guess, grow and draft in one pass; each has its own words and states of the target."""
    decoder, texts = (
        CompactDecoder(injecting(compact())),
        ([5, 9, 77, 100], [3], [60, 2, 2, 90, 11, 14, 8]),
    )
    assert decoder.compiled is not None

    def opened() -> list[CompactModel]:
        return [CompactModel(decoder, features_of(number)) for number in range(len(texts))]

    alone, together = opened(), opened()
    for step in (
        lambda model, text: model.reading(text),
        lambda model, text: model.guessing(text[:2]),
        lambda model, text: model.growing(text[:1], [-1]),
        lambda model, _: model.growing([7, 8], [-1, 0]),
    ):
        wanted = [answered(step(model, text)) for model, text in zip(alone, texts, strict=True)]
        found = in_one_pass(
            [step(model, text) for model, text in zip(together, texts, strict=True)]
        )
        for one, other, first, second in zip(found, wanted, together, alone, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(first.states, second.states)
            assert first.words.tokens == second.words.tokens


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("reads", [False, True])
def test_a_draft_that_reads_in_pieces_says_what_it_says_after_one_pass(depth, reads):
    weights = injecting(compact()) if reads else compact()
    found, text = [], [5 * n % 128 for n in range(50)]
    for piece in (7, 64):
        decoder = CompactDecoder(replace(weights, depth=depth))
        decoder.piece = piece
        model = CompactModel(decoder, features_of(0))
        rows = [model.guess(text) if depth > 1 else model.read(text)]
        model.rollback(3)
        chain = model.draft_on(text[3:], DraftPlan(4, StopRule.never(4)))
        assert (chain is None) == (depth > 1)
        if chain:
            rows += [torch.tensor(chain.columns), *chain.rows]
        model.rollback(3)
        states = torch.randn(47, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
        rows.append(answered(model.reading_states(text[3:], states)))
        assert model.length == 50
        found.append(rows)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("feeds", [False, True])
@pytest.mark.parametrize("drawn", [False, True])
def test_drafts_that_go_on_together_are_those_made_alone(drawn, feeds):
    """Drafts of different length, and rows that are only read, share the passes of one job."""
    weights = feeding(compact()) if feeds else replace(injecting(compact()), depth=1)
    decoder = CompactDecoder(weights)
    texts, mosts = ([5, 9, 77], [3], [60, 2, 2, 90], [8, 1]), (6, 1, 9, 3)
    uniforms = torch.rand(9, dtype=torch.float64) if drawn else None

    def drafts(models):
        for model, text, most in zip(models, texts, mosts, strict=True):
            least = 0.02 if most == 9 else 0.0
            plan = DraftPlan(most, StopRule.never(most, least), uniforms, 0.7)
            yield model.drafting(text, plan)

    alone, together = ([CompactModel(decoder, features_of(n)) for n in range(4)] for _ in range(2))
    reader, other = (CompactModel(decoder) for _ in range(2))
    wanted = [*map(answered, drafts(alone)), reader.read([1, 2, 3])]
    found = in_one_pass([*drafts(together), other.reading([1, 2, 3])])
    assert torch.equal(found[-1], wanted[-1])
    assert [len(chain.columns) for chain in found[:-1]][:2] == [6, 1]
    for chain, expected, model, same in zip(found, wanted, together, alone, strict=False):
        assert chain.columns == expected.columns
        assert chain.confidences == expected.confidences
        assert all(map(torch.equal, chain.rows, expected.rows))
        assert model.length == same.length
        assert torch.equal(model.read([4]), same.read([4]))  # the cache holds what was drafted


def in_one_pass(work):
    """Results of generators that each ask for one pass, answered together."""
    requests = [next(one) for one in work]
    answer_together(requests)
    results = []
    for one in work:
        with pytest.raises(StopIteration) as ended:
            next(one)
        results.append(ended.value.value)
    return results


@pytest.mark.skipif(
    not cpu_features.has_wide_vectors(), reason="this processor has no more than AVX2"
)
def test_processors_with_less_compute_the_same():
    """numba compiles for AVX2 alone when asked to, as on most laptops."""
    features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2"
    asked = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    picked = "transformers_pass and qwen or same_alone and llama or products or one_go and cost"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", __file__, "-k", picked]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_without_its_library_or_its_processor_there_is_no_compiled_pass(monkeypatch):
    model = tiny_nf4("llama")
    monkeypatch.setattr(runtime, "runs_here", lambda: False)
    decoder, way = open_decoder(model)
    assert isinstance(decoder, LeanDecoder)
    assert way.startswith("lean pass")
