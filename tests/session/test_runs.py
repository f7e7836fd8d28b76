"""Both variants of a run, each on its own clock; while others wait, a recent plain run replaces the baseline."""

import threading
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
from conftest import Clock
from letters import letters_studio, tiny_llama, tiny_pair

from specdemo.config.settings import RunSettings, Sampling
from specdemo.session import runs
from specdemo.session.conversation import RECENT_SECONDS, Baselines
from specdemo.session.runs import beside
from specdemo.trace import events as trace
from specdemo.trace.codec import dumps, loads
from specdemo.trace.events import (
    PLAIN,
    SPECULATIVE,
    FinishReason,
    RunFinished,
    RunStarted,
    Verified,
)
from specdemo.trace.metrics import measure, output_ids, speedup

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


RUN = RunSettings(method="ngram", max_new_tokens=20)


class Class:
    """A studio with one slot; a second user waits on demand."""

    def __init__(self):
        self.studio = letters_studio(runs_at_once=1)
        self.clock = Clock()
        self.studio.baselines = Baselines(self.clock)

    def run(self, prompt="abcabc", settings=RUN, *, crowd=True):
        """Return the events of a user's run while another user waits."""
        line = self.studio.admission
        conversation = self.studio.open("me")
        with line.turn("me") as mine:
            assert mine.admitted
            if not crowd:
                return list(conversation.run(prompt, settings))
            with line.turn("another"):
                return list(conversation.run(prompt, settings))


@pytest.fixture
def crowd():
    return Class()


def lanes(events):
    return [event.lane for event in events if isinstance(event, RunStarted)]


def test_a_recent_plain_run_stands_in_while_others_wait(crowd):
    own = crowd.run(crowd=False)
    assert lanes(own) == [PLAIN, SPECULATIVE]
    crowd.clock.now += 120.0
    compared = crowd.run("bcdbcd")
    assert lanes(compared) == [SPECULATIVE]
    header = compared[0]
    plain = measure([event for event in own if event.lane == PLAIN])
    assert header.stand_in.tokens_per_second == plain.tokens_per_second
    assert header.stand_in.new_tokens == 20
    assert header.stand_in.age_seconds == 120.0
    assert header.settings["baseline"] is True
    fast = measure(compared)
    assert speedup(header.stand_in, fast) == fast.tokens_per_second / plain.tokens_per_second
    # The text is the one that it would have been.
    drafted = [event for event in crowd.run("bcdbcd", crowd=False) if event.lane == SPECULATIVE]
    assert output_ids(compared) == output_ids(drafted)


def test_nobody_has_one_while_nobody_waits_or_who_asks_for_his_own(crowd):
    crowd.run(crowd=False)
    for events in (
        crowd.run(crowd=False),
        crowd.run(settings=replace(RUN, stand_in=False)),
    ):
        assert lanes(events) == [PLAIN, SPECULATIVE]
        assert all(event.stand_in is None for event in events if isinstance(event, RunStarted))
    without = crowd.run(settings=replace(RUN, baseline=False))
    assert lanes(without) == [SPECULATIVE]
    assert without[0].stand_in is None


@pytest.mark.parametrize(
    "settings",
    [
        replace(RUN, max_new_tokens=200),
        replace(RUN, sampling=Sampling(temperature=1.0)),
    ],
)
def test_only_a_run_of_the_same_kind_stands_in(crowd, settings):
    crowd.run(crowd=False)
    assert lanes(crowd.run(settings=settings)) == [PLAIN, SPECULATIVE]


def test_an_old_or_a_stopped_run_does_not_stand_in(crowd):
    crowd.run(crowd=False)
    crowd.clock.now += RECENT_SECONDS + 1
    assert lanes(crowd.run(settings=replace(RUN, max_new_tokens=8))) == [PLAIN, SPECULATIVE]
    # The previous run was too short to measure a rate.
    assert lanes(crowd.run()) == [PLAIN, SPECULATIVE]
    assert lanes(crowd.run()) == [SPECULATIVE]


def test_plain_decoding_itself_is_always_run(crowd):
    crowd.run(crowd=False)
    events = crowd.run(settings=replace(RUN, method="nothing"))
    assert lanes(events) == [PLAIN]
    assert isinstance(events[-1], RunFinished)


def test_a_stand_in_stands_in_the_saved_trace(crowd):
    crowd.run(crowd=False)
    events = crowd.run()
    assert next(loads(dumps(events))).stand_in.new_tokens == 20
