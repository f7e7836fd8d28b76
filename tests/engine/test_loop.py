"""The loop: lossless for every drafter, cut at the limits, cancelled within a step, with its cache invariant."""

from __future__ import annotations

import pytest
import torch
from conftest import VOCABULARY, header, reference_greedy, run_lane
from lanes import Scripted, always_right, always_wrong

from specdemo.config.settings import Sampling
from specdemo.drafters.base import Plain
from specdemo.engine.loop import generate
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Limits, Proposal
from specdemo.trace.events import FinishReason, Status
from specdemo.trace.metrics import measure, output_ids

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]


def test_oracles_prove_the_plumbing(target_weights):
    answer = PROMPT + reference_greedy(target_weights, PROMPT, 40)
    right = run_lane(target_weights, always_right(answer, 4), PROMPT, max_new_tokens=40)
    assert output_ids(right) == answer[len(PROMPT) :]
    assert measure(right).drafted_accept_rate == 1
    assert measure(right).steps == 8  # five tokens a step
    wrong = run_lane(target_weights, always_wrong(answer, 4, VOCABULARY), PROMPT, max_new_tokens=40)
    assert output_ids(wrong) == answer[len(PROMPT) :]
    assert measure(wrong).accepted == 0
    assert measure(wrong).steps == 40


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
    assert (
        measure(events).steps == 14
    )  # thirteen whole trees of three tokens, and one step for the last


@pytest.mark.parametrize("stop_at", [3, 4, 5, 6, 7])
def test_an_answer_ends_inside_a_draft(target_weights, stop_at):
    answer = reference_greedy(target_weights, PROMPT, 40)
    stop = answer[stop_at]
    length = answer.index(stop) + 1
    target = CachedModel(target_weights)
    drafter = always_right(PROMPT + answer, 4)
    events = run_lane(target_weights, drafter, PROMPT, stop_ids=frozenset([stop]), target=target)
    assert output_ids(events) == answer[:length]
    assert events[-1].reason is FinishReason.STOP
    assert target.length == len(PROMPT) + length - 1  # the last id stays pending
    last = events[-2]
    assert sum(node.status is Status.ACCEPTED for node in last.nodes) == len(last.path)
    drafted = [node.token_id for node in last.nodes]
    assert drafted
    assert stop not in drafted[:-1]  # nothing is drafted after the end of an answer


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
    for event in generate(
        CachedModel(target_weights),
        Plain(),
        PROMPT,
        shaper=Shaper(Sampling()),
        limits=Limits(40),
        started=header(),
        cancelled=lambda: len(output_ids(events)) >= 2,
    ):
        events.append(event)
    assert events[-1].reason is FinishReason.CANCELLED
    assert len(output_ids(events)) == 2
