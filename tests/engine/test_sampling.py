"""Top-p selects the same tokens as transformers, without sorting the vocabulary."""

from __future__ import annotations

import pytest
import torch
from transformers.generation.logits_process import TopPLogitsWarper

from specdemo.config.settings import Sampling
from specdemo.engine import sampling
from specdemo.engine.sampling import Shaper


@pytest.mark.parametrize("top_p", [0.0001, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_top_p_keeps_what_transformers_keeps(top_p, spread):
    logits = torch.randn(3, 997, generator=torch.Generator().manual_seed(7)) * spread
    shaped = Shaper(Sampling(temperature=1.0, top_p=top_p)).logits(logits, [], [[]] * 3)
    expected = TopPLogitsWarper(top_p)(torch.zeros(3, 1, dtype=torch.long), logits)
    assert torch.equal(shaped, expected)


def test_top_p_keeps_all_of_some_equally_likely_tokens():
    shaped = Shaper(Sampling(temperature=1.0, top_p=0.5)).logits(torch.zeros(1, 8), [], [[]])
    assert torch.equal(shaped, torch.zeros(1, 8))


def test_a_sharp_row_has_few_tokens_to_sort(monkeypatch):
    sizes = []
    sort = sampling.np.sort
    monkeypatch.setattr(sampling.np, "sort", lambda row: sizes.append(len(row)) or sort(row))
    row = torch.linspace(0, -60, 49_152).unsqueeze(0)
    Shaper(Sampling(temperature=1.0, top_p=0.9)).logits(row, [], [[]])
    assert sizes[0] < 49_152 / 4
