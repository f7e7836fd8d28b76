"""Runs that share a device write what they would write alone, and nobody waits for somebody who does not come."""

from __future__ import annotations

import threading

import pytest
from conftest import drafter_for, header, reference_greedy
from transformers import LlamaForCausalLM

from specdemo.drafters.nothing import Nothing
from specdemo.engine.decoder import ModuleDecoder
from specdemo.engine.limits import Limits
from specdemo.engine.loop import generate
from specdemo.engine.sampling import Shaper
from specdemo.engine.shared import SharedDecoder
from specdemo.engine.target import CachedModel
from specdemo.models.lean import LeanDecoder
from specdemo.settings import Sampling
from specdemo.trace.events import Verified
from specdemo.trace.metrics import output_ids

PROMPTS = [[3, 14, 15, 9], [26, 5, 35], [8, 9, 7, 9, 3], [2, 3, 8]]
METHODS = ["nothing", "draft_model", "tree", "ngram"]
WAIT = 30.0


def lane(shared, drafter, prompt, new_tokens=24, sampling=None):
    return generate(
        CachedModel(shared),
        drafter,
        prompt,
        shaper=Shaper(sampling or Sampling()),
        limits=Limits(new_tokens, frozenset()),
        started=header(),
        turn=shared.turn,
    )


def together(shared, lanes):
    """Consume every lane in a thread of its own, all begun at once."""
    found: list[list | BaseException] = [[] for _ in lanes]
    ready = threading.Barrier(len(lanes))

    def consume(index):
        with shared.joining():
            ready.wait(WAIT)
            try:
                found[index] = list(lanes[index])
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                found[index] = error

    threads = [threading.Thread(target=consume, args=(index,)) for index in range(len(lanes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive(), "a run waits for ever"
    return found


@pytest.mark.parametrize("make", [ModuleDecoder, LeanDecoder])
def test_each_run_writes_what_it_would_write_alone(
    target_weights: LlamaForCausalLM, draft_weights, make
):
    shared = SharedDecoder(make(target_weights))
    drafters = [drafter_for(method, CachedModel(draft_weights)) for method in METHODS]
    lanes = [lane(shared, *pair) for pair in zip(drafters, PROMPTS, strict=True)]
    found = together(shared, lanes)
    for events, prompt in zip(found, PROMPTS, strict=True):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)
    shared_by = [
        event.runs or 1 for events in found for event in events if isinstance(event, Verified)
    ]
    assert max(shared_by) == len(PROMPTS)


def test_sampled_runs_are_repeatable_whoever_else_is_there(target_weights):
    shared = SharedDecoder(LeanDecoder(target_weights))
    sampling = Sampling(temperature=1.0, seed=4)
    alone = list(lane(shared, Nothing(), PROMPTS[0], sampling=sampling))
    lanes = [lane(shared, Nothing(), PROMPTS[0], sampling=sampling)]
    lanes += [lane(shared, Nothing(), prompt) for prompt in PROMPTS[1:]]
    found = together(shared, lanes)
    assert output_ids(found[0]) == output_ids(alone)


def test_a_viewer_that_does_not_look_holds_nobody_up(target_weights):
    shared = SharedDecoder(LeanDecoder(target_weights))
    with shared.joining():
        asleep = lane(shared, Nothing(), PROMPTS[0])
        next(asleep)
        next(asleep)  # in the middle of a step, and nobody asks for more
        (events,) = together(shared, [lane(shared, Nothing(), PROMPTS[1])])
        assert output_ids(events) == reference_greedy(target_weights, PROMPTS[1], 24)
        asleep.close()
    with shared.turn():  # free again
        pass


def test_a_pass_that_breaks_breaks_those_who_asked_and_nobody_later(target_weights):
    lean = LeanDecoder(target_weights)

    class Breaking:
        """Fails once when two runs ask."""

        config = lean.config
        broken = False

        def run(self, passes):
            if len(passes) == 2 and not self.broken:
                self.broken = True
                raise RuntimeError("no memory")
            return lean.run(passes)

    shared = SharedDecoder(Breaking())
    lanes = [lane(shared, Nothing(), prompt) for prompt in PROMPTS[:2]]
    assert all(isinstance(error, RuntimeError) for error in together(shared, lanes))
    lanes = [lane(shared, Nothing(), prompt) for prompt in PROMPTS[:2]]
    for events, prompt in zip(together(shared, lanes), PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)
