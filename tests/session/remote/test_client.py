"""The engine client for other processes, over a link of threads: the same results as a local studio."""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import closing
from dataclasses import asdict, replace
from types import ModuleType

import pytest
from conftest import loaded
from errors import reported
from letters import tiny_pair

from specdemo.cli.commands import app
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.files.progress import Progress
from specdemo.session.admission import Admission
from specdemo.session.remote.client import RemoteStudio
from specdemo.session.remote.link import Lost
from specdemo.session.remote.server import Engine, find_work, name_of
from specdemo.session.studio import Studio
from specdemo.session.work import lab
from specdemo.session.work.batch import BatchAnswer, answer_all, new_texts
from specdemo.session.work.proposals import Comparison
from specdemo.session.work.race import run_race
from specdemo.trace.events import FinishReason, RunFailed, RunFinished, RunStarted, Verified
from specdemo.trace.metrics import output_ids

SETTINGS = AppSettings(target="tiny", draft="none")
PLAIN = RunSettings(method="nothing", max_new_tokens=20, memory=False)
LONG = replace(PLAIN, max_new_tokens=400)
WAIT = 30.0


class ThreadStream:
    """The answer of an engine in this process. lost_after: number of lines after which it ends with Lost"""

    def __init__(self, lines, cancel, lost_after):
        self.lines, self.ended, self.lost_after = lines, cancel, lost_after

    def __iter__(self):
        for number, line in enumerate(self.lines(self.ended)):
            if number == self.lost_after:
                self.ended.set()
                raise Lost
            yield f"{line}\n"
        if self.lost_after == 0:
            raise Lost

    def cancel(self):
        self.ended.set()


class ThreadLink:
    """Engines in this process, called with JSON values. lost_after: `lost_after` of the next streams"""

    whole = False

    def __init__(self, *engines):
        self.engines, self.count = list(engines), len(engines)
        self.lost_after, self.streams, self.left = [], [], []

    def about(self):
        return json.loads(json.dumps(self.engines[0].about()))

    def stream(self, method, visitor, request):
        request = json.loads(json.dumps(request))
        assert request["visitor"] == visitor
        lost_after = self.lost_after.pop(0) if self.lost_after else None
        engine = self.engines[0]
        if lost_after is not None:
            self.engines.append(self.engines.pop(0))  # the next run goes to another
        stream = ThreadStream(
            lambda cancel: getattr(engine, method)(request, cancel), threading.Event(), lost_after
        )
        self.streams.append(stream)
        return stream

    def leave(self, visitor):
        self.left.append(visitor)

    def replicas(self):
        return self.count


def engine(draft_weights):
    studio = Studio(SETTINGS)
    studio.use(loaded(tiny_pair(draft_weights)))
    return Engine(studio)


@pytest.fixture
def link(draft_weights):
    return ThreadLink(engine(draft_weights), engine(draft_weights))


@pytest.fixture
def remote(link):
    studio = RemoteStudio(SETTINGS, lambda _report: link)
    studio.load()
    assert studio.ready
    return studio


@pytest.fixture
def here(link):
    return link.engines[0].studio


def test_a_row_of_links_opens_a_connection(link, here, monkeypatch):
    """The two edits of docs/architecture.md for a connection to engines elsewhere: its module and its row."""
    module = ModuleType("thread_engines")
    module.thread_client = lambda settings: RemoteStudio(settings, lambda _report: link)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = (lambda settings: settings.cluster == "threads", module.__name__, "thread_client")
    monkeypatch.setattr(app, "LINKS", (row, *app.LINKS))
    assert isinstance(app.open_door(SETTINGS), Studio)
    assert isinstance(app.open_door(replace(SETTINGS, cluster="threads", replay=True)), Studio)
    studio = app.open_door(replace(SETTINGS, cluster="threads"))
    studio.load()
    events, expected = (list(one.open().run("the cat", PLAIN)) for one in (studio, here))
    assert output_ids(events) == output_ids(expected)


def test_it_tells_what_an_engine_here_tells(remote, here):
    assert remote.target == here.target
    assert remote.target is remote.target
    assert remote.stop_ids == here.stop_ids
    assert remote.methods() == here.methods()
    assert remote.machine() == json.loads(json.dumps(here.machine()))
    assert remote.card("auto") == here.card("auto")
    assert remote.pairs() == here.pairs()
    assert remote.progress() is None


