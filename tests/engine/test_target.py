"""The target's cache: trees equal paths, rollback forgets, and refusals are clear."""

from __future__ import annotations

import pytest
import torch
from conftest import open_target

from specdemo.engine.cache import BLOCK_SLOTS
from specdemo.engine.target import CachedModel, ancestor_mask
from specdemo.engine.types import Proposal, depths

PROMPT = [3, 14, 15, 9, 26, 5]
#            0   1   2   3   4   5
TREE = Proposal(token_ids=(7, 8, 9, 10, 11, 12), parents=(-1, -1, 0, 0, 2, 1))


def test_ancestor_mask_of_the_worked_example():
    assert ancestor_mask([-1, 0, -1]).tolist() == [
        [True, False, False],
        [True, True, False],
        [False, False, True],
    ]
    assert depths([-1, 0, -1]) == [1, 2, 1]


@pytest.mark.parametrize("path", [[], [0], [0, 2, 4], [1, 5]])
def test_keeping_a_tree_path_equals_having_read_it(target_weights, path):
    target = CachedModel(target_weights)
    target.read(PROMPT[:-1])
    target.forward(PROMPT[-1], TREE)
    target.keep(path)
    text = [*PROMPT, *(TREE.token_ids[node] for node in path)]
    assert target.length == len(text)
    after = target.forward(20, Proposal()).logits[0]
    torch.testing.assert_close(
        after, target_weights(torch.tensor([[*text, 20]])).logits[0, -1], atol=1e-4, rtol=1e-4
    )


def test_rollback_forgets_and_refuses_nonsense(target_weights):
    target = CachedModel(target_weights)
    target.read(PROMPT)
    target.rollback(3)
    logits = target.read([40])
    torch.testing.assert_close(
        logits,
        target_weights(torch.tensor([[*PROMPT[:3], 40]])).logits[0, -1],
        atol=1e-4,
        rtol=1e-4,
    )
    with pytest.raises(ValueError, match="roll back"):
        target.rollback(99)


def test_the_cache_grows_beyond_its_first_block(target_weights):
    ids = [i % 60 for i in range(400)]
    target = CachedModel(target_weights)
    for start in range(0, 400, 50):
        logits = target.read(ids[start : start + 50])
    torch.testing.assert_close(
        logits, target_weights(torch.tensor([ids])).logits[0, -1], atol=1e-3, rtol=1e-3
    )


def test_a_cache_has_little_to_spare_and_gives_it_back_to_a_shorter_text(target_weights):
    """Bytes of both kinds of rows: keys and values, and the states that drafters read."""
    target = open_target(target_weights)
    ids = [place % 60 for place in range(3000)]
    for start in range(0, 3000, 100):
        target.read(ids[start : start + 100])
        slots = 1.25 * target.length + BLOCK_SLOTS
        keys_and_values, states = 2 * 2 * 2 * 8 * 4, len(target.features.layers) * 32 * 4
        assert target._cache.memory_bytes <= keys_and_values * slots
        assert target.features.memory_bytes <= states * slots
    target.rollback(2000)
    assert target._cache.capacity >= 3000  # a draft that is taken back moves nothing
    kept = CachedModel(target_weights)
    target.rollback(150)
    assert target._cache.capacity == BLOCK_SLOTS
    kept.read(ids[:150])
    torch.testing.assert_close(target.read([7]), kept.read([7]), atol=1e-4, rtol=1e-4)


def test_growing_past_a_block_of_the_cache_keeps_what_was_grown(target_weights):
    text = [3 + place % 40 for place in range(BLOCK_SLOTS - 2)]
    target = CachedModel(target_weights)
    target.read(text)
    target.grow([7, 8], [-1, 0])
    row = target.grow([9], [1])[0]
    alone = target_weights(torch.tensor([[*text, 7, 8, 9]])).logits[0, -1]
    torch.testing.assert_close(row, alone, atol=1e-4, rtol=1e-4)
