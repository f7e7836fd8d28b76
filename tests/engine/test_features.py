"""Stored hidden states of a target: one row per cached token, through trees, rollbacks and pauses."""

from __future__ import annotations

import pytest
import torch

from specdemo.engine.target import CachedModel, Features
from specdemo.engine.types import Proposal

TEXT = [5, 6, 7, 11, 30, 2]
LAYERS = (1, 2)


@pytest.fixture
def target(target_weights):
    target = CachedModel(target_weights, LAYERS)
    target.record(wanted=True)
    return target


def reference(weights, token_ids):
    """(S, layers x H): transformers' own states over a text."""
    output = weights(torch.tensor([token_ids]), output_hidden_states=True)
    return torch.cat([output.hidden_states[layer][0] for layer in LAYERS], dim=-1)


def test_rows_follow_the_cache_through_a_tree(target, target_weights):
    target.read(TEXT)
    # Two branches below the pending token; the second is accepted with its child.
    target.forward(17, Proposal((3, 4, 8), (-1, -1, 1)))
    target.keep([1, 2])
    assert target.features.length == target.length == len(TEXT) + 3
    wanted = reference(target_weights, [*TEXT, 17, 4, 8])
    torch.testing.assert_close(target.features.read(0, 99, LAYERS), wanted, atol=1e-4, rtol=1e-4)
    one = target.features.read(2, 5, (2,))
    torch.testing.assert_close(one, wanted[2:5, 32:], atol=1e-4, rtol=1e-4)
    target.rollback(4)
    assert len(target.features.read(0, 99, LAYERS)) == 4


def test_what_was_read_unrecorded_is_read_again(target, target_weights):
    target.read(TEXT[:2])
    target.record(wanted=False)
    target.read(TEXT[2:])
    assert (target.length, target.features.length) == (6, 2)
    target.record(wanted=True)
    assert target.length == 2
    target.read(TEXT[2:])
    wanted = reference(target_weights, TEXT)
    torch.testing.assert_close(target.features.read(0, 6, LAYERS), wanted, atol=1e-4, rtol=1e-4)


def test_rows_outlive_growth():
    features = Features((1,))
    for place in range(700):
        features.write(place, [torch.full((1, 3), float(place))])
        features.gather([0])
    assert features.read(0, 700, (1,))[:, 0].tolist() == list(range(700))
