"""The memory of a user's runs: a head and counts of followers improve drafts, never get worse, and can be undone."""

from dataclasses import replace

import pytest
import torch
from conftest import PROMPT, drafter_for, reference_greedy, run_lane, tiny_llama
from tiny_trained import random_compact
from torch.nn import functional as F

from specdemo.config.settings import TOKEN, Sampling
from specdemo.drafters.memory.markov import MarkovBias, MarkovCounts
from specdemo.drafters.memory.visit import MOST_PAIRS, MOST_RUNS, Memory, OnlineHead
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.models.networks.chain import CompactDecoder, CompactModel, CompactWeights
from specdemo.trace.metrics import Metrics, measure, output_ids

HIDDEN, VOCABULARY = 32, 64


@pytest.fixture(scope="module")
def weights() -> CompactWeights:
    """A random one-layer draft with 48 of 64 tokens in its vocabulary, in float32."""
    made, words = random_compact(VOCABULARY, reads=()), torch.arange(48)
    matrix = made.embedding[words].float() / 2
    head = {"head": lambda x: F.linear(x.float(), matrix)}
    return replace(made, inject=None, words=ReducedVocabulary(words, VOCABULARY), **head)


def verdicts(weights: CompactWeights, seed: int, count: int = 300):
    """Random states, and the tokens of a biased target: the draft's own after a fixed low-rank rotation."""
    fixed = torch.Generator().manual_seed(99)
    turn = torch.randn(HIDDEN, 4, generator=fixed) @ torch.randn(4, HIDDEN, generator=fixed) / 8
    states = torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(seed))
    return states, weights.head(states + states @ turn.T).argmax(dim=-1)


def surprise(head: OnlineHead, states: torch.Tensor, token_ids: torch.Tensor) -> float:
    return F.cross_entropy(head.weights.head(head.adjust(states)), token_ids).item()


def agreement(head: OnlineHead, states: torch.Tensor, token_ids: torch.Tensor) -> float:
    said = head.weights.head(head.adjust(states)).argmax(dim=-1)
    return (said == token_ids).float().mean().item()


def taught(weights: CompactWeights, runs: int) -> OnlineHead:
    head = OnlineHead(weights)
    for seed in range(runs):
        head.learn()
        head.begin_run()
        head.remember(*verdicts(weights, seed))
    return head


def test_the_memory_comes_to_agree_with_a_biased_target(weights):
    fresh, unseen = OnlineHead(weights), verdicts(weights, 1000, 2000)
    head = taught(weights, 12)
    assert surprise(head, *unseen) < 0.8 * surprise(fresh, *unseen)
    assert agreement(head, *unseen) > agreement(fresh, *unseen) + 0.05


def test_the_memory_never_gets_worse_on_the_newest_run(weights):
    """Old runs teach one pattern, the newest ones the opposite or none: an update that raises the loss is discarded."""
    head, states = OnlineHead(weights), verdicts(weights, 0)[0]
    head.remember(states, (-weights.head(states)).argmax(dim=-1))
    head.begin_run()
    newest = (states, weights.head(states).argmax(dim=-1))
    head.remember(*newest)
    before = surprise(head, *newest)
    assert not head.learn()
    assert surprise(head, *newest) == before
    helped = taught(weights, 2)
    newest = verdicts(weights, 1)
    before = surprise(helped, *newest)
    assert helped.learn()
    assert surprise(helped, *newest) < before


def test_a_head_that_did_harm_is_dropped(weights):
    head = taught(weights, 12)
    states = verdicts(weights, 50)[0]
    head.begin_run()
    head.remember(states, weights.head(states).argmax(dim=-1))  # now the draft was right as it was
    head.learn()
    assert torch.equal(head.adjust(states), states)


def test_without_new_verdicts_nothing_is_learned(weights):
    head = taught(weights, 2)
    assert head.learn()
    assert not head.learn()


def test_a_token_that_the_draft_cannot_say_is_skipped(weights):
    head = OnlineHead(weights)
    head.remember(torch.randn(3, HIDDEN), torch.tensor([1, 60, 2]))
    assert len(head._verdicts) == 2


