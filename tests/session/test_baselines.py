"""While other users wait, a recent plain run of the same kind replaces the baseline; it is labelled, and only then used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import Clock
from letters import tiny_pair

from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.session.conversation import RECENT_SECONDS, Baselines
from specdemo.session.loaded import Loaded
from specdemo.session.studio import Studio
from specdemo.trace.codec import dumps, loads
from specdemo.trace.events import PLAIN, SPECULATIVE, RunFinished, RunStarted
from specdemo.trace.metrics import measure, output_ids, speedup

RUN = RunSettings(method="ngram", max_new_tokens=20)


class Class:
    """A studio with one slot; a second user waits on demand."""

    def __init__(self):
        self.studio = Studio(AppSettings(target="tiny", runs_at_once=1))
        self.studio.use(Loaded(self.studio.settings, tiny_pair()))
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
