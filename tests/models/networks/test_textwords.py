"""A drafter's vocabulary contains the tokens of its conversation's text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.kernels import packing
from specdemo.models.networks import four_bit
from specdemo.models.networks.four_bit import rounded
from specdemo.models.networks.parts import MOST_ADDED, TextWords

SIZE, HIDDEN = 4096, 64
SAID = list(range(0, SIZE, 4))  # in the reduced vocabulary
EMBEDDING = torch.randn(SIZE, HIDDEN, generator=torch.Generator().manual_seed(3)).bfloat16()


def text_words(pack: Callable[[Tensor], packing.Packed] | None = None) -> TextWords:
    return TextWords(ReducedVocabulary(torch.tensor(SAID), SIZE), EMBEDDING, rounded, pack)


def same(one: TextWords, other: TextWords) -> bool:
    states = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert one.words.column_of == other.words.column_of
    assert one.words.tokens == tuple(one.words.ids.tolist())
    return torch.equal(one.logits(states), other.logits(states))


def test_what_the_text_says_can_be_said_again():
    found = text_words()
    found.read(0, [8, 5, 8, 7, 5, 12, 1])
    assert found.words.tokens == (*SAID, 5, 7, 1)
    assert found.words.token(found.words.column_of[7]) == 7
    states = torch.randn(2, HIDDEN).bfloat16()
    wanted = states.float() @ EMBEDDING[[5, 7, 1]].float().T
    assert (
        torch.corrcoef(torch.stack([found.logits(states).flatten(), wanted.flatten()]))[0, 1] > 0.98
    )


@pytest.mark.parametrize("pack", [None, four_bit.pack])
def test_words_depend_on_the_text_and_not_on_how_it_was_read(pack):
    text = [(37 * i) % SIZE for i in range(200)]
    whole, pieces = text_words(pack), text_words(pack)
    whole.read(0, text)
    pieces.read(0, text[:50])
    pieces.read(50, [4001, 4002, 4003])  # and taken back
    pieces.forget(51)
    pieces.forget(50)
    for place in range(50, 200):
        pieces.read(place, text[place : place + 1])
    assert same(whole, pieces)
    if pack:
        count = whole.extra.count
        assert count == pieces.extra.count == len(whole.words.tokens) - len(SAID)
        one, other = whole.extra.matrix, pieces.extra.matrix
        blocks = -(-count // 32)
        assert torch.equal(one.codes[:blocks], other.codes[:blocks])
        assert torch.equal(one.scales[:blocks], other.scales[:blocks])
    pieces.forget(0)
    assert pieces.words.tokens == tuple(SAID)
    assert pieces.extra is None


def test_there_is_an_end_to_them():
    found = text_words()
    found.read(0, range(SIZE))
    assert len(found.words.tokens) == len(SAID) + MOST_ADDED
    assert same(found, found)


def test_two_conversations_share_none():
    words = ReducedVocabulary(torch.tensor(SAID), SIZE)
    one, other = (TextWords(words, EMBEDDING, rounded, None) for _ in range(2))
    one.read(0, [5])
    assert 5 not in other.words.column_of
    assert 5 not in words.column_of
