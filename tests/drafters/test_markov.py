"""Learning from the target's verdicts: acceptance on a repeated topic rises, and forgetting forgets."""

from __future__ import annotations

import torch
from conftest import drafter_for, reference_greedy, run_lane, tiny_llama

from specdemo.drafters.memory.markov import MarkovBias, MarkovCounts
from specdemo.drafters.memory.visit import Memory
from specdemo.engine.target import CachedModel
from specdemo.trace.metrics import measure, output_ids

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]


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


def test_a_follow_up_is_not_counted_twice():
    counts = MarkovCounts()
    counts.begin([1, 2, 3])
    counts.begin([1, 2, 3, 4])
    assert counts.followers[(1,)] == {2: 1}
    assert counts.followers[(3,)] == {4: 1}


def test_two_visitors_learn_apart():
    one, other = Memory(), Memory()
    one.counts.begin([1, 2, 3])
    assert other.counts.find([1, 2]) is None


def test_following_a_text_twice_counts_it_once():
    """Two drafters of one run may share the counts."""
    counts = MarkovCounts()
    bias = MarkovBias(counts)
    bias.start([1, 2])
    for text in ([1, 2, 3], [1, 2, 3], [1, 2, 3, 4]):
        bias.follow(text)
    assert counts.followers[(2,)] == {3: 1}
    assert counts.followers[(3,)] == {4: 1}
