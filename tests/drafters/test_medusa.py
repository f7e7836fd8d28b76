"""Medusa: trees of chosen tokens from predictions per depth; the target's text stays the same."""

import pytest
import torch
from conftest import PROFILE, VOCABULARY
from torch.nn import functional as F

from specdemo.config.settings import RunSettings, Sampling
from specdemo.drafters.base import DraftingContext
from specdemo.drafters.medusa import Medusa, static_shape
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.tree import best_paths, depth_tree
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.sampling import ReducedVocabulary, Shaper
from specdemo.engine.target import CachedModel, Features
from specdemo.models.networks.parts import MedusaWeights

PROMPT = [1, 9, 20, 33, 7, 7, 12]
LAST = 2  # the layer whose states the heads read: the tiny model's last
HEADS = 4
FREE = CostProfile(((1, 1.0), (65, 1.0)))  # rows that cost nothing
DEAR = CostProfile(((1, 1.0), (2, 50.0), (65, 3000.0)))


@pytest.fixture
def weights(target_weights):
    """Random heads over the tiny target's own output matrix, for every second word."""
    generator = torch.Generator().manual_seed(1)
    words = torch.arange(0, VOCABULARY, 2)

    def block():
        matrix = torch.randn(32, 32, generator=generator) * 0.1
        return lambda x: F.linear(x, matrix)

    head = target_weights.lm_head.weight[words]
    return MedusaWeights(
        tuple(block() for _ in range(HEADS)),
        lambda x: F.linear(x, head),
        ReducedVocabulary(words, VOCABULARY),
        (LAST,),
        torch.float32,
    )


def made(weights, features, *, sampling=None, profile=PROFILE, **changes):
    policy = "constant" if changes.pop("static", False) else "cost"
    settings = RunSettings(
        policy=policy, sampling=sampling or Sampling(), **{"nodes": 12, "lookahead": 5, **changes}
    )
    context = DraftingContext(
        settings, Shaper.of(settings), VOCABULARY, profile=profile,
        models={"medusa": lambda: weights}, features=features,
    )  # fmt: skip
    return Medusa(context)


def read(target_weights, token_ids):
    """A target that has read all of a text but its pending token."""
    target = CachedModel(target_weights, reads=(LAST,))
    target.record(wanted=True)
    target.read(token_ids[:-1])
    return target


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("nodes", "budget"), [(1, 5), (12, 3), (40, 9)])
def test_trees_keep_to_nodes_and_depth(target_weights, weights, static, nodes, budget):
    target = read(target_weights, PROMPT)
    drafter = made(weights, target.features, nodes=nodes, static=static, profile=FREE)
    proposal = drafter.propose(PROMPT, budget)
    assert len(proposal) == nodes
    assert proposal.lookahead == min(budget, HEADS)


@pytest.mark.parametrize("static", [False, True])
def test_the_first_node_is_the_first_heads_choice(target_weights, weights, static):
    """And its child the second head's, each from the state of the token before the pending one."""
    with torch.inference_mode():
        states = target_weights(torch.tensor([PROMPT[:-1]]), output_hidden_states=True)
        logits = weights.guess(states.hidden_states[LAST][0, -1:])
    target = read(target_weights, PROMPT)
    proposal = made(weights, target.features, static=static).propose(PROMPT, 5)
    assert proposal.token_ids[0] == weights.words.token(int(logits[0].argmax()))
    child = proposal.children(0)[0]
    assert proposal.token_ids[child] == weights.words.token(int(logits[1].argmax()))
    assert proposal.confidences[child] == pytest.approx(float(logits[1].softmax(-1).max()), 1e-4)


def test_static_trees_do_not_depend_on_the_text(target_weights, weights):
    shapes, words = set(), set()
    for text in (PROMPT, PROMPT[::-1], [1, 50, 40, 3]):
        target = read(target_weights, text)
        proposal = made(weights, target.features, nodes=20, static=True).propose(text, 5)
        shapes.add(proposal.parents)
        words.add(proposal.token_ids)
    assert len(shapes) == 1
    assert len(words) == 3


def test_the_static_tree_begins_as_the_published_one():
    """The first five paths of `mc_sim_7b_63`, by ranks."""
    paths = []
    for parent, rank, _ in static_shape(5, 4):
        paths.append((*(paths[parent] if parent >= 0 else ()), rank))
    assert set(paths) == {(0,), (0, 0), (1,), (0, 1), (2,)}


def test_dear_rows_leave_one_node(target_weights, weights):
    target = read(target_weights, PROMPT)
    dear = made(weights, target.features, profile=DEAR).propose(PROMPT, 5)
    cheap = made(weights, target.features, profile=FREE).propose(PROMPT, 5)
    assert (len(dear), len(cheap)) == (1, 12)


def test_without_a_state_nothing_is_drafted(target_weights, weights):
    target = CachedModel(target_weights, reads=(LAST,))
    target.read(PROMPT[:-1])  # not recorded
    assert len(made(weights, target.features).propose(PROMPT, 5)) == 0
    assert len(made(weights, read(target_weights, [1, 2]).features).propose([1, 2], 0)) == 0
    assert len(made(weights, Features((LAST,))).propose([1], 5)) == 0


def test_sampling_drafts_only_tokens_that_the_target_may_choose(target_weights, weights):
    """Top-k rules words out for the heads as for the target."""
    sampling = Sampling(temperature=0.8, top_k=2)
    target = read(target_weights, PROMPT)
    drafter = made(weights, target.features, sampling=sampling, nodes=40, profile=FREE)
    proposal = drafter.propose(PROMPT, 3)
    assert proposal.chosen
    assert len(proposal) == 2 + 4 + 8


def test_depth_trees_are_the_likeliest_paths():
    """Comparison with all paths, with known probabilities: 0.6 and 0.4 at the first position and so on."""
    rows = [[0.6, 0.3], [0.5, 0.4], [0.9, 0.05]]
    shape = best_paths(rows, 5, lambda *_: True)
    survivals = {}
    for first in range(2):
        survivals[(first,)] = rows[0][first]
        for second in range(2):
            survivals[first, second] = rows[0][first] * rows[1][second]
            for third in range(2):
                survivals[first, second, third] = survivals[first, second] * rows[2][third]
    best = sorted(survivals.values(), reverse=True)[:5]
    assert [survival for _, _, survival in shape] == pytest.approx(best)


def test_a_depth_tree_leaves_out_words_of_no_chance():
    probs = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    tree = depth_tree(probs, int, Calibration(), Costs(FREE), nodes=9, depth=5, costly=False)
    assert [tree.path(node) for node in range(3)] == [[0], [0, 0], [0, 1]] or [
        tree.path(node) for node in range(3)
    ] == [[0], [0, 1], [0, 0]]
    assert len(tree.token_ids) == len(tree.survivals) == 3