@pytest.mark.parametrize("method", ["nothing", "ngram", "draft_model"])
def test_a_conversation_goes_on_as_it_would_here(remote, here, method):
    settings = RunSettings(method=method, max_new_tokens=20)
    elsewhere, own = remote.open(), here.open()
    for prompt in ("abcabc", "def"):
        there = list(elsewhere.run(prompt, settings, system="s"))
        mine = list(own.run(prompt, settings, system="s"))
        assert output_ids(there) == output_ids(mine)
        assert isinstance(there[-1], RunFinished)
        assert there[0].prompt_tokens == mine[0].prompt_tokens
    assert elsewhere.messages == own.messages
    elsewhere.reset()
    assert next(iter(elsewhere.run("abc", settings))).prompt_tokens == 3


def test_what_was_learned_stays_there_and_is_forgotten_when_asked(remote, link):
    conversation = remote.open()
    settings = RunSettings(method="ngram", max_new_tokens=20, baseline=False)
    list(conversation.run("abcabc", settings))
    ((learned, _),) = link.engines[0]._conversations.values()
    memory = learned.memory
    list(conversation.run("abcabc", settings))
    assert learned.memory is memory
    conversation.forget()
    list(conversation.run("abcabc", settings))
    assert learned.memory is not memory
    conversation.close()
    assert link.left == [conversation._visitor]
    link.engines[0].leave(conversation._visitor)
    assert not link.engines[0]._conversations


def test_a_lost_engine_ends_the_run_with_a_sentence_and_the_next_run_knows_what_was_said(
    remote, link
):
    conversation = remote.open()
    link.lost_after = [9]
    *said, failed = conversation.run("abcabc", PLAIN)
    assert isinstance(failed, RunFailed)
    assert failed.lane == "plain"
    assert "gone" in failed.message
    assert "kept" in failed.unharmed
    assert len(output_ids(said)) >= 4
    assert remembered(conversation) == ["abcabc", text_of(said)]
    (started, *_, last) = conversation.run("def", PLAIN)
    assert started.prompt_tokens > len("abcabc") + len("def")
    assert isinstance(last, RunFinished)


def test_an_engine_that_is_lost_before_it_said_anything_is_replaced_unseen(remote, link):
    link.lost_after = [0]
    events = list(remote.open().run("abcabc", PLAIN))
    assert len(output_ids(events)) == 20
    assert len(link.streams) == 2
    link.lost_after = [0, 0]
    (failed,) = remote.open().run("abcabc", PLAIN)
    assert isinstance(failed, RunFailed)


def test_stop_ends_the_run_there_and_keeps_what_was_said(remote, link):
    conversation, cancel = remote.open(), threading.Event()
    events = []
    for event in conversation.run("abcabc", LONG, cancel=cancel):
        events.append(event)
        if isinstance(event, Verified) and event.step == 5:
            cancel.set()
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.reason is FinishReason.CANCELLED
    assert 6 <= last.new_tokens == len(output_ids(events)) < 400
    assert link.streams[0].ended.is_set()
    assert_idle(link)
    assert remembered(conversation) == ["abcabc", text_of(events)]


def test_a_run_that_goes_on_adds_nothing_to_a_conversation_that_started_over(remote):
    conversation = remote.open()
    view = conversation.run("abcabc", PLAIN)
    next(view)
    conversation.reset()
    assert isinstance(list(view)[-1], RunFinished)
    assert remembered(conversation) == []


def test_a_recent_plain_run_stands_in_while_others_wait_for_an_engine(remote):
    """They wait in the page's line; those of the engines are empty."""
    settings = RunSettings(method="ngram", max_new_tokens=20, memory=False)
    conversation = remote.open("me")
    assert lanes(conversation.run("abcabc", settings)) == ["plain", "speculative"]
    conversation.reset()
    remote.admission = Admission(lambda: 1)
    with remote.admission.turn("me"), remote.admission.turn("another"):
        (header, *_) = events = list(conversation.run("bcdbcd", settings))
    assert lanes(events) == ["speculative"]
    assert header.stand_in.new_tokens == 20
    conversation.reset()
    with remote.admission.turn("me"):
        assert lanes(conversation.run("abcabc", settings)) == ["plain", "speculative"]


def lanes(events):
    return [event.lane for event in events if isinstance(event, RunStarted)]


