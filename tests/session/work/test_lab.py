"""The lab's experiments on tiny models: lossless variants equal plain decoding, and dropping tokens shifts probabilities."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from conftest import PROFILE, loaded, tiny_llama
from errors import reported
from letters import tiny_pair

from specdemo.config.settings import AppSettings
from specdemo.session.door import perform
from specdemo.session.studio import Studio
from specdemo.session.work import lab
from specdemo.ui.tabs.lab import LabHandlers, LabVisitor


@pytest.fixture(scope="module")
def studio():
    """A studio with two tiny models whose tokens are letters; fp32, so that greedy runs must agree."""
    studio = Studio(AppSettings(target="tiny", draft="none"))
    studio.use(loaded(tiny_pair(tiny_llama(3))))
    return studio


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(lab, "RUN_TOKENS", 16)
    monkeypatch.setattr(lab, "TEXT_TOKENS", 8)
    monkeypatch.setattr(lab, "TOY_RUNS", 200)


def lanes_of(studio, work):
    return [lab.MeasuredRun(**lane) for lane in perform(studio, work, threading.Event())]


def test_a_perfect_draft_is_kept_whole_and_saves_passes(studio):
    first, *lanes, last = lanes_of(studio, lab.perfect_lanes)
    assert [lane.lookahead for lane in lanes] == list(lab.LOOKAHEADS)
    assert first.steps == last.steps == 16
    for lane in lanes:
        assert lane.accepted == lane.drafted
        assert lane.tokens == lane.same == 16
        assert lane.steps == -(-16 // (lane.lookahead + 1))
        assert not lane.retold
        assert lane.runs == 1


def test_a_random_draft_costs_rows_and_leaves_no_trace(studio):
    _, *lanes, _ = lanes_of(studio, lab.random_lanes)
    assert all(lane.tokens == lane.same == 16 for lane in lanes)
    assert sum(lane.accepted for lane in lanes) < 0.1 * sum(lane.drafted for lane in lanes)
    assert lanes[-1].drafted > 4 * lanes[0].drafted


def test_a_perfect_draft_is_told_anew_what_wider_passes_say(studio, monkeypatch):
    bench = lab._Bench(studio, threading.Event(), 16, lab.Sampling())
    monkeypatch.setattr(bench, "plain", [*bench.plain[:5], *[0] * 11])
    monkeypatch.setattr(lab, "_Bench", lambda *_: bench)
    _, one, *_ = lanes_of(studio, lab.perfect_lanes)
    assert one.retold
    assert one.accepted == one.drafted
    assert one.same == 5


@pytest.mark.parametrize("work", [lab.perfect_lanes, lab.random_lanes])
def test_a_cancelled_experiment_measures_nothing_half(studio, work):
    cancel = threading.Event()
    lanes = perform(studio, work, cancel)
    next(lanes)
    next(lanes)
    cancel.set()
    assert list(lanes) == []


def test_dropping_after_the_draw_moves_probability_and_keeping_does_not():
    target, draft = torch.tensor([[0.7, 0.3]]), torch.tensor([[0.6, 0.4]])
    assert torch.allclose(lab.next_token(target, draft, 0.0), target)
    assert torch.allclose(lab.next_token(target, draft, 0.5), torch.tensor([[0.88, 0.12]]))
    target, draft = torch.rand(2, 5, 9, generator=torch.Generator().manual_seed(1)).softmax(-1)
    assert torch.allclose(lab.next_token(target, draft, 0.0), target, atol=1e-6)
    dropped = lab.next_token(target, draft, float(draft.median()))
    assert torch.allclose(dropped.sum(-1), torch.ones(5))
    assert (dropped - target).abs().max() > 1e-3
    # By drawing: the same as by summing.
    generator, runs = torch.Generator().manual_seed(2), 40_000
    p, q = target[0], draft[0]
    drawn = torch.multinomial(q, runs, replacement=True, generator=generator)
    kept = torch.rand(runs, generator=generator) < p[drawn] / q[drawn]
    left = (p - q).clamp(min=0)
    instead = torch.multinomial(left, runs, replacement=True, generator=generator)
    own = torch.multinomial(p, runs, replacement=True, generator=generator)
    words = torch.where(q[drawn] < draft.median(), own, torch.where(kept, drawn, instead))
    shares = torch.bincount(words, minlength=9) / runs
    assert torch.allclose(shares, dropped[0], atol=0.012)


def test_the_real_pair_is_moved_by_taking_back_only(studio):
    (found,) = perform(studio, lab.places_taken_back, threading.Event())
    assert found["positions"] == 8
    assert found["kept"] < 1e-5
    assert 0 < found["moved"] <= found["most"] <= 1
    assert len(found["tokens"]) == lab.SHOWN
    assert len(found["before"]) <= 8
    json.dumps(found)


def test_without_a_draft_there_is_nothing_to_take_back():
    studio = Studio(AppSettings(target="tiny", draft="none"))
    studio.use(loaded(tiny_pair()))
    assert not list(perform(studio, lab.places_taken_back, threading.Event()))


def test_the_two_words_through_the_loop():
    found = lab.two_words()
    assert found["stop"]["runs"] == found["back"]["runs"] == 200
    assert found["back"]["share"] > 0.8 > found["stop"]["share"]


def told(stream):
    return [json.loads(value) for value in stream]


def test_an_experiment_grows_lane_by_lane_and_ends_done(studio):
    visitor, first = LabHandlers(studio).begin(None, "random")
    assert json.loads(first) == {"random": {"state": "waiting"}}
    values = told(LabHandlers(studio).run(visitor, "random"))
    assert [len(value["random"]["lanes"]) for value in values] == [*range(11), 10]
    assert values[-1]["random"]["state"] == "done"
    assert values[-1]["random"]["verify"] == [list(point) for point in PROFILE.verify]
    assert json.loads(json.dumps(visitor.tried)) == values[-1]
    _, again = LabHandlers(studio).begin(visitor, "look_back")
    assert json.loads(again)["random"] == values[-1]["random"]


def test_taking_back_shows_the_model_and_the_words(studio):
    handlers = LabHandlers(studio)
    visitor, _ = handlers.begin(None, "look_back")
    last = told(handlers.run(visitor, "look_back"))[-1]["look_back"]
    assert last["state"] == "done"
    assert last["toy"]["back"]["share"] > 0.8
    assert last["real"]["positions"] == 8


def test_stop_keeps_what_was_measured_and_visitors_do_not_meet(studio):
    handlers = LabHandlers(studio)
    visitor, _ = handlers.begin(None, "perfect")
    other, _ = handlers.begin(None, "random")
    stream = handlers.run(visitor, "perfect")
    for value in stream:
        if len(json.loads(value)["perfect"]["lanes"]) == 3:
            handlers.stop(visitor)
            break
    last = told(stream)[-1]["perfect"]
    assert last["state"] == "stopped"
    assert len(last["lanes"]) == 3
    assert not other.task.cancel.is_set()
    assert list(other.tried) == ["random"]
    handlers.stop(None)


def test_a_second_experiment_ends_the_first_without_its_last_word(studio):
    handlers = LabHandlers(studio)
    visitor, _ = handlers.begin(None, "perfect")
    stream = handlers.run(visitor, "perfect")
    next(stream)
    handlers.begin(visitor, "random")
    assert "lanes" not in visitor.tried["random"]
    assert list(stream) == []
    assert visitor.tried["random"] == {"state": "waiting"}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (reported("No.", unaffected="All is well.", advice="Wait."), "No."),
        (ValueError("oh"), "The experiment broke: oh."),
    ],
)
def test_an_experiment_that_breaks_says_so(error, message):
    class Broken(Studio):
        @property
        def pair(self):
            raise error

    studio = Broken(AppSettings())
    studio.error = reported("No.")
    visitor = LabVisitor()
    last = told(LabHandlers(studio).run(visitor, "perfect"))[-1]["perfect"]
    assert last["state"] == "failed"
    assert last["error"]["message"] == message
    assert last["error"]["advice"]
    assert visitor.task.cancel.is_set()


def test_the_script_learns_this_machines_costs(studio):
    costs = LabHandlers(studio).machine("")
    assert costs["verify"] == PROFILE.verify
    assert costs["draft"] == PROFILE.draft_step
    assert LabHandlers(Studio(AppSettings())).machine("") is None
