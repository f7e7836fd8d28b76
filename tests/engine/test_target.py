"""The target's cache and its stored hidden states: trees equal paths, rollback forgets, and refusals are clear."""

import pytest
import torch
from conftest import open_target, reference_logits
from passes import TREE
from tiny_trained import READS

from specdemo.engine.cache import BLOCK_SLOTS
from specdemo.engine.target import CachedModel, Features, ancestor_mask
from specdemo.engine.types import Proposal, depths

PROMPT = [3, 14, 15, 9, 26, 5]


def assert_same(found, wanted):
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


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
    assert_same(after, reference_logits(target_weights, [*text, 20]))


def test_rollback_forgets_and_refuses_nonsense(target_weights):
    target = CachedModel(target_weights)
    target.read(PROMPT)
    target.rollback(3)
    assert_same(target.read([40]), reference_logits(target_weights, [*PROMPT[:3], 40]))
    with pytest.raises(ValueError, match="roll back"):
        target.rollback(99)


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
    assert_same(target.read([7]), kept.read([7]))


def test_growing_past_a_block_of_the_cache_keeps_what_was_grown(target_weights):
    text = [3 + place % 40 for place in range(BLOCK_SLOTS - 2)]
    target = CachedModel(target_weights)
    target.read(text)
    target.grow([7, 8], [-1, 0])
    assert_same(target.grow([9], [1])[0], reference_logits(target_weights, [*text, 7, 8, 9]))


@pytest.fixture
def recording(target_weights):
    recording = CachedModel(target_weights, READS)
    recording.record(wanted=True)
    return recording


def reference(weights, token_ids):
    """(S, layers x H): transformers' own states over a text."""
    output = weights(torch.tensor([token_ids]), output_hidden_states=True)
    return torch.cat([output.hidden_states[layer][0] for layer in READS], dim=-1)


def test_rows_follow_the_cache_through_a_tree(recording, target_weights):
    recording.read(PROMPT)
    # Two branches below the pending token; the second is accepted with its child.
    recording.forward(17, Proposal((3, 4, 8), (-1, -1, 1)))
    recording.keep([1, 2])
    assert recording.features.length == recording.length == len(PROMPT) + 3
    wanted = reference(target_weights, [*PROMPT, 17, 4, 8])
    assert_same(recording.features.read(0, 99, READS), wanted)
    assert_same(recording.features.read(2, 5, (2,)), wanted[2:5, 32:])
    recording.rollback(4)
    assert len(recording.features.read(0, 99, READS)) == 4


def test_a_text_that_was_read_unrecorded_is_read_again(recording, target_weights):
    recording.read(PROMPT[:2])
    recording.record(wanted=False)
    recording.read(PROMPT[2:])
    assert (recording.length, recording.features.length) == (6, 2)
    recording.record(wanted=True)
    assert recording.length == 2
    recording.read(PROMPT[2:])
    assert_same(recording.features.read(0, 6, READS), reference(target_weights, PROMPT))


def test_rows_outlive_growth():
    features = Features((1,))
    for place in range(700):
        features.write(place, torch.full((1, 3), float(place)))
        features.gather([0])
    assert features.read(0, 700, (1,))[:, 0].tolist() == list(range(700))
