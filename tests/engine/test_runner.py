"""Runs that share a thread and passes have the same output as alone, and a slow consumer delays no run."""

from __future__ import annotations

import time

import pytest
from conftest import drafter_for, header, reference_greedy
from lanes import PROMPTS, Slow, lane, together
from transformers import LlamaForCausalLM

from specdemo.config.settings import Sampling
from specdemo.drafters.base import Plain
from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.passes import run_together
from specdemo.engine.runner import Runner
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.trace.events import RunStarted, Verified
from specdemo.trace.metrics import dropped, output_ids

METHODS = ["nothing", "draft_model", "tree", "ngram"]


@pytest.mark.parametrize("make", [ModuleDecoder, LeanDecoder])
def test_each_run_writes_what_it_would_write_alone(
    target_weights: LlamaForCausalLM, draft_weights, make
):
    decoder = make(target_weights)
    drafters = [drafter_for(method, CachedModel(draft_weights)) for method in METHODS]
    lanes = [lane(decoder, *pair) for pair in zip(drafters, PROMPTS, strict=True)]
    found = together(Runner(), lanes)
    for events, prompt in zip(found, PROMPTS, strict=True):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)
    judged = [event for events in found for event in events if isinstance(event, Verified)]
    assert max(event.runs or 1 for event in judged) == len(PROMPTS)


def test_a_step_is_not_charged_for_the_drafts_of_others_but_for_its_own_by_all(target_weights):
    decoder, slow, quick = LeanDecoder(target_weights), Slow(0.05), Slow()
    lanes = [lane(decoder, one, PROMPTS[0], new_tokens=6) for one in (slow, quick)]
    found = together(Runner(), lanes)
    shared = 0
    for drafter, events in zip((slow, quick), found, strict=True):
        judged = [event for event in events if isinstance(event, Verified)]
        learned = list(zip(judged, drafter.outcomes, strict=True))
        for event, outcome in learned[:-1]:  # no run drafts after the last one
            if outcome.sharing.runs != 2:
                continue
            assert outcome.sharing.rows == 2
            assert outcome.verify_seconds < 0.04
            # The event counts the wait for the other one's draft.
            waited = event.verify_seconds - outcome.verify_seconds
            assert (waited > 0.04) == (drafter is quick)
            assert (outcome.draft_seconds >= 2 * 0.05) == (drafter is slow)
            shared += 1
    assert shared > 4


def test_a_run_that_wants_its_passes_for_itself_shares_none(target_weights):
    decoder = LeanDecoder(target_weights)
    lanes = [
        lane(decoder, Plain(), prompt, new_tokens=8, alone=number == 0)
        for number, prompt in enumerate(PROMPTS[:3])
    ]
    found = together(Runner(), lanes)
    runs = [{event.runs or 1 for event in events if isinstance(event, Verified)} for events in found]  # fmt: skip
    assert runs[0] == {1}
    assert 2 in runs[1]
    assert 3 not in runs[1] | runs[2]
    for events, prompt in zip(found, PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 8)


def test_a_runner_says_how_many_go_on(target_weights):
    decoder, runner = LeanDecoder(target_weights), Runner()
    seen = []

    class Counting(Slow):
        def propose(self, committed, budget):
            seen.append(runner.going_on)
            return Proposal()

    together(runner, [lane(decoder, Counting(), PROMPTS[0], new_tokens=n) for n in (3, 6)])
    assert seen[:2] == [2, 2]
    assert seen[-1] == 1
    while runner.going_on:  # the last one is taken out after its last event
        pass


def test_sampled_runs_are_repeatable_whoever_else_is_there(target_weights):
    decoder, sampling = LeanDecoder(target_weights), Sampling(temperature=1.0, seed=4)
    alone = list(lane(decoder, Plain(), PROMPTS[0], sampling=sampling))
    assert all(event.runs is None for event in alone if isinstance(event, Verified))
    lanes = [lane(decoder, Plain(), PROMPTS[0], sampling=sampling)]
    lanes += [lane(decoder, Plain(), prompt) for prompt in PROMPTS[1:]]
    assert output_ids(together(Runner(), lanes)[0]) == output_ids(alone)


def test_a_viewer_that_does_not_look_holds_nobody_up(target_weights):
    runner, decoder = Runner(), LeanDecoder(target_weights)
    asleep = runner.run(lane(decoder, Plain(), PROMPTS[0]))
    assert isinstance(next(asleep), RunStarted)
    (events,) = together(runner, [lane(decoder, Plain(), PROMPTS[1])])
    assert output_ids(events) == reference_greedy(target_weights, PROMPTS[1], 24)
    assert output_ids(list(asleep)) == reference_greedy(target_weights, PROMPTS[0], 24)


def test_a_viewer_may_look_now_and_then(target_weights):
    lanes = lane(LeanDecoder(target_weights), Plain(), PROMPTS[0], new_tokens=200)
    begun, last, looks, events = time.monotonic(), 0.0, 0, []
    for event in Runner().run(lanes, every=0.05):
        events.append(event)
        looks += time.monotonic() - last > 0.02
        last = time.monotonic()
    assert output_ids(events) == reference_greedy(target_weights, PROMPTS[0], 200)
    assert 3 <= looks <= 2 + (time.monotonic() - begun) / 0.05


