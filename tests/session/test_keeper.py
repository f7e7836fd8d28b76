"""Memory between runs is bounded: many users leave no more caches than the limit, and nothing remains of a user who left."""

import gc
import weakref
from dataclasses import replace

import pytest
from letters import letters_studio, tiny_pair

from specdemo.config.settings import RunSettings
from specdemo.session import studio as studio_module
from specdemo.session.keeper import Keeper
from specdemo.session.runs import Caches
from specdemo.trace.events import RunStarted
from specdemo.trace.metrics import output_ids

RUN = RunSettings(method="ngram", max_new_tokens=1, baseline=False)
IDLE = 600.0


class Visitor:
    """Occupies this many bytes until they are freed between two runs."""

    def __init__(self, visitor="", held=10, running=False):
        self.visitor, self.running, self.held_bytes = visitor, running, held

    def give_back(self):
        if not self.running:
            self.held_bytes = 0
        return not self.running


@pytest.fixture
def keeper(clock):
    return Keeper(35, IDLE, clock)


def held(visitors):
    return [visitor.held_bytes for visitor in visitors]


def test_the_visitor_who_was_away_longest_gives_memory_back_first(keeper):
    visitors = [Visitor() for _ in range(4)]
    for visitor in visitors[:3]:
        keeper.keep(visitor)
    keeper.keep(visitors[0])
    assert held(visitors) == [10, 10, 10, 10]
    keeper.keep(visitors[3])
    assert held(visitors) == [10, 0, 10, 10]
    assert keeper.held_bytes == 30


def test_nothing_is_taken_from_a_run_that_goes_on(keeper, clock):
    running, other = Visitor(held=100, running=True), Visitor()
    keeper.keep(running)
    keeper.keep(other)
    assert held([running, other]) == [100, 0]
    clock.now += IDLE
    keeper.look()
    assert running.held_bytes == 100


def test_a_visitor_who_is_idle_or_has_left_gives_memory_back(keeper, clock):
    idle, fresh, left = visitors = [Visitor("a"), Visitor("b"), Visitor("c")]
    keeper.keep(idle)
    clock.now += IDLE / 2
    keeper.keep(fresh)
    keeper.keep(left)
    keeper.leave("c")
    assert held(visitors) == [10, 10, 0]
    clock.now += IDLE / 2
    keeper.look()
    assert held(visitors) == [0, 10, 0]
    assert keeper.held_bytes == 10


def test_a_visitor_who_leaves_during_a_run_gives_memory_back_at_its_end(keeper):
    leaves, returns = Visitor("a", running=True), Visitor("b", running=True)
    for visitor in (leaves, returns):
        keeper.begin(visitor)
        keeper.leave(visitor.visitor)
    assert held([leaves, returns]) == [10, 10]
    keeper.begin(returns)  # the connection was cut for a moment only
    for visitor in (leaves, returns):
        visitor.running = False
        keeper.keep(visitor)
    assert held([leaves, returns]) == [0, 10]


def test_a_timer_notices_idle_visitors_without_any_run(clock):
    keeper, visitor = Keeper(40, IDLE, clock), Visitor()
    keeper.keep(visitor)
    timer = keeper._timer
    assert timer.daemon
    assert timer.interval == IDLE
    clock.now += IDLE
    timer.function()
    assert visitor.held_bytes == 0
    assert keeper._timer is None
    timer.cancel()


@pytest.fixture
def studio(draft_weights):
    return letters_studio(tiny_pair(draft_weights), cache_mb=16)


@pytest.fixture
def alive(monkeypatch):
    """Every Caches that was made and is still there."""
    made = weakref.WeakSet()

    class Counted(Caches):
        def __init__(self, loaded):
            super().__init__(loaded)
            made.add(self)

    monkeypatch.setattr(studio_module, "Caches", Counted)
    return made


def test_many_visits_hold_no_more_than_the_limit(studio, alive):
    most = 300_000
    studio.keeper = Keeper(most, IDLE)
    visitors, most_alive = [], 0
    for visit in range(300):
        conversation = studio.open(str(visit))
        assert list(conversation.run("abcabc", RUN))
        visitors.append(conversation)
        assert studio.keeper.held_bytes <= most
        most_alive = max(most_alive, len(alive))
        if visit % 3 == 0:
            studio.keeper.leave(str(visit))
            assert not conversation.held_bytes
    gc.collect()
    one = visitors[-2].held_bytes
    assert one > 0
    assert len(alive) <= most // one
    assert most_alive <= most // one + 50  # some wait for the collector
    for conversation in visitors:
        conversation.close()
    gc.collect()
    assert (studio.keeper.held_bytes, len(alive)) == (0, 0)


def test_a_conversation_goes_on_after_its_caches_were_given_back(studio):
    kept, given = studio.open(), studio.open("gone")
    found = []
    for conversation in (kept, given):
        list(conversation.run("abcabc", RUN))
        if conversation is given:
            studio.keeper.leave("gone")
            assert not given.held_bytes
        found.append(list(conversation.run("bcd", RUN)))
    (first, *_), (anew, *_) = found
    assert isinstance(first, RunStarted)
    assert isinstance(anew, RunStarted)
    assert first.cached_tokens > 0
    assert anew.cached_tokens == 0
    assert anew.prompt_tokens == first.prompt_tokens  # the messages stayed
    assert output_ids(found[0]) == output_ids(found[1])


def test_a_run_keeps_its_caches_until_it_ends(studio):
    conversation = studio.open("here")
    view = conversation.run("abcabc", replace(RUN, max_new_tokens=200))
    next(view)
    studio.keeper.leave("here")
    assert not conversation.give_back()
    before = output_ids(list(view))
    assert before == output_ids(list(studio.open().run("abcabc", replace(RUN, max_new_tokens=200))))
