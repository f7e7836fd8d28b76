"""Trees: the most probable paths under a budget, siblings without replacement, any source of distributions, and blocks."""

from itertools import product
from math import prod
from types import SimpleNamespace

import pytest
import torch
from conftest import PROMPT, bound_target, drafter_for, innermost, open_draft

from specdemo.config.settings import Sampling
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.tree import Tree
from specdemo.engine.cost import CostProfile

WORDS = 4


class Certain(Calibration):
    """Takes a confidence for the chance itself, so that the best tree can be worked out by hand."""

    def chance(self, confidence, *, sibling=False):
        return confidence


def by_text(seed):
    """A distribution for each text, generated from a seed, as a draft model returns it."""

    def row(path):
        generator = torch.Generator().manual_seed(hash((seed, *path)) % 2**31)
        return (torch.randn(WORDS, generator=generator) * 1.5).softmax(-1)

    return row


def by_depth(rows):
    """A distribution for each depth, independent of the node, as parallel heads return it."""
    return lambda path: rows[len(path)]


class Scripted(Tree):
    """Draws from given distributions. row(path): of the token after a path of drafted tokens"""

    def __init__(self, row, nodes, chosen, pick, pays):
        self.row, self.nodes, self.chosen = row, nodes, chosen
        self.draft = SimpleNamespace(pick=pick, token=int)
        self.calibration, self._pays = Certain(), pays

    def below(self, committed, tree, nodes):
        return torch.stack([self.row(tree.path(node)) for node in nodes])


def most_likely(row, _position):
    return int(row.argmax())


def always(*_, **__):
    return True


def grow(row, nodes, depth, *, chosen=True, pick=most_likely, pays=always):
    return Scripted(row, nodes, chosen, pick, pays).grow([], depth)


def paths_of(tree):
    return {tuple(tree.path(node)) for node in range(len(tree.token_ids))}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("nodes", [1, 3, 6, 12])
def test_the_tree_holds_the_most_probable_paths(seed, nodes):
    """The nodes are the most probable texts of up to three words (Sequoia 2402.12374: the best tree of a size)."""
    row = by_text(seed)
    tree = grow(row, nodes, 3)
    chances = {
        path: prod(float(row(path[:place])[word]) for place, word in enumerate(path))
        for length in (1, 2, 3)
        for path in product(range(WORDS), repeat=length)
    }
    best = sorted(chances, key=lambda path: -chances[path])[:nodes]
    found = sum(chances[path] for path in paths_of(tree))
    # An opening is ranked before its distribution is known, so at worst the last few nodes differ.
    assert found >= 0.93 * sum(chances[path] for path in best)
    assert len(tree.token_ids) == nodes


def test_the_tree_stops_where_a_node_no_longer_pays():
    asked = []

    def pays(gain, _nodes, *, reading):
        asked.append((gain, reading))
        return gain > 0.25

    tree = grow(by_text(1), 40, 6, pays=pays)
    assert 0 < len(tree.token_ids) < 12
    assert any(reading for _, reading in asked)
    assert any(not reading for _, reading in asked)


def test_siblings_are_drawn_without_replacement_from_what_is_left():
    generator = torch.Generator().manual_seed(3)

    def pick(row, _position):
        return int(torch.multinomial(row, 1, generator=generator))

    rows = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]])
    tree = grow(by_depth(rows), 8, 2, chosen=False, pick=pick)
    assert len(tree.rows) == len(tree.token_ids) == 8
    for node, parent in enumerate(tree.parents):
        older = [n for n in range(node) if tree.parents[n] == parent]
        expected = rows[tree.depths[node] - 1].clone()
        for sibling in older:
            expected[tree.token_ids[sibling]] = 0
        assert torch.allclose(tree.rows[node], expected / expected.sum(), atol=1e-6)
        assert tree.token_ids[node] not in [tree.token_ids[n] for n in older]


def test_a_source_by_depth_feeds_the_same_builder():
    rows = torch.tensor([[0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.9, 0.1]])
    tree = grow(by_depth(rows), 12, 2)  # without words of no chance
    assert paths_of(tree) == {(0,), (0, 2), (0, 3), (1,), (1, 2), (1, 3)}


DEPTH = 4


@pytest.fixture
def opened(draft_weights):
    """Makes a drafter of a method that has read the text."""

    def open_method(method, temperature=0.0, **changes):
        drafter = drafter_for(
            method, open_draft(draft_weights), sampling=Sampling(temperature, seed=5),
            **{"policy": "constant", "lookahead": DEPTH, "nodes": 40, **changes},
        )  # fmt: skip
        bound_target(drafter).read(PROMPT[:-1])
        drafter.start(PROMPT)
        return drafter

    return open_method


def test_the_chain_of_the_same_block_is_a_path_of_the_tree(opened):
    chain = opened("block").propose(PROMPT, 30)
    tree = opened("block_tree").propose(PROMPT, 30)
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
    proposal = drafter.propose(PROMPT, 30)
    block = innermost(drafter).block
    markov, columns = block.model.weights.markov, block.model.weights.words.column_of
    drafter = opened("block_tree", temperature)
    logits = innermost(drafter).block.guess(PROMPT)
    parents = set(proposal.parents)
    assert len(parents) > 3
    for parent in parents:
        first = proposal.children(parent)[0]
        above = PROMPT[-1] if parent < 0 else proposal.token_ids[parent]
        depth = len(proposal.paths()[parent + 1])
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
    assert len(inner.propose(PROMPT, 30)) == 40
    assert passes == [len(PROMPT)]
    assert not len(inner.propose(PROMPT, 0))
    assert passes == [len(PROMPT)]
    assert 0 < inner.reading_seconds < 1


@pytest.mark.parametrize("free", [5, 11])
def test_its_budget_is_what_the_ladder_gives_for_nothing(opened, free):
    inner = innermost(opened("block_tree", policy="cost"))
    ladder = ((1, 0.02), (1 + free, 0.02), (2 + free, 2.0), (64, 100.0))
    inner.costs.profile = CostProfile(ladder, 0.002)
    inner.observe_reading = lambda *_: None  # measured time of reading on this machine
    assert len(inner.propose(PROMPT, 30)) == free
