"""The compiled pass equals transformers', and the bits of a row do not depend on the other rows of its pass."""

import copy
from pathlib import Path

import pytest
import torch
from passes import COMPILED_BUILDS, TEXT, TREE, WORDS, error, on_one_worker, passes_of, tiny_nf4
from programs import python

from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import ForwardInput
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features, runtime
from specdemo.models.decoders.choose import BYTES_TOLERANCE, agrees, open_decoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.networks.copy import matrices

pytestmark = pytest.mark.usefixtures("compiled_pass")

BYTES = cpu_features.multiplies_bytes()  # activations have 8 bits


@pytest.fixture(scope="module", params=on_one_worker(COMPILED_BUILDS))
def model(request):
    return tiny_nf4(request.param)


@pytest.fixture(scope="module")
def decoder(model):
    """The compiled pass of the same weights."""
    found, way = open_decoder(copy.deepcopy(model))
    assert way.startswith("compiled pass on ")
    return found


@pytest.fixture(scope="module")
def exact(model):
    """The module of the same weights in float32, expanded from 4 bits without intermediate rounding."""
    from bitsandbytes.functional import dequantize_4bit

    exact = copy.deepcopy(model).float()
    for path, packed in matrices(model).items():
        state = copy.deepcopy(packed.weight.quant_state)
        state.dtype = torch.float32
        linear = torch.nn.Linear(*reversed(state.shape), bias=False)
        linear.weight.data = dequantize_4bit(packed.weight.data, state)
        linear.bias = exact.get_submodule(path).bias
        exact.set_submodule(path, linear)
    return ModuleDecoder(exact)


def test_it_is_transformers_pass(model, decoder, exact):
    """bitsandbytes expands NF4 to bfloat16 in every pass: with activations of 15 bits the compiled pass is nearer to the exact weights."""
    module = ModuleDecoder(model)
    assert BYTES or agrees(decoder, module)
    for found, wanted, other in zip(*map(passes_of, (decoder, exact, module)), strict=True):
        assert error(other, wanted) < 0.1
        assert error(found, other) < BYTES_TOLERANCE
        assert error(found, wanted) < (4 if BYTES else 1) * error(other, wanted)


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
    # Next to another conversation, in one pass.
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


def test_a_long_text_fills_more_than_one_block_of_the_cache(model, decoder, exact):
    text = [(11 * n) % WORDS for n in range(700)]
    decoders = decoder, exact, ModuleDecoder(model)
    found, wanted, other = (CachedModel(one).read(text) for one in decoders)
    assert error(other, wanted) < 0.1
    assert error(found, wanted) < (4 if BYTES else 2) * error(other, wanted)


@pytest.mark.skipif(
    not cpu_features.has_wide_vectors(), reason="this processor has no more than AVX2"
)
def test_processors_with_less_compute_the_same():
    """numba compiles for AVX2 alone on request, as on most laptops."""
    features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2"
    asked = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    picked = "transformers_pass and qwen or same_alone and (llama or gemma or mistral) or decoded or one_go and cost"
    files = [f"{Path(__file__).parent}/test_{name}.py" for name in ("native", "products", "drafts")]
    python("-m", "pytest", "-q", "-n", "0", *files, "-k", picked, **asked)


def test_without_its_library_or_its_processor_there_is_no_compiled_pass(monkeypatch):
    model = tiny_nf4("llama")
    monkeypatch.setattr(runtime, "runs_here", lambda: False)
    decoder, way = open_decoder(model)
    assert isinstance(decoder, LeanDecoder)
    assert way.startswith("lean pass")
