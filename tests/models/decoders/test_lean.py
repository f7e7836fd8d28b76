"""The lean pass equals transformers' for every supported model, and does not change other models."""

from functools import partial

import pytest
import torch
from conftest import VOCABULARY, tiny_llama
from passes import TEXT, TREE, in_one_pass, nf4_layers, passes_of, tiny
from programs import python
from torch import nn

from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.target import CachedModel
from specdemo.models.decoders.choose import agrees, open_decoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import FOLDED_ROWS, stack
from specdemo.models.decoders.rotary import TABLE_POSITIONS


def test_a_lean_pass_equals_that_of_transformers(model):
    want = passes_of(ModuleDecoder(model))
    lean = LeanDecoder(model)
    torch.testing.assert_close(passes_of(lean), want, atol=2e-4, rtol=1e-4)
    # The module, whose weights are now in the stacks, is unchanged.
    torch.testing.assert_close(passes_of(ModuleDecoder(model)), want, atol=2e-4, rtol=1e-4)


def test_long_prompts_and_texts_equal_those_of_transformers(model):
    """Read more rows than are folded, more positions than the first rotary table has, and a chunk after a filled cache."""
    torch.manual_seed(0)
    text = torch.randint(0, VOCABULARY, (TABLE_POSITIONS + 2 * FOLDED_ROWS,)).tolist()
    got, want = (
        torch.stack([one.read(text[: 3 * FOLDED_ROWS]), one.read(text[3 * FOLDED_ROWS :])])
        for one in (CachedModel(LeanDecoder(model)), CachedModel(model))
    )
    torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3)


def test_bfloat16_agrees_up_to_its_rounding(model):
    model = model.bfloat16()
    decoder, words = open_decoder(model)
    assert isinstance(decoder, LeanDecoder), words
    got, want = (passes_of(one)[0].float() for one in (decoder, ModuleDecoder(model)))
    assert (got - want).norm() < 0.04 * want.norm()


def test_conversations_answered_together_equal_those_answered_alone(model):
    lean, works = LeanDecoder(model), []
    for begin in (0, 2, 0, 2):
        target = CachedModel(lean)
        target.read(TEXT[begin:-1])
        works.append(partial(target.forward, TEXT[-1], TREE))
    alone = [work().logits for work in works[:2]]
    together = [one.logits for one in in_one_pass(works[2:])]
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_other_builds_keep_their_own_pass():
    assert isinstance(open_decoder(tiny("gpt2"))[0], ModuleDecoder)
    dynamic = tiny(
        "llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    )
    assert isinstance(open_decoder(dynamic)[0], ModuleDecoder)


def test_a_model_that_computes_something_else_keeps_its_own_pass():
    model = tiny_llama(0)
    assert isinstance(open_decoder(model)[0], LeanDecoder)
    for layer in model.model.layers:
        layer.mlp.act_fn = nn.GELU()
    assert not agrees(LeanDecoder(model), ModuleDecoder(model))
    assert isinstance(open_decoder(model)[0], ModuleDecoder)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("rows", [1, 17])
def test_joined_4_bit_layers_are_the_layers(rows, nested):
    layers = nf4_layers(3, nested=nested)
    x = torch.randn(rows, 128, dtype=torch.bfloat16)
    want = torch.cat([layer(x) for layer in layers], dim=-1)
    joined = stack(layers)
    assert len({layer.weight.untyped_storage().data_ptr() for layer in layers}) == 1
    torch.testing.assert_close(joined(x), want)
    # The layers are now in the stack, and are unchanged.
    torch.testing.assert_close(torch.cat([layer(x) for layer in layers], dim=-1), want)


def test_a_processor_without_bfloat16_takes_the_ordinary_product():
    code = """
import torch
from specdemo.models.decoders.operators import pack
weight, x = torch.randn(24, 16).bfloat16(), torch.randn(3, 16).bfloat16()
assert not torch.ops.mkldnn._is_mkldnn_bf16_supported()
torch.testing.assert_close(pack(weight)(x), x @ weight.T)
"""
    python("-c", code, ONEDNN_MAX_CPU_ISA="AVX2")


def test_kinds_that_cannot_be_joined_are_called_one_by_one():
    class Other(nn.Linear):
        pass

    parts = [Other(8, 4), Other(8, 6)]
    x = torch.randn(2, 8)
    with torch.no_grad():
        torch.testing.assert_close(stack(parts)(x), torch.cat([p(x) for p in parts], -1))
