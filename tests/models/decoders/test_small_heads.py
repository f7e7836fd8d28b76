"""Heads in 8 and 4 bits outside the compiled pass: the code of a graphics card on the processor's tensors."""

from __future__ import annotations

import pytest
import torch
from passes import TEXT, tiny

from specdemo.config.errors import UserError
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models.decoders.choose import open_on_gpu
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.models.decoders.heads import divergence
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.small_heads import SmallHead, with_head


def bfloat16():
    return tiny("llama").bfloat16()


def said(decoder):
    """(3, V): what a decoder says behind a text and two drafted tokens."""
    target = CachedModel(decoder)
    target.read(TEXT)
    return target.forward(5, Proposal.chain([6, 7])).logits.float()


@pytest.mark.parametrize(("bits", "most"), [(8, 0.012), (4, 0.15)])
def test_a_head_says_nearly_what_its_weight_says(bits, most):
    torch.manual_seed(0)
    weight, x = torch.randn(320, 128).bfloat16(), torch.randn(5, 128).bfloat16()
    head, want = SmallHead(weight, bits), x.float() @ weight.float().t()
    got = head(x).float()
    assert (got - want).norm() < most * want.norm()
    assert head.nbytes < weight.nbytes * bits / 16 * 1.15
    # Rows do not depend on their company.
    assert torch.equal(head(x[2:3]).float()[0], got[2]) or bits == 4


def test_fewer_bits_move_words_further():
    lean = LeanDecoder(bfloat16())
    want = said(lean)
    apart = []
    for bits in (16, 8, 4):
        graphed = with_head(GraphDecoder(lean, lambda work: work), lean.model, bits)
        assert isinstance(graphed, GraphDecoder)
        apart.append(divergence(said(graphed), want).kl)
        assert graphed.records
    assert apart[0] <= apart[1] < apart[2]


def test_a_card_gets_the_head_that_is_asked_for():
    model = bfloat16()
    for bits, way in (("auto", "graphs"), ("16", "graphs"), ("8", ", 8-bit head"), ("4", ", 4-bit head")):  # fmt: skip
        opened = open_on_gpu(LeanDecoder(model), ModuleDecoder(model), lambda work: work, bits)
        assert opened[1].endswith(way)


def test_a_head_of_some_words_says_their_logits():
    lean, words = LeanDecoder(bfloat16()), [5 * n % 64 for n in range(32)]
    got = said(with_head(lean, lean.model, 16, words))
    torch.testing.assert_close(got, said(lean)[:, words], atol=0.02, rtol=0.02)
    with pytest.raises(UserError, match="heads in fewer bits"):
        with_head(ModuleDecoder(lean.model), lean.model, 8)
