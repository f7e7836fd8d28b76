"""Both variants of a run, each on its own clock."""

import threading
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
from letters import letters_studio, tiny_llama, tiny_pair

from specdemo.config.settings import RunSettings
from specdemo.session import runs
from specdemo.session.runs import beside
from specdemo.trace import events as trace
from specdemo.trace.events import (
    PLAIN,
    SPECULATIVE,
    FinishReason,
    RunFinished,
    RunStarted,
    Verified,
)
from specdemo.trace.metrics import output_ids

BOTH = RunSettings(method="ngram", max_new_tokens=16, memory=False)


@pytest.fixture
def studio(monkeypatch):
    """A studio whose turns are shorter than any step."""
    monkeypatch.setattr(runs, "TURN_SECONDS", 1e-9)
    return letters_studio(tiny_pair(tiny_llama(1)))


def lane(name, step_seconds, steps, ended):
    """The events of a run whose steps all take as long."""
    try:
        yield RunStarted(name, "ngram", "", {}, trace.ModelInfo("tiny"))
        for step in range(steps):
            yield trace.Drafted(name, step, 0, None, (), 0.0)
            seconds = (step + 1) * step_seconds
            yield Verified(name, step, (), (), trace.Node(1), 0.0, step_seconds, 0.0, seconds)
        yield RunFinished(name, FinishReason.LENGTH, steps, steps * step_seconds)
        return f"text of {name}"
    finally:
        ended.append(name)


def changes(events):
    """Count the changes of runs; each is from one whose clock is ahead, or which has ended, and not within a step."""
    clock, found = {PLAIN: 0.0, SPECULATIVE: 0.0}, 0
    for event, after in pairwise(events):
        if isinstance(event, Verified):
            clock[event.lane] = event.elapsed_seconds
        if after.lane != event.lane:
            found += 1
            assert isinstance(event, RunStarted | Verified | RunFinished)
            assert isinstance(event, RunFinished) or clock[after.lane] <= clock[event.lane]
    return found


def test_the_run_whose_clock_is_behind_has_a_turn_of_it():
    ended = []
    both = beside([lane(PLAIN, 0.1, 12, ended), lane(SPECULATIVE, 0.05, 12, ended)])
    texts = []

    def whole():
        texts.extend((yield from both))

    events = list(whole())
    assert texts == ["text of plain", "text of speculative"]
    assert [event.lane for event in events[:2]] == [PLAIN, SPECULATIVE]
    assert all(isinstance(event, RunStarted) for event in events[:2])
    assert changes(events) >= 2
    assert [event for event in events if event.lane == PLAIN] == list(lane(PLAIN, 0.1, 12, []))


def test_closing_it_ends_all_runs():
    ended = []
    with closing(beside([lane(PLAIN, 0.1, 9, ended), lane(SPECULATIVE, 0.1, 9, ended)])) as both:
        for _ in range(4):
            next(both)
    assert sorted(ended) == [PLAIN, SPECULATIVE]


@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_each_variant_writes_what_it_writes_alone(studio, method):
    conversation, alone = studio.open(), studio.open()
    for prompt in ("abcabc", "bcdbcd"):  # the second one follows on the first
        events = list(conversation.run(prompt, replace(BOTH, method=method)))
        assert changes(events) >= 3
        plain = list(alone.run(prompt, replace(BOTH, method="nothing")))
        for name in (PLAIN, SPECULATIVE):
            own = [event for event in events if event.lane == name]
            assert output_ids(own) == output_ids(plain)
            assert isinstance(own[-1], RunFinished)
        started = [event for event in events if isinstance(event, RunStarted)]
        first, second = started
        assert second.prompt_tokens == first.prompt_tokens
        assert second.cached_tokens == first.prompt_tokens - 1  # the prompt is read once
    assert conversation.messages == alone.messages


def test_cancelling_ends_both_and_a_second_cache_lasts_no_longer_than_the_run(studio):
    conversation, alone = studio.open(), studio.open()
    cancel, events = threading.Event(), []
    for event in conversation.run("abcabc", BOTH, cancel=cancel):
        events.append(event)
        if event.lane == SPECULATIVE and isinstance(event, Verified):
            cancel.set()
    ends = [event for event in events if isinstance(event, RunFinished)]
    assert {end.reason for end in ends} == {FinishReason.CANCELLED}
    assert sorted(end.lane for end in ends) == [PLAIN, SPECULATIVE]
    list(alone.run("abcabc", replace(BOTH, method="nothing")))
    assert 0 < conversation.held_bytes <= alone.held_bytes