def test_a_visitor_who_leaves_ends_the_run_there(remote, link):
    with closing(remote.open().run("abcabc", LONG)) as run:
        assert isinstance(next(run), RunStarted)
    assert link.streams[0].ended.is_set()
    assert_idle(link)


def remembered(conversation):
    return [message["content"] for message in conversation.messages]


def text_of(events):
    steps = [event for event in events if isinstance(event, Verified)]
    return "".join(text for step in steps for text in new_texts(step))


def assert_idle(link):
    """The engine's runs end within a moment."""
    end = time.monotonic() + WAIT
    while link.engines[0].studio.runner.going_on and time.monotonic() < end:
        time.sleep(0.01)
    assert not link.engines[0].studio.runner.going_on


def test_what_the_user_can_mend_and_what_nobody_foresaw_are_told_as_here(remote, here, monkeypatch):
    with pytest.raises(UserError, match="prompt is empty") as told:
        list(remote.open().run(" ", PLAIN))
    with pytest.raises(UserError) as own:
        list(here.open().run(" ", PLAIN))
    assert (told.value.unaffected, told.value.advice) == (own.value.unaffected, own.value.advice)
    monkeypatch.setattr(here, "open", lambda _visitor: 1 / 0)
    with pytest.raises(RuntimeError, match="division"):
        list(remote.open().run("abc", PLAIN))
    with pytest.raises(UserError, match="chosen when they are started"):
        next(remote.switch("a", "b", "nf4"))


def test_races_batches_and_experiments_work_there(remote, monkeypatch):
    settings = [PLAIN, RunSettings(method="draft_model", max_new_tokens=20, memory=False)]
    lanes = [place for place, event in run_race(remote, "abc", settings) if event is None]
    assert lanes == [0, 1]
    answers = [
        part for part in answer_all(remote, ["abc", "def"], PLAIN) if isinstance(part, BatchAnswer)
    ]
    assert {answer.new_tokens for answer in answers if answer.ended} == {20}
    monkeypatch.setattr(lab, "RUN_TOKENS", 8)
    monkeypatch.setattr(lab, "LOOKAHEADS", range(1, 3))
    assert [lane.tokens for lane in lab.perfect(remote, threading.Event())] == [8] * 4
    comparison = Comparison(remote)
    *_, text = comparison.write("abcabc", most=12)
    guesses = {guess.method: guess for guess in comparison.guesses(text, 4, RunSettings())}
    assert guesses["draft_model"].verified


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "specdemo.session.work.lab:machine",
        "specdemo.session.work.lab:perfect",
        "lab",
        "",
    ],
)
def test_only_work_of_scenarios_can_be_asked_for(name):
    with pytest.raises(UserError, match="does not know the work"):
        find_work(name)


def test_work_is_found_by_its_name():
    assert find_work(name_of(lab.perfect_lanes)) is lab.perfect_lanes


def test_no_engine_is_a_sentence_and_an_engine_that_returns_is_noticed(link):
    said = []

    def connect(report):
        report(Progress("load", None, "2 engines"))
        said.append(studio.progress())
        if len(said) == 1:
            raise reported("There is no Ray here.", advice="Start one.")
        if len(said) == 2:
            raise ValueError("odd")
        return link

    studio = RemoteStudio(SETTINGS, connect)
    assert not studio.ready
    assert [method.name for method in studio.methods()]
    with pytest.raises(UserError, match="still starting"):
        list(studio.open().run("abc", PLAIN))
    for sentence in ("There is no Ray here.", "could not be reached: odd"):
        studio.load()
        assert sentence in str(studio.error)
    studio.load()
    assert said[0] == Progress("load", None, "2 engines")
    assert studio.ready
    link.count = 0
    assert not studio.ready
    assert studio.progress() is not None


def test_an_engine_keeps_a_bounded_number_of_conversations(draft_weights, monkeypatch):
    monkeypatch.setattr("specdemo.session.remote.server.MOST_VISITORS", 2)
    one = engine(draft_weights)
    request = {
        "messages": [],
        "prompt": "abc",
        "system": "",
        "every": 0.0,
        "lesson": 0,
        "others_wait": False,
    }
    for visitor in ("a", "b", "c"):
        asked = {**request, "visitor": visitor, "settings": asdict(PLAIN)}
        assert len(list(one.run(asked, threading.Event()))) > 3
    assert list(one._conversations) == ["b", "c"]
