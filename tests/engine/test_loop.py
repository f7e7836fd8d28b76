"""The loop is lossless for every drafter, ends at its limits, and reports each token, its origin and the detail of a step."""

from dataclasses import replace

import pytest
import torch
from conftest import PROMPT, VOCABULARY, reference_greedy, run_lane, steps_of
from lanes import Scripted

from specdemo.config.settings import Sampling
from specdemo.drafters.base import Plain
from specdemo.drafters.methods import METHODS
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.engine.verify import verify_block
from specdemo.trace.codec import decode, encode
from specdemo.trace.events import Drafted, FinishReason, Node, Origin, Status, Verified
from specdemo.trace.metrics import measure, output_ids


@pytest.mark.parametrize(("shift", "accepted", "steps"), [(0, 32, 8), (1, 0, 40)])
def test_perfect_and_useless_drafts_give_the_greedy_text(target_weights, shift, accepted, steps):
    """Four tokens of the answer in each step, or the tokens after them in the vocabulary."""
    answer = PROMPT + reference_greedy(target_weights, PROMPT, 40)

    def oracle(committed, budget):
        right = answer[len(committed) : len(committed) + min(budget, 4)]
        return Proposal.chain([(token_id + shift) % VOCABULARY for token_id in right])

    events = run_lane(target_weights, Scripted(oracle), PROMPT, max_new_tokens=40)
    assert output_ids(events) == answer[len(PROMPT) :]
    assert (measure(events).accepted, measure(events).steps) == (accepted, steps)


def test_a_scripted_tree_is_lossless(target_weights):
    answer = PROMPT + reference_greedy(target_weights, PROMPT, 40)

    def tree(committed, budget):
        truth = answer[len(committed) : len(committed) + min(2, budget)]
        if len(truth) < 2:
            return Proposal()
        wrong = (truth[0] + 1) % VOCABULARY
        return Proposal((wrong, truth[0], wrong, truth[1]), (-1, -1, 1, 1))

    events = run_lane(target_weights, Scripted(tree), PROMPT, max_new_tokens=40)
    assert output_ids(events) == answer[len(PROMPT) :]
    assert measure(events).steps == 14  # thirteen trees of three tokens, and a step for the last


def test_the_nodes_below_a_stop_token_are_removed_from_a_tree():
    #        1 - 9 - 2 - 3        9 ends an answer
    #          - 4 - 5
    tree = Proposal(
        (1, 9, 4, 2, 5, 3),
        (-1, 0, 0, 1, 2, 3),
        draft_probs=torch.arange(6.0)[:, None],
        confidences=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4),
        survivals=(0.9, 0.5, 0.3, 0.2, 0.1, 0.1),
        expected_tokens=3.1,
    )
    ended = tree.ended_by({9})
    assert (ended.token_ids, ended.parents) == ((1, 9, 4, 5), (-1, 0, 0, 2))
    assert [float(row) for row in ended.draft_probs] == [0, 1, 2, 4]
    assert ended.confidences == (0.9, 0.8, 0.7, 0.5)
    assert ended.expected_tokens == pytest.approx(2.8)
    assert tree.ended_by({7}) is tree


def test_cancel_stops_within_one_step_and_keeps_what_there_is(target_weights):
    events = []
    cancelled = {"cancelled": lambda: len(output_ids(events)) >= 2}
    for event in steps_of(CachedModel(target_weights), Plain(), PROMPT, **cancelled):
        events.append(event)
    assert events[-1].reason is FinishReason.CANCELLED
    assert len(output_ids(events)) == 2


COPIES = {"ngram", "retrieval"}
CHOOSES = {"medusa", "jet"}


@pytest.fixture
def run(pair):
    """A function that runs a method. Returns Drafted and Verified of each step."""

    def run(method, sampling, prompt=PROMPT, **options):
        drafter = pair.drafter(method, sampling=sampling, policy="constant")
        events = pair.run(drafter, prompt, sampling=sampling, **options)
        kinds = ([e for e in events if isinstance(e, kind)] for kind in (Drafted, Verified))
        return list(zip(*kinds, strict=True))

    return run


@pytest.fixture
def drafts(run):
    """A function that runs a method with a seed. Returns Drafted and Verified of each step that drafted."""

    def drafts(method, temperature, prompt=PROMPT, **options):
        found = run(method, Sampling(temperature, seed=3), prompt, max_new_tokens=60, **options)
        return [pair for pair in found if pair[0].nodes]

    return drafts


