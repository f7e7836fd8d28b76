"""A reduced vocabulary: rows over a drafter's words instead of over all tokens."""

from __future__ import annotations

import pytest
import torch

from specdemo.config.settings import Sampling
from specdemo.engine.sampling import ReducedVocabulary, Shaper


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
