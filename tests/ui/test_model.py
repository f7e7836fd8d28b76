"""What the page says about the loaded model and the chosen method, and how another is loaded."""

from __future__ import annotations

import json

import pytest
from ui.scripted import ScriptedStudio

from specdemo.drafters import methods as drafters
from specdemo.errors import UserError
from specdemo.models.progress import Progress
from specdemo.session.menu import PairInfo
from specdemo.settings import POLICIES
from specdemo.training.card import TITLES
from specdemo.ui import words
from specdemo.ui.model import ModelHandlers
from specdemo.ui.settings_panel import OPTIONS
from specdemo.ui.tabs.methods import last_audit


@pytest.fixture
def handlers():
    return ModelHandlers(ScriptedStudio())


def test_every_policy_of_the_settings_has_a_word():
    assert tuple(words.POLICIES) == POLICIES


def test_every_method_has_a_word():
    assert set(drafters.METHODS) <= set(words.VIEW["methods"])


def test_the_menu_says_what_a_method_needs_and_hides_what_it_does_not_read(handlers):
    menu, note, *options, _card = handlers.menu("tree")
    assert menu["choices"] == [
        ("Draft model", "draft_model"),
        ("Tree (not available here)", "tree"),
        ("Look back (lossy)", "look_back"),
    ]
    assert [kind for kind, _ in json.loads(note)] == ["summary", "needs", "missing"]
    assert "There is no draft." in note
    seen = [
        option for option, update in zip(OPTIONS, options, strict=True) if update["visible"] is True
    ]
    assert seen == ["nodes"]
    assert [kind for kind, _ in json.loads(handlers.menu("look_back")[1])] == ["summary", "lossy"]
    assert handlers.menu("gone")[1] == handlers.menu("draft_model")[1]


def test_the_menu_is_told_anew_once_the_model_is_there(handlers):
    handlers.studio.loading = Progress("load", 0.5, "layers")
    handlers.studio.ready = False
    _, timer, *menu = handlers.tick("tree")
    assert timer.active
    assert all("choices" not in update and "visible" not in update for update in menu)
    handlers.studio.loading, handlers.studio.ready = None, True
    _, timer, *menu = handlers.tick("tree")
    assert not timer.active
    assert menu == list(handlers.menu("tree"))


def test_the_audit_arrives_as_it_was_written():
    studio = ScriptedStudio()
    assert json.loads(last_audit(studio)) is None
    studio.audited = {"methods": [{"name": "tree"}]}
    assert json.loads(last_audit(studio)) == studio.audited


def card_of(handlers, method):
    return json.loads(handlers.menu(method)[-1])


def test_the_card_follows_the_method(handlers):
    handlers.studio.cards = {"draft_model": {"kind": "draft", "seed": 3}}
    assert card_of(handlers, "draft_model") == {"card": {"kind": "draft", "seed": 3}}
    assert card_of(handlers, "look_back") == {
        "none": "Look back has no weights of its own, so there is nothing to train."
    }
    assert "There is no draft." in card_of(handlers, "tree")["none"]
    handlers.studio.cards = {}
    assert card_of(handlers, "draft_model")["none"] == words.CARD_UNKNOWN.format(need="D")
    handlers.studio.ready = False
    assert card_of(handlers, "draft_model") == {"none": words.CARD_LOADING}


def test_every_kind_that_can_be_trained_has_a_word():
    assert set(words.VIEW["card"]["kinds"]) == set(drafters.TRAINED)


def test_every_result_of_a_card_has_a_word_in_the_page():
    assert set(words.VIEW["card"]["names"]) == set(TITLES)
    assert set(words.VIEW["card"]["shares"]) < set(TITLES)


class SwitchingStudio(ScriptedStudio):
    """Loads another pair in two reports, unless it breaks."""

    breaks: Exception | None = None

    def pairs(self):
        return [PairInfo("big", "small", "Big", "")]

    def switch(self, target, draft, precision):
        self.asked = (target, draft, precision)
        yield Progress("load", 0.5, "layers")
        if self.breaks:
            raise self.breaks
        yield Progress("warm up", None, "")


def test_another_pair_is_loaded_with_its_draft_and_the_button_waits():
    handlers = ModelHandlers(SwitchingStudio())
    *loading, (status, button) = handlers.switch(" big ", "fp32")
    assert handlers.studio.asked == ("big", "small", "fp32")
    assert [json.loads(value)["state"] for value, _ in loading] == ["loading", "loading"]
    assert not any(busy.interactive for _, busy in loading)
    assert json.loads(status)["state"] == "ready"
    assert button.interactive


@pytest.mark.parametrize("breaks", [UserError("No room.", advice="Free some."), OSError("oh")])
def test_a_pair_that_cannot_be_loaded_is_a_sentence_and_the_button_is_free(breaks):
    handlers = ModelHandlers(SwitchingStudio())
    handlers.studio.breaks = breaks
    *_, (status, button) = handlers.switch("big", "fp32")
    assert json.loads(status)["state"] == "failed"
    assert breaks.args[0] in json.loads(status)["text"]
    assert button.interactive