def first_tested(nodes: tuple[Node, ...]) -> list[Node]:
    """After each node the one that was tested first: nothing had been refused there."""
    found: dict[int, Node] = {}
    for node in nodes:
        if node.accept_prob is not None:
            found.setdefault(node.parent, node)
    return list(found.values())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "nothing"])
def test_a_token_is_kept_by_the_rule_of_its_origin(drafts, method, temperature):
    found = drafts(method, temperature)
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
def test_a_chain_that_was_judged_as_a_block_says_so(drafts, method):
    """Each token's probability is its part of the block's; a trace contains every value that the inspector explains."""
    found = drafts(method, 1.0, verifier=verify_block)
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


def test_the_origin_changes_with_the_source(drafts):
    found = drafts("auto", 0.5, [5, 6, 7, 8] * 12)
    origins = {(drafted.source, drafted.nodes[0].origin) for drafted, _ in found}
    assert {source for source, _ in origins} > {"draft_model"}
    for source, origin in origins:
        assert origin is (Origin.CHOSEN if source in COPIES else Origin.DRAWN)


def test_the_probability_is_that_of_the_token_also_in_a_reduced_vocabulary():
    rows = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    words = ReducedVocabulary(torch.tensor([9, 4, 6]), 12)
    proposal = Proposal.chain((6, 4), draft_probs=rows, words=words)
    assert [proposal.drawn_prob(node) for node in (0, 1)] == pytest.approx([0.7, 0.25])
    chosen = Proposal.chain((6, 4), draft_probs=rows, words=words, chosen=True)
    assert [chosen.drawn_prob(node) for node in (0, 1)] == [None, None]


def timeless(event):
    times = dict.fromkeys(
        ("draft_seconds", "verify_seconds", "overhead_seconds", "elapsed_seconds"), 0
    )
    return replace(event, places=None, **times)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", ["draft_model", "tree", "ngram", "nothing", "jet", "block"])
def test_the_detail_changes_no_text_and_covers_each_place_reached(run, method, temperature):
    sampling = Sampling(temperature)
    told = [judged for _, judged in run(method, sampling, detail=64)]
    silent = [judged for _, judged in run(method, sampling)]
    assert all(event.places is None for event in silent)
    assert [timeless(event) for event in told] == [timeless(event) for event in silent]
    for event in told:
        assert [place.after for place in event.places] == [-1, *event.path]
        assert decode(encode(event)).places is not None
        last = event.places[-1]
        if event.next is not None:
            own = {choice.token_id: choice.prob for choice in last.target}
            assert own[event.next.token_id] == pytest.approx(event.next.target_prob, rel=1e-4)
        for place in event.places:
            for part in (place.target, place.draft, place.residual):
                probs = [choice.prob for choice in part]
                assert probs == sorted(probs, reverse=True)
                assert not part or sum(probs) == pytest.approx(1, abs=1e-3)
            children = [node for node in event.nodes if node.parent == place.after]
            assert not (place.draft and not children)
            if place.draft:
                assert method != "ngram"
                drawn = {choice.token_id: choice.prob for choice in place.draft}
                first = children[0]
                assert drawn[first.token_id] == pytest.approx(first.confidence, rel=1e-3)


def test_the_residual_is_what_is_left_of_the_target(run):
    told = [judged for _, judged in run("draft_model", Sampling(1.0), detail=64)]
    corrected = [e for e in told if e.next is not None and e.next.status is Status.CORRECTION]
    assert corrected
    for event in told:
        assert bool(event.places[-1].residual) == (event in corrected)
    for event in corrected:
        place = event.places[-1]
        rows = [torch.zeros(64), torch.zeros(64)]
        for row, part in zip(rows, (place.target, place.draft), strict=True):
            for choice in part:
                row[choice.token_id] = choice.prob
        left = (rows[0] - rows[1]).clamp(min=0)
        left /= left.sum()
        for choice in place.residual:
            assert choice.prob == pytest.approx(float(left[choice.token_id]), abs=1e-4)


def test_only_the_likeliest_are_kept(run):
    told = [judged for _, judged in run("draft_model", Sampling(1.0), detail=3)]
    assert all(len(place.target) == 3 for event in told for place in event.places)