def test_the_buffer_is_bounded_and_keeps_the_newest(weights):
    head = OnlineHead(weights)
    for seed in range(MOST_PAIRS // 300 + 3):
        head.begin_run()
        head.remember(*verdicts(weights, seed))
    head.learn()
    assert len(head._verdicts) == MOST_PAIRS
    newest = [state for state, _ in head._verdicts][-300:]
    assert torch.equal(torch.stack(newest), verdicts(weights, seed)[0])
    assert head._of_run == 300


def test_a_fresh_head_changes_no_logit_and_forgetting_brings_it_back(weights):
    memory, decoder = Memory(), CompactDecoder(weights)
    plain, adjusted = CompactModel(decoder), CompactModel(decoder)
    want = plain.read(PROMPT)
    memory.head_of(adjusted).up.normal_()
    adjusted.adjust = memory.head_of(adjusted).adjust
    assert not torch.equal(adjusted.read(PROMPT), want)
    memory.forget()
    adjusted.adjust = memory.head_of(adjusted).adjust
    adjusted.rollback(0)
    assert torch.equal(adjusted.read(PROMPT), want)


def test_two_users_share_neither_head_nor_counts(weights):
    one, other = Memory(), Memory()
    one.counts.begin([1, 2, 3])
    assert other.counts.find([1, 2]) is None
    head = one.head_of(CompactModel(CompactDecoder(weights)))
    head.remember(*verdicts(weights, 0))
    head.learn()
    assert head.up.any()
    assert not other.head_of(CompactModel(CompactDecoder(weights))).up.any()
    assert len(other.head_of(CompactModel(CompactDecoder(weights)))._verdicts) == 0
    # but the user's conversations continue with theirs
    assert one.head_of(CompactModel(CompactDecoder(weights))) is head


def test_a_model_of_another_kind_has_no_head(target_weights):
    assert Memory().head_of(CachedModel(target_weights)) is None


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, seed=4)])
def test_the_memory_of_one_run_improves_the_next_draft(weights, target_weights, sampling):
    """The counts are cleared before each run, so the gain is the head's."""
    model, memory, rates = CompactModel(CompactDecoder(weights)), Memory(), []

    def run(method):
        options = {"policy": "constant", "lookahead": 4, "verification": TOKEN}
        drafter = drafter_for(method, model, memory=memory, sampling=sampling, **options)
        return run_lane(target_weights, drafter, PROMPT, sampling=sampling, max_new_tokens=80)

    for _ in range(10):
        memory.counts = MarkovCounts()
        events = run("online")
        rates.append(measure(events).drafted_accept_rate)
        if sampling.greedy:
            assert output_ids(events) == reference_greedy(target_weights, PROMPT, 80)
    head = memory.head_of(model)
    assert len(head._verdicts) > 100
    assert head.up.any()
    without = measure(run("draft_model"))
    assert model.adjust is None  # the same model in a method that does not learn
    assert rates[-1] > without.drafted_accept_rate


def run_of(drafted: int, accepted: int) -> Metrics:
    return Metrics(1, 1, drafted, accepted, 1, 0, 0.0, 0.0, 0.0, 1.0, 0.0)


def test_acceptance_is_kept_run_by_run_and_by_method():
    memory = Memory()
    memory.record("online", run_of(10, 4))
    memory.record("auto", run_of(10, 9))
    memory.record("online", run_of(0, 0))  # nothing was drafted
    memory.record("online", run_of(10, 6))
    assert memory.rates("online") == (0.4, 0.6)
    for _ in range(2 * MOST_RUNS):
        memory.record("online", run_of(2, 1))
    assert memory.rates("online") == (0.5,) * MOST_RUNS
    memory.forget()
    assert memory.rates("online") == ()


def accepted(target, draft, memory, method="online"):
    drafter = drafter_for(method, CachedModel(draft), memory=memory, policy="constant", lookahead=4)
    events = run_lane(target, drafter, PROMPT)
    assert output_ids(events) == reference_greedy(target, PROMPT, 40)
    return measure(events).first_accept_rate


def test_acceptance_on_a_repeated_topic_rises(target_weights):
    """A draft without knowledge of the target learns the target's continuations, run by run."""
    stranger, memory = tiny_llama(77), Memory()
    rates = [accepted(target_weights, stranger, memory) for _ in range(8)]
    without = accepted(target_weights, stranger, Memory(), method="draft_model")
    assert without < 0.2
    assert rates[-1] > rates[0] + 0.3
    memory.forget()
    assert abs(accepted(target_weights, stranger, memory) - rates[0]) < 1e-9


def test_the_mixture_is_a_distribution_and_leans_to_what_was_seen():
    counts = MarkovCounts()
    bias = MarkovBias(counts)
    bias.start([1, 2, 3, 1, 2, 3, 1, 2])
    row = torch.full((8,), 1 / 8)
    bias.mix(row, [3, 1, 2])
    assert abs(float(row.sum()) - 1) < 1e-6
    assert int(row.argmax()) == 3


def test_the_weight_falls_where_the_counts_mislead():
    counts = MarkovCounts()
    bias = MarkovBias(counts)
    bias.start([1, 2, 3, 1, 2])
    before = dict(counts.weights)
    for _ in range(30):
        row = torch.tensor([0.01, 0.01, 0.01, 0.01, 0.96])
        bias.mix(row, [3, 1, 2])
        bias.follow([1, 2, 3, 1, 2, 4])
        counts.followers.clear()
        counts.text = []
        bias.start([1, 2, 3, 1, 2])
    changed = [kind for kind, weight in counts.weights.items() if weight != before[kind]]
    assert changed
    assert all(counts.weights[kind] < before[kind] for kind in changed)


@pytest.mark.parametrize("told_by", ["begin", "follow"])
def test_counts_count_each_token_of_a_text_once(told_by):
    """A follow-up starts with its earlier text, and two drafters of one run may share the counts."""
    counts = MarkovCounts()
    tell = counts.begin if told_by == "begin" else MarkovBias(counts).follow
    for text in ([1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3, 4]):
        tell(text)
    assert counts.followers[(2,)] == {3: 1}
    assert counts.followers[(3,)] == {4: 1}