def test_what_breaks_is_raised_where_the_run_is_looked_at():
    def broken():
        yield header()
        raise KeyError("sorry")

    runner = Runner()
    view = runner.run(broken())
    assert next(view) == header()
    with pytest.raises(KeyError, match="sorry"):
        next(view)
    with pytest.raises(ZeroDivisionError):
        runner.call(lambda: 1 // 0)
    assert runner.call(lambda: runner.call(lambda: 3)) == 3


def test_a_pass_that_breaks_breaks_those_who_asked_and_nobody_later(target_weights):
    lean = LeanDecoder(target_weights)

    class Breaking:
        """Fails once when two runs request a pass."""

        config, chunk = lean.config, lean.chunk
        broken = False

        def run(self, passes):
            if len(passes) == 2 and not self.broken:
                self.broken = True
                raise RuntimeError("no memory")
            return lean.run(passes)

    runner, decoder = Runner(), Breaking()
    lanes = [lane(decoder, Plain(), prompt) for prompt in PROMPTS[:2]]
    assert all(isinstance(error, RuntimeError) for error in together(runner, lanes))
    lanes = [lane(decoder, Plain(), prompt) for prompt in PROMPTS[:2]]
    for events, prompt in zip(together(runner, lanes), PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("no sense")])
def test_what_breaks_the_thread_ends_the_runs_and_the_next_ones_work(
    target_weights, monkeypatch, error
):
    runner, decoder = Runner(), LeanDecoder(target_weights)
    lanes = [lane(decoder, Plain(), prompt) for prompt in PROMPTS[:2]]
    passes = []

    def broken():
        passes.append(1)
        if len(passes) == 3:
            raise error

    def answer(requests):
        broken()
        run_together(requests)

    monkeypatch.setattr("specdemo.engine.runner.run_together", answer)
    found = together(runner, lanes)
    assert all(isinstance(one, RuntimeError) for one in found)
    assert all(type(error).__name__ in str(one) for one in found)
    lanes = [lane(decoder, Plain(), prompt) for prompt in PROMPTS[:2]]
    for events, prompt in zip(together(runner, lanes), PROMPTS, strict=False):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)


def test_an_error_in_a_shared_draft_ends_only_the_drafts_that_caused_it(
    target_weights, draft_weights
):
    lean = LeanDecoder(draft_weights)

    class Breaking:
        """Cannot read a token of the first prompt."""

        config, chunk = lean.config, lean.chunk

        def run(self, passes):
            if any(one.cache is broken._cache and one.positions[-1] > 14 for one in passes):
                raise IndexError("index out of range in self")
            return lean.run(passes)

    decoder, shared_draft = LeanDecoder(target_weights), Breaking()
    drafts = [CachedModel(shared_draft) for _ in PROMPTS]
    broken = drafts[0]
    drafters = [drafter_for("draft_model", draft, policy="constant") for draft in drafts]
    lanes = [lane(decoder, one, prompt) for one, prompt in zip(drafters, PROMPTS, strict=True)]
    found = together(Runner(), lanes)
    for events, prompt in zip(found, PROMPTS, strict=True):
        assert output_ids(events) == reference_greedy(target_weights, prompt, 24)
    assert [bool(dropped(events)) for events in found] == [True, *[False] * (len(PROMPTS) - 1)]


def shared(decoder):
    """The decoder, and how many runs shared each of its passes."""
    counts = []

    class Counting:
        config, chunk = decoder.config, decoder.chunk

        def run(self, passes):
            counts.append(len(passes))
            return decoder.run(passes)

    return Counting(), counts


@pytest.mark.parametrize(
    ("method", "temperature"),
    [("draft_model", 0.0), ("draft_model", 1.0), ("tree", 1.0), ("auto", 0.0)],
)
def test_runs_with_the_same_draft_model_share_its_passes(
    target_weights, draft_weights, method, temperature
):
    """The drafts are of different lengths, and yet the target's passes stay shared."""
    sampling = Sampling(temperature=temperature, seed=3)

    def made(decoder, draft):
        return [
            lane(
                decoder,
                drafter_for(
                    method,
                    CachedModel(draft),
                    sampling=sampling,
                    policy="constant",
                    lookahead=lookahead,
                ),
                prompt,
                sampling=sampling,
            )
            for prompt, lookahead in zip(PROMPTS[:2], (2, 5), strict=True)
        ]

    target, targets = shared(LeanDecoder(target_weights))
    draft, drafts = shared(LeanDecoder(draft_weights))
    found = together(Runner(), made(target, draft))
    assert drafts.count(2) >= (5 if method == "auto" else 6)  # `auto` drafts less
    shared_steps = [event for event in found[0] if isinstance(event, Verified) and event.runs == 2]
    assert len(shared_steps) == targets.count(2) - 1  # one of them read both prompts
    assert targets == sorted(targets, reverse=True)  # alone only after the other one has ended
    lanes = made(LeanDecoder(target_weights), LeanDecoder(draft_weights))
    for events, alone in zip(found, lanes, strict=True):
        assert output_ids(events) == output_ids(list(Runner().run(alone)))
