"""The interface to an engine carries only plain values: settings, events as lines, work by its name."""

from __future__ import annotations

import json
import threading

import pytest
from conftest import loaded
from letters import tiny_pair

from specdemo.config.settings import AppSettings, RunSettings
from specdemo.session import studio as studio_module
from specdemo.session.conversation import Conversation
from specdemo.session.door import EngineClient
from specdemo.session.studio import Studio
from specdemo.session.work import lab, proposals


class PlainConversation(Conversation):
    """A conversation that passes only JSON values, and accepts work only by its name."""

    def perform(self, work, arguments, cancel=None):
        module, name = work.__module__, work.__qualname__
        assert module.startswith("specdemo.session.work.")
        assert name.isidentifier()
        assert {lab.__name__: lab, proposals.__name__: proposals}[module].__dict__[name] is work
        arguments = json.loads(json.dumps(arguments))
        for part in super().perform(work, arguments, cancel):
            yield json.loads(json.dumps(part))


@pytest.fixture
def door(monkeypatch, draft_weights) -> EngineClient:
    monkeypatch.setattr(studio_module, "Conversation", PlainConversation)
    studio = Studio(AppSettings(target="tiny", draft="none"))
    studio.use(loaded(tiny_pair(draft_weights)))
    return studio


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(lab, "RUN_TOKENS", 8)
    monkeypatch.setattr(lab, "TEXT_TOKENS", 4)
    monkeypatch.setattr(lab, "LOOKAHEADS", range(1, 3))


def test_experiments_are_the_same_values_on_the_other_side(door):
    for experiment in (lab.perfect, lab.at_random):
        lanes = list(experiment(door, threading.Event()))
        assert [lane.tokens for lane in lanes] == [8] * 4
        assert all(isinstance(lane, lab.MeasuredRun) for lane in lanes)
    found = lab.taken_back(door, threading.Event())
    assert found.positions == 4
    assert isinstance(found.tokens[0], lab.Moved)


def test_drafts_side_by_side_cross_it(door):
    comparison = proposals.Comparison(door)
    *_, text = comparison.write("abcabc", most=12)
    settings = RunSettings(policy="constant", lookahead=3)
    guesses = {guess.method: guess for guess in comparison.guesses(text, 4, settings)}
    assert len(guesses["draft_model"].verified.nodes) == 3
    assert guesses["draft_model"].drafted.draft_seconds > 0
    comparison.close()


def test_what_was_said_can_be_carried_to_another_conversation(door):
    settings = RunSettings(method="nothing", max_new_tokens=6, memory=False)
    first = door.open()
    list(first.run("abc", settings))
    carried = door.open()
    carried.messages = json.loads(json.dumps(first.messages))
    (started, *_), (again, *_) = (list(one.run("def", settings)) for one in (first, carried))
    assert started.prompt_tokens == again.prompt_tokens > len("abcdef")
    assert again.cached_tokens == 0 < started.cached_tokens


def test_a_studio_is_a_door(door):
    assert door.target.name == "tiny"
    assert door.stop_ids == frozenset(door.pair.stop_ids())
    costs = json.loads(json.dumps(door.machine()))
    assert costs["verify"][0][0] == 1
