"""Each drafted token has its origin, and the probability with which it was drawn."""

from __future__ import annotations

import pytest
import torch
from conftest import drafter_for, run_lane

from specdemo.config.settings import Sampling
from specdemo.drafters.methods import METHODS
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.engine.verify import verify_block, verify_sampling
from specdemo.trace.codec import decode, encode
from specdemo.trace.events import Drafted, Node, Origin, Verified

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]
COPIES = {"ngram", "retrieval"}
CHOOSES = {"medusa", "jet"}


def drafts(
    target_weights, draft_weights, method, temperature, prompt=PROMPT, verifier=verify_sampling
):
    """Drafted and Verified of each step that drafted."""
    sampling = Sampling(temperature, seed=3)
    drafter = drafter_for(method, CachedModel(draft_weights), sampling=sampling, policy="constant")
    events = run_lane(
        target_weights, drafter, prompt, sampling=sampling, max_new_tokens=60, verifier=verifier
    )
    drafted = [event for event in events if isinstance(event, Drafted)]
    judged = [event for event in events if isinstance(event, Verified)]
    return [pair for pair in zip(drafted, judged, strict=True) if pair[0].nodes]


def first_tested(nodes: tuple[Node, ...]) -> list[Node]:
    """After each node the one that was tested first: nothing had been refused there."""
    found: dict[int, Node] = {}
    for node in nodes:
        if node.accept_prob is not None:
            found.setdefault(node.parent, node)
    return list(found.values())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "nothing"])
def test_a_token_is_kept_by_the_rule_of_its_origin(
    target_weights, draft_weights, method, temperature
):
    found = drafts(target_weights, draft_weights, method, temperature)
    assert found
    for drafted, judged in found:
        told = [(node.origin, node.draft_prob, node.confidence) for node in drafted.nodes]
        assert told == [(node.origin, node.draft_prob, node.confidence) for node in judged.nodes]
        for node in drafted.nodes:
            assert (node.origin is Origin.DRAWN) == (node.draft_prob is not None)
            assert node.origin is not None
            if temperature == 0 or method in COPIES | CHOOSES:
                assert node.origin is Origin.CHOSEN
        for node in first_tested(judged.nodes) if temperature else ():
            expected = min(1.0, node.target_prob / (node.draft_prob or 1.0))
            assert node.accept_prob == pytest.approx(expected, rel=1e-5)
        assert decode(encode(judged)).nodes[0].origin is judged.nodes[0].origin


@pytest.mark.parametrize("method", ["draft_model", "tree", "ngram"])
def test_a_chain_that_was_judged_as_a_block_says_so(target_weights, draft_weights, method):
    """Each token's probability is its part of the block's; a trace contains every value that the inspector explains."""
    found = drafts(target_weights, draft_weights, method, 1.0, verifier=verify_block)
    blocks = [judged for _, judged in found if judged.nodes[0].block_prob is not None]
    assert bool(blocks) == (method == "draft_model")
    for judged in blocks:
        nodes = decode(encode(judged)).nodes
        prefix, before = 1.0, 1.0
        for node in nodes:
            prefix = min(1.0, prefix * node.target_prob / node.draft_prob)
            assert node.block_prob <= before
            if node.accept_prob is not None:
                assert node.accept_prob == pytest.approx(node.block_prob / before, rel=1e-5)
            before = node.block_prob
        assert nodes[-1].block_prob == pytest.approx(prefix, rel=1e-4)


def test_the_origin_changes_with_the_source(target_weights, draft_weights):
    found = drafts(target_weights, draft_weights, "auto", 0.5, [5, 6, 7, 8] * 12)
    origins = {(drafted.source, drafted.nodes[0].origin) for drafted, _ in found}
    assert {source for source, _ in origins} > {"draft_model"}
    for source, origin in origins:
        assert origin is (Origin.CHOSEN if source in COPIES else Origin.DRAWN)


def test_siblings_were_drawn_from_what_was_left(target_weights, draft_weights):
    """Without replacement: the second of two siblings was drawn with q / (1 - q of the first)."""
    found = drafts(target_weights, draft_weights, "tree", 1.0)
    seconds = 0
    for drafted, _ in found:
        for parent in {node.parent for node in drafted.nodes}:
            probs = [node.draft_prob for node in drafted.nodes if node.parent == parent]
            assert all(0 < prob <= 1 + 1e-6 for prob in probs)
            seconds += len(probs) > 1
    assert seconds


def test_the_probability_is_that_of_the_token_also_in_a_reduced_vocabulary():
    rows = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    words = ReducedVocabulary(torch.tensor([9, 4, 6]), 12)
    proposal = Proposal.chain((6, 4), draft_probs=rows, words=words)
    assert [proposal.drawn_prob(node) for node in (0, 1)] == pytest.approx([0.7, 0.25])
    chosen = Proposal.chain((6, 4), draft_probs=rows, words=words, chosen=True)
    assert [chosen.drawn_prob(node) for node in (0, 1)] == [None, None]
