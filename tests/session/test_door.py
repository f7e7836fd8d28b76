"""The contract of an engine client: the studio of this process and one over a link to other processes keep it alike."""

import json
import threading
from contextlib import closing

import pytest
from thread_link import PLAIN, SETTINGS, ThreadLink, assert_idle, engine

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.session.door import EngineClient
from specdemo.session.remote.client import RemoteStudio
from specdemo.session.work import proposals
from specdemo.session.work.batch import Batch, BatchAnswer, BatchTotals, State
from specdemo.session.work.race import run_race
from specdemo.trace.events import FinishReason, RunFinished, RunStarted, Verified
from specdemo.trace.metrics import output_ids, output_text

LONG = RunSettings(method="nothing", max_new_tokens=400, memory=False)


@pytest.fixture
def studio(draft_weights):
    return engine(draft_weights).studio


@pytest.fixture(params=["here", "elsewhere", "elsewhere as a whole"])
def door(request, studio, draft_weights) -> EngineClient:
    if request.param == "here":
        return studio
    link = ThreadLink(engine(draft_weights))
    link.engines[0].studio = studio
    link.whole = "whole" in request.param
    remote = RemoteStudio(SETTINGS, lambda _report: link)
    remote.load()
    assert remote.error is None
    return remote


def test_a_client_describes_the_loaded_pair(door, studio):
    assert door.ready
    assert door.progress() is None
    assert door.target == studio.pair.target.info
    assert door.about.stop_ids == frozenset(studio.pair.stop_ids())
    assert door.methods() == studio.methods()
    assert door.pairs() == studio.pairs()
    costs = json.loads(json.dumps(door.about.machine))
    assert costs["verify"][0][0] == 1


def test_drafts_are_shown_side_by_side(door):
    comparison = proposals.Comparison(door)
    *_, text = comparison.write("abcabc", RunSettings(max_new_tokens=12))
    settings = RunSettings(policy="constant", lookahead=3)
    guesses = {guess.method: guess for guess in comparison.guesses(text, 4, settings)}
    assert len(guesses["draft_model"].verified.nodes) == 3
    assert guesses["draft_model"].drafted.draft_seconds > 0
    comparison.close()


def test_a_race_shows_each_lane_and_counts_its_runs(door):
    lanes = [PLAIN, RunSettings(method="draft_model", max_new_tokens=20, memory=False)]
    shown = list(run_race(door, "abc", lanes))
    assert [number for number, event in shown if event is None] == [0, 1]
    texts = [output_ids([e for at, e in shown if at == number and e]) for number in (0, 1)]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 20
    success = 'request_success_total{finished_reason="length",model_name="tiny"} 2.0'
    assert success in door.meter.text().decode()


def test_a_batch_answers_each_prompt(door):
    *answers, totals = Batch(door, ["abc", "def", " "], PLAIN).answers()
    ended = {one.number: one for one in answers if isinstance(one, BatchAnswer) and one.ended}
    assert [ended[number].new_tokens for number in range(3)] == [20, 20, 0]
    assert ended[2].state is State.FAILED
    assert "prompt is empty" in str(ended[2].error)
    assert isinstance(totals, BatchTotals)
    assert (totals.failed, totals.new_tokens) == (1, 40)


def test_the_turns_can_be_carried_to_another_conversation(door):
    first = door.open()
    list(first.run("abc", PLAIN))
    carried = door.open()
    carried.messages = json.loads(json.dumps(first.messages))
    (started, *_), (again, *_) = (list(one.run("def", PLAIN)) for one in (first, carried))
    assert started.prompt_tokens == again.prompt_tokens > len("abcdef")
    assert again.cached_tokens == 0 < started.cached_tokens


def test_stop_ends_the_run_and_keeps_the_text_so_far(door, studio):
    conversation, cancel, events = door.open(), threading.Event(), []
    for event in conversation.run("abcabc", LONG, cancel=cancel):
        events.append(event)
        if isinstance(event, Verified) and event.step == 5:
            cancel.set()
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.reason is FinishReason.CANCELLED
    assert 6 <= last.new_tokens == len(output_ids(events)) < 400
    assert_idle(studio)
    said = [message["content"] for message in conversation.messages]
    assert said == ["abcabc", output_text(events)]


def test_a_viewer_who_leaves_ends_the_run(door, studio):
    with closing(door.open().run("abcabc", LONG)) as run:
        assert isinstance(next(run), RunStarted)
    assert_idle(studio)


def test_a_run_that_goes_on_adds_nothing_to_a_conversation_that_started_over(door):
    conversation = door.open()
    view = conversation.run("abcabc", PLAIN)
    next(view)
    conversation.reset()
    assert isinstance(list(view)[-1], RunFinished)
    assert conversation.messages == []
    list(conversation.run("abcabc", PLAIN))
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"]


def test_a_prompt_that_the_user_can_correct_is_refused(door):
    with pytest.raises(UserError, match="prompt is empty") as refused:
        list(door.open().run(" ", PLAIN))
    assert refused.value.sentences == UserError("prompt.empty").sentences
