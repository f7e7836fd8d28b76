"""Medusa: trees of chosen tokens from predictions per depth; the target's text stays the same."""

from itertools import product
from math import prod

import pytest
import torch
from conftest import VOCABULARY, innermost, open_target
from tiny_trained import DEPTH, READS, random_medusa

from specdemo.config.settings import Sampling
from specdemo.drafters.medusa import static_chances
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.tree import depth_tree
from specdemo.engine.cost import CostProfile

PROMPT = [1, 9, 20, 33, 7, 7, 12]
FREE = CostProfile(((1, 1.0), (65, 1.0)))  # rows that cost nothing
DEAR = CostProfile(((1, 1.0), (2, 50.0), (65, 3000.0)))


def always(*_):
    return True


@pytest.fixture
def opened(pair):
    """A function that opens Medusa on a target that has read all of a text but its pending token."""

    def open_medusa(text=PROMPT, *, recorded=True, static=False, **changes):
        target = open_target(pair.target)
        target.record(wanted=recorded)
        target.read(text[:-1])
        policy = "constant" if static else "cost"
        options = {"nodes": 12, "lookahead": 5, "policy": policy, **changes}
        return innermost(pair.drafter("medusa", target=target, **options))

    return open_medusa


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("nodes", "budget"), [(1, 5), (12, 3), (40, 9)])
def test_trees_keep_to_nodes_and_depth(opened, static, nodes, budget):
    proposal = opened(nodes=nodes, static=static, profile=FREE).propose(PROMPT, budget)
    assert len(proposal) == nodes
    assert proposal.lookahead == min(budget, DEPTH)


@pytest.mark.parametrize("static", [False, True])
def test_the_first_node_is_the_first_heads_choice(opened, static):
    """And its child the second head's, each from the state of the token before the pending one."""
    drafter = opened(static=static, profile=FREE)
    weights, before = random_medusa(VOCABULARY), len(PROMPT) - 2
    state = drafter.features.read(before, before + 1, READS[-1:])
    logits = weights.guess(state.to(weights.dtype)).float()
    proposal = drafter.propose(PROMPT, 5)
    assert proposal.token_ids[0] == weights.words.token(int(logits[0].argmax()))
    child = proposal.children(0)[0]
    assert proposal.token_ids[child] == weights.words.token(int(logits[1].argmax()))
    assert proposal.confidences[child] == pytest.approx(float(logits[1].softmax(-1).max()), 1e-4)


def test_static_trees_do_not_depend_on_the_text(opened):
    shapes, words = set(), set()
    for text in (PROMPT, PROMPT[::-1], [1, 50, 40, 3]):
        proposal = opened(text, nodes=20, static=True).propose(text, 5)
        shapes.add(proposal.parents)
        words.add(proposal.token_ids)
    assert len(shapes) == 1
    assert len(words) == 3


def test_the_static_tree_begins_as_the_published_one():
    """The first five paths of `mc_sim_7b_63`, by ranks."""
    ranked = torch.linspace(0.9, 0.1, 10).expand(4, 10)
    tree = depth_tree(ranked, int, 5, static_chances, always)
    assert {tuple(tree.path(node)) for node in range(5)} == {(0,), (0, 0), (1,), (0, 1), (2,)}


def test_dear_rows_leave_one_node(opened):
    dear, cheap = (opened(profile=profile).propose(PROMPT, 5) for profile in (DEAR, FREE))
    assert (len(dear), len(cheap)) == (1, 12)


def test_without_a_state_nothing_is_drafted(opened):
    assert len(opened(recorded=False).propose(PROMPT, 5)) == 0
    assert len(opened([1, 2]).propose([1, 2], 0)) == 0
    assert len(opened([1, 2]).propose([1], 5)) == 0


def test_sampling_drafts_only_tokens_that_the_target_may_choose(opened):
    """Top-k rules words out for the heads as for the target."""
    sampling = Sampling(temperature=0.8, top_k=2)
    proposal = opened(sampling=sampling, nodes=40, profile=FREE).propose(PROMPT, 3)
    assert proposal.chosen
    assert len(proposal) == 2 + 4 + 8


def test_depth_trees_are_the_likeliest_paths():
    """Comparison with all paths, with known probabilities: 0.6 and 0.4 at the first position and so on."""
    rows = [[0.6, 0.3], [0.5, 0.4], [0.9, 0.05]]
    tree = depth_tree(torch.tensor(rows), int, 5, lambda _: rows, always)
    survivals = [prod(path) for depth in (1, 2, 3) for path in product(*rows[:depth])]
    assert tree.survivals == pytest.approx(sorted(survivals, reverse=True)[:5])


def test_a_depth_tree_leaves_out_words_of_no_chance():
    probs = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    tree = depth_tree(probs, int, 9, Calibration().child_chances, always)
    assert {tuple(tree.path(node)) for node in range(3)} == {(0,), (0, 0), (0, 1)}
    assert len(tree.token_ids) == len(tree.survivals) == 3
