"""Several prompts: rows are distinct, errors are sentences, stopped or abandoned runs are cancelled."""

import json

import pytest
from errors import reported
from ui.scripted import VALUES, ScriptedConversation, ScriptedStudio

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.session.work.batch import State
from specdemo.ui import words
from specdemo.ui.batch import BatchHandlers


@pytest.fixture
def handlers():
    return BatchHandlers(ScriptedStudio())


def batch_of(handlers, text, visitor=None):
    """All values of the batch view, from pressing Run all on."""
    visitor, first = handlers.begin(visitor, text)
    return [json.loads(value) for value in (first, *handlers.run(visitor, text, "", VALUES))]


def test_a_batch_shows_each_prompt_and_the_total(handlers):
    first, *_, last = batch_of(handlers, "a\n\n  b \n")
    assert [row["state"] for row in first["rows"]] == ["waiting", "waiting"]
    assert first["waiting"] == words.WAIT_TURN
    assert [(row["prompt"], row["text"]) for row in last["rows"]] == [
        ("a", " a0 a1 a2"),
        ("b", " b0 b1 b2"),
    ]
    assert [row["rate"] for row in last["rows"]] == [pytest.approx(10), pytest.approx(10)]
    assert (last["total"]["prompts"], last["total"]["tokens"]) == (2, 6)
    assert last["total"]["rate"] > 0
    assert (last["waiting"], last["error"]) == ("", [])


def test_a_failed_prompt_of_a_batch_leaves_the_others(handlers):
    handlers.studio.open = lambda *_: ScriptedConversation(reported("Happened.", advice="Do."))
    last = batch_of(handlers, "a\nb")[-1]
    assert [(row["state"], row["error"]) for row in last["rows"]] == [
        ("failed", ["Happened.", "Do."])
    ] * 2
    assert last["error"] == []


EMPTY = UserError("batch.empty").message
TOO_MANY = UserError("batch.too_many", count=3, most=2).message


@pytest.mark.parametrize(
    ("text", "message"), [(None, EMPTY), (" \n", EMPTY), ("a\n" * 3, TOO_MANY)]
)
def test_a_batch_of_none_or_too_many_is_a_sentence(handlers, text, message):
    handlers.studio.settings = AppSettings(batch_prompts=2)
    last = batch_of(handlers, text)[-1]
    assert message in last["error"][0]
    assert last["rows"] == []


def test_a_stopped_batch_shows_the_answers_so_far(handlers):
    handlers.studio.open = lambda *_: ScriptedConversation(steps=10**9)
    visitor, _ = handlers.begin(None, "a\nb")
    running = handlers.run(visitor, "a\nb", "", VALUES)
    next(running)
    handlers.stop(visitor)
    last = json.loads(list(running)[-1])
    assert [row["state"] for row in last["rows"]] == ["stopped", "stopped"]
    assert last["total"]["tokens"] > 0


def test_every_state_of_a_prompt_has_a_word():
    assert set(words.VIEW["batch"]["state"]) == set(State)
