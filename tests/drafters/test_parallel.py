"""Parallel drafting: concurrent with the target, the same text as without it, and no thread left running."""

import torch
from conftest import PROMPT, drafter_for, innermost, reference_greedy, run_lane, steps_of

from specdemo.config.settings import Sampling
from specdemo.engine.target import CachedModel
from specdemo.trace.events import Drafted, Verified
from specdemo.trace.metrics import measure, output_ids

WAIT = 30.0


class Slow(CachedModel):
    """A target whose passes end only when the drafting thread has done its work."""

    def __init__(self, model, drafter):
        super().__init__(model)
        self.drafter = innermost(drafter)

    def forward(self, pending_id, proposal):
        self.drafter._task.result(WAIT)
        return super().forward(pending_id, proposal)


def test_prepared_drafts_are_used_and_marked(target_weights):
    """A draft equal to its target is always right: every outcome but the first is guessed."""
    drafter = drafter_for("parallel", CachedModel(target_weights), policy="constant", lookahead=3)
    events = run_lane(target_weights, drafter, PROMPT, target=Slow(target_weights, drafter))
    assert output_ids(events) == reference_greedy(target_weights, PROMPT, 40)
    drafted = [event for event in events if isinstance(event, Drafted)]
    assert drafted[0].hit is None
    hits = [event for event in drafted[1:] if event.hit]
    assert len(hits) >= len(drafted) - 2
    assert all(event.saved_seconds > 0 for event in hits)
    metrics = measure(events)
    assert metrics.hit_rate > 0.8
    assert metrics.saved_seconds > 0


def test_a_miss_costs_nothing_but_time(pair):
    drafter = pair.drafter("parallel", policy="constant", lookahead=4)
    events = pair.run(drafter, target=Slow(pair.target, drafter))
    assert output_ids(events) == pair.greedy()
    assert any(event.hit is False for event in events if isinstance(event, Drafted))


def test_the_drafts_are_those_of_drafting_without_a_thread(pair):
    """Draws go by position: whether a draft was prepared or not, it is the same one."""
    sampling = Sampling(temperature=1.0, seed=5)

    def drafts(make_target):
        drafter = pair.drafter("parallel", sampling=sampling, policy="constant", lookahead=3)
        events = pair.run(drafter, sampling=sampling, target=make_target(drafter))
        verified = [event for event in events if isinstance(event, Verified)]
        return [[node.token_id for node in event.nodes] for event in verified]

    slow = drafts(lambda drafter: Slow(pair.target, drafter))
    assert slow == drafts(lambda _drafter: CachedModel(pair.target))


def test_no_work_goes_on_between_steps_and_torch_keeps_its_threads(pair):
    threads = torch.get_num_threads()
    drafter = pair.drafter("parallel", policy="constant", lookahead=4)
    for event in steps_of(CachedModel(pair.target), drafter, PROMPT, 30):
        if isinstance(event, Verified):
            assert innermost(drafter)._task is None
    assert torch.get_num_threads() == threads
