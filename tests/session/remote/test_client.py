"""The engine client for other processes, over a link of threads: the same results as a local studio."""

import sys
import threading
from dataclasses import replace
from types import ModuleType

import pytest
from errors import reported
from thread_link import PLAIN, SETTINGS, ThreadLink, engine

from specdemo.cli.commands import app
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.files.progress import Progress
from specdemo.session.remote.client import RemoteStudio
from specdemo.session.remote.server import Call, run
from specdemo.session.studio import Studio
from specdemo.session.work.race import run_race
from specdemo.trace.events import RunFailed, RunFinished
from specdemo.trace.metrics import output_ids, output_text


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


@pytest.mark.parametrize("method", ["nothing", "ngram", "draft_model"])
def test_a_remote_conversation_goes_on_like_a_local_one(remote, here, method):
    settings = RunSettings(method=method, max_new_tokens=20)
    elsewhere, own = remote.open(), here.open()
    assert remote.target is remote.target
    assert remote.about.cards.get(method) == here.about.cards.get(method)
    for prompt in ("abcabc", "def"):
        there = list(elsewhere.run(prompt, settings, system="s"))
        mine = list(own.run(prompt, settings, system="s"))
        assert output_ids(there) == output_ids(mine)
        assert isinstance(there[-1], RunFinished)
        assert there[0].prompt_tokens == mine[0].prompt_tokens
    assert elsewhere.messages == own.messages
    elsewhere.reset()
    assert next(iter(elsewhere.run("abc", settings))).prompt_tokens == 3


def test_the_memory_stays_with_the_engine_and_is_forgotten_on_request(remote, link):
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


def test_a_lost_engine_ends_the_run_and_keeps_the_messages(remote, link):
    conversation = remote.open()
    link.lost_after = [9]
    *said, failed = conversation.run("abcabc", PLAIN)
    assert isinstance(failed, RunFailed)
    assert failed.lane == "plain"
    assert "gone" in failed.message
    assert "kept" in failed.unharmed
    assert len(output_ids(said)) >= 4
    remembered = [message["content"] for message in conversation.messages]
    assert remembered == ["abcabc", output_text(said)]
    (started, *_, last) = conversation.run("def", PLAIN)
    assert started.prompt_tokens > len("abcabc") + len("def")
    assert isinstance(last, RunFinished)


def test_an_engine_lost_before_its_first_event_is_replaced_unseen(remote, link):
    link.lost_after = [0]
    events = list(remote.open().run("abcabc", PLAIN))
    assert len(output_ids(events)) == 20
    assert link.calls == 2
    link.lost_after = [0]
    events = [event for _, event in run_race(remote, "abcabc", [PLAIN, PLAIN]) if event]
    assert len(output_ids(events)) == 40
    link.lost_after = [0, 0]
    (failed,) = remote.open().run("abcabc", PLAIN)
    assert isinstance(failed, RunFailed)


def test_an_unforeseen_error_is_raised(remote, here, monkeypatch):
    monkeypatch.setattr(here, "open", lambda _visitor: 1 / 0)
    with pytest.raises(RuntimeError, match="division"):
        list(remote.open().run("abc", PLAIN))


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
    asked = {"messages": [], "prompt": "abc", "settings": PLAIN}
    for visitor in ("a", "b", "c"):
        assert len(list(one.perform(Call(visitor, 0, run, asked), threading.Event()))) > 3
    assert list(one._conversations) == ["b", "c"]
