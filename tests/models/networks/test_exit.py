"""Early exit: the first layers' states, read ahead of the target in its own cache, and nothing left behind."""

import pytest
import torch
from conftest import VOCABULARY, reference_logits, tiny_llama
from tiny_compact import compact_config

from specdemo.engine.attention import first_layers
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.networks.chain import CompactDecoder, CompactWeights
from specdemo.models.networks.exit import ExitModel

TEXT = [1, 9, 20, 33, 7, 7, 12, 40, 2, 18]
LAYER = 1


@pytest.fixture(scope="module")
def weights():
    """An adapter that is the tiny target's second layer: its drafts are then the target's own words."""
    model = tiny_llama(0)
    lean, config = LeanDecoder(model), compact_config(32, 8, model.config.rms_norm_eps)
    words = ReducedVocabulary(torch.arange(VOCABULARY), VOCABULARY)
    own = (lean.layers[LAYER],)
    return CompactWeights(config, own, lean.norm, lean.embedding, lean.head, words, reads=(LAYER,))


def opened(model, weights, token_ids=()):
    """A target that stores its states and has read a text, and early exit on it."""
    target = CachedModel(model, reads=(LAYER,))
    target.record(wanted=True)
    if token_ids:
        target.read(token_ids)
    return target, ExitModel(target, CompactDecoder(weights))


def test_the_model_stays_unchanged(target_weights):
    before = dict(target_weights.model._modules)
    part = first_layers(target_weights, LAYER)
    assert len(part.layers) == 1
    assert target_weights.model._modules == before
    assert len(target_weights.model.layers) == target_weights.config.num_hidden_layers == 2
    assert part.embed_tokens.weight is target_weights.model.embed_tokens.weight


def test_the_targets_own_layer_as_adapter_gives_its_logits(target_weights, weights):
    """States stored by the target and states computed here give the logits of the whole text."""
    for known in (0, 4, len(TEXT) - 1, len(TEXT)):
        _, model = opened(target_weights, weights, TEXT[:known])
        logits = model.read(TEXT)
        assert torch.allclose(logits, reference_logits(target_weights, TEXT), atol=1e-3)


def test_known_text_costs_no_pass(target_weights, weights):
    target, model = opened(target_weights, weights, TEXT)
    target.lower = None  # would fail if called
    assert model.read(TEXT).isfinite().all()
    assert model.length == len(TEXT)


def test_rollback_and_rereading_give_the_same(target_weights, weights):
    _, model = opened(target_weights, weights, TEXT[:5])
    first = model.read(TEXT)
    model.rollback(7)
    model.read([3, 4, 5, 6])
    model.rollback(6)
    assert torch.allclose(model.read(TEXT[6:]), first, atol=1e-5)
    model.rollback(2)
    assert torch.allclose(model.read(TEXT[2:]), first, atol=1e-5)


def test_trees_grow_in_pieces(target_weights, weights):
    """Each node has the logits of its own path."""
    _, model = opened(target_weights, weights, TEXT[:-2])
    model.read(TEXT)
    tree = Proposal((4, 11, 30, 8, 5), (-1, -1, 0, 1, 2))
    parts = [(tree.token_ids[part], tree.parents[part]) for part in (slice(2), slice(2, 5))]
    rows = torch.cat([model.grow(*part) for part in parts])
    for row, path in zip(rows, tree.paths()[1:], strict=True):
        assert torch.allclose(row, reference_logits(target_weights, [*TEXT, *path]), atol=1e-3)
    # Grown nodes are forgotten, and the text continues.
    after = model.read([13])
    assert torch.allclose(after, reference_logits(target_weights, [*TEXT, 13]), atol=1e-3)


def test_the_target_overwrites_the_rows_of_the_draft(target_weights, weights):
    """A pass after drafting answers as one without."""
    target, model = opened(target_weights, weights, TEXT[:-1])
    guess = Proposal((4, 11, 30), (-1, -1, 0))
    want = target.forward(TEXT[-1], guess).logits
    model.read(TEXT)
    model.read([21, 22, 23])
    model.grow([1, 2], [-1, 0])
    assert torch.equal(target.forward(TEXT[-1], guess).logits, want)
    target.keep([0])
    assert torch.allclose(
        target.read([50]), reference_logits(target_weights, [*TEXT, 4, 50]), atol=1e-5
    )


def test_states_that_were_not_kept_are_reported(target_weights, weights):
    target = CachedModel(target_weights, reads=(LAYER,))
    target.read(TEXT)
    with pytest.raises(ValueError, match="record"):
        ExitModel(target, CompactDecoder(weights)).read(TEXT)
