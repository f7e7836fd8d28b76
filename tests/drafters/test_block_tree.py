"""A tree over one block of proposals: it contains DSpark's chain, and the tokens below a branch depend on its last token."""

from __future__ import annotations

import pytest
import torch
from conftest import bound_target, drafter_for, innermost, open_draft

from specdemo.config.settings import Sampling
from specdemo.engine.cost import CostProfile

TEXT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]
DEPTH = 4


@pytest.fixture
def opened(draft_weights):
    """Makes a drafter of a method that has read the text."""

    def open_method(method, temperature=0.0, **changes):
        drafter = drafter_for(
            method, open_draft(draft_weights), sampling=Sampling(temperature, seed=5),
            **{"policy": "constant", "lookahead": DEPTH, "nodes": 40, **changes},
        )  # fmt: skip
        bound_target(drafter).read(TEXT[:-1])
        drafter.start(TEXT)
        return drafter

    return open_method


def test_the_chain_of_the_same_block_is_a_path_of_the_tree(opened):
    chain = opened("block").propose(TEXT, 30)
    tree = opened("block_tree").propose(TEXT, 30)
    assert len(chain) == DEPTH
    assert len(tree) == 40
    node = -1
    for place, token_id in enumerate(chain.token_ids):
        node = tree.children(node)[0]  # the most likely token below the most likely token
        assert tree.token_ids[node] == token_id
        torch.testing.assert_close(
            tree.draft_probs[node], chain.draft_probs[place], atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_guesses_below_a_branch_are_the_block_s_corrected_by_its_last_word(opened, temperature):
    drafter = opened("block_tree", temperature)
    proposal = drafter.propose(TEXT, 30)
    block = innermost(drafter).block
    markov, columns = block.model.weights.markov, block.model.weights.words.column_of
    drafter = opened("block_tree", temperature)
    logits = innermost(drafter).block.guess(TEXT)
    parents = set(proposal.parents)
    assert len(parents) > 3
    for parent in parents:
        first = proposal.children(parent)[0]
        above = TEXT[-1] if parent < 0 else proposal.token_ids[parent]
        depth = len(proposal.path_to(parent))
        own = logits[depth].clone()
        own[: len(columns)] += markov.bias(markov.token[[columns.get(above, len(columns))]])[0]
        expected = own.softmax(-1)
        torch.testing.assert_close(proposal.draft_probs[first], expected, atol=1e-5, rtol=1e-4)
    assert proposal.chosen == (temperature == 0)


def test_a_step_asks_for_one_pass_whatever_its_tree(opened):
    inner = innermost(opened("block_tree"))
    passes, guess = [], inner.block.guess

    def counted(committed):
        passes.append(len(committed))
        return guess(committed)

    inner.block.guess = counted
    assert len(inner.propose(TEXT, 30)) == 40
    assert passes == [len(TEXT)]
    assert not len(inner.propose(TEXT, 0))
    assert passes == [len(TEXT)]
    assert 0 < inner.reading_seconds < 1


def test_a_node_that_does_not_pay_is_left_out(opened):
    always = opened("block_tree").propose(TEXT, 30)
    paid = opened("block_tree", policy="cost").propose(TEXT, 30)
    assert 0 < len(paid) < len(always)


@pytest.mark.parametrize("free", [5, 11])
def test_its_budget_is_what_the_ladder_gives_for_nothing(opened, free):
    inner = innermost(opened("block_tree", policy="cost"))
    ladder = ((1, 0.02), (1 + free, 0.02), (2 + free, 2.0), (64, 100.0))
    inner.costs.profile = CostProfile(ladder, 0.002)
    inner.observe_reading = lambda *_: None  # measured time of reading on this machine
    assert len(inner.propose(TEXT, 30)) == free
