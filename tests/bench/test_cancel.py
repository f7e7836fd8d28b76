"""The time that a cancelled run takes to end: measured while it reads and while it answers, and held against the limit."""

from __future__ import annotations

import time

import pytest
from conftest import loaded
from letters import tiny_pair

from specdemo.bench import cancel
from specdemo.bench.cancel import ANSWERING, READING
from specdemo.config.settings import AppSettings
from specdemo.session.studio import Studio


@pytest.fixture
def studio(monkeypatch):
    studio = Studio(AppSettings(target="tiny", draft="none"))
    studio.use(loaded(tiny_pair()))
    monkeypatch.setattr(cancel, "Studio", lambda _: studio)
    monkeypatch.setattr(studio, "load", lambda: None)
    monkeypatch.setattr(cancel, "WORDS", ("abc", "bcd"))
    return studio


def test_a_run_is_cancelled_while_it_reads_and_while_it_answers(studio):
    found = cancel.measure(studio, ["nothing", "ngram"], repeat=2, words=60)
    assert [(one.method, one.during, len(one.seconds)) for one in found] == [
        ("nothing", READING, 2), ("nothing", ANSWERING, 2), ("ngram", READING, 2), ("ngram", ANSWERING, 2)
    ]  # fmt: skip
    assert all(seconds >= 0 for one in found for seconds in one.seconds)


def test_a_run_that_ends_late_fails(studio, monkeypatch, capsys):
    monkeypatch.setattr(cancel, "LIMIT", 30.0)
    options = ["--methods", "nothing", "--repeat", "1", "--words", "60"]
    assert cancel.main(options) == 0
    assert "answering" in capsys.readouterr().out
    open_conversation = studio.open

    def slow():
        conversation = open_conversation()
        run = conversation.run

        def late(*arguments, **settings):
            yield from run(*arguments, **settings)
            time.sleep(0.02)

        conversation.run = late
        return conversation

    monkeypatch.setattr(studio, "open", slow)
    monkeypatch.setattr(cancel, "LIMIT", 0.01)
    assert cancel.main(options) == 1
