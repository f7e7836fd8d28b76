"""Shaping: top-p as transformers selects it, and rows over the tokens of a reduced vocabulary."""

from __future__ import annotations

import pytest
import torch
from transformers.generation.logits_process import TopPLogitsWarper

from specdemo.config.settings import Sampling
from specdemo.engine import sampling
from specdemo.engine.sampling import ReducedVocabulary, Shaper


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


def test_words_are_widened_to_their_tokens():
    words = ReducedVocabulary(torch.tensor([4, 1, 2]), 6)
    (row,) = words.widen(torch.tensor([[0.5, 0.2, 0.3]])).tolist()
    assert row == pytest.approx([0, 0.2, 0.3, 0, 0.5, 0])
    assert [words.token(column) for column in range(3)] == [4, 1, 2]
    assert words.columns([2, 3, 4]) == [2, 0]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, repetition_penalty=1.4),
        Sampling(temperature=1.3, top_k=5),
        Sampling(temperature=1.0, top_p=0.6),
    ],
)
def test_shaping_words_is_shaping_all_tokens_with_the_others_ruled_out(sampling):
    generator = torch.Generator().manual_seed(5)
    words = ReducedVocabulary(torch.randperm(50, generator=generator)[:20], 50)
    rows = torch.randn(2, 20, generator=generator)
    wide = torch.full((2, 50), -torch.inf)
    wide[:, words.ids] = rows
    committed, paths = [*words.ids[:5].tolist(), 49, 48], [[], words.ids[7:8].tolist()]
    shaper = Shaper(sampling)
    narrow = words.widen(shaper.probs(rows, committed, paths, words))
    assert torch.allclose(narrow, shaper.probs(wide, committed, paths), atol=1e-6)
