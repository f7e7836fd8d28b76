"""Status of the model, notes on the chosen method, and loading another pair."""

import json
from dataclasses import replace
from pathlib import PurePath

import gradio as gr
import pytest
from errors import reported
from scripted_run import TINY
from ui.scripted import METHODS, ScriptedStudio

from specdemo.config.errors import UserError
from specdemo.config.settings import PROJECT, AppSettings, Recommended, Sampling
from specdemo.files.catalogue import Entry, Pair
from specdemo.files.progress import Progress
from specdemo.models.outlook import Offer, Outlook
from specdemo.session.door import About
from specdemo.session.studio import Studio
from specdemo.ui import words
from specdemo.ui.model import ModelHandlers, create_model_menu
from specdemo.ui.settings_panel import OPTIONS
from specdemo.ui.tabs.race import RaceHandlers


@pytest.fixture
def handlers():
    return ModelHandlers(SwitchingStudio())


def test_the_menu_says_what_a_method_needs_and_hides_what_it_does_not_read(handlers):
    menu, note, *options, _exact, _card = handlers.menu("tree")
    assert menu["choices"] == [
        ("Draft model", "draft_model"),
        ("Tree (not available here)", "tree"),
        ("Look back (lossy)", "look_back"),
    ]
    assert [kind for kind, _ in json.loads(note)] == ["summary", "needs", "missing"]
    assert "<b>There is</b> no draft." in note
    shown = [update["visible"] is True for update in options]
    assert shown == [option == "nodes" for option in OPTIONS]
    assert [kind for kind, _ in json.loads(handlers.menu("look_back")[1])] == ["summary", "lossy"]
    assert handlers.menu("gone")[1] == handlers.menu("draft_model")[1]


def test_a_method_without_an_exact_mode_says_why_beside_the_box(handlers, monkeypatch):
    why = "Tree has no exact mode on this graphics card: only rows of chains were compared."
    tree = replace(METHODS[1], no_exact=why)
    monkeypatch.setattr(handlers.studio, "methods", lambda: [METHODS[0], tree])
    assert handlers.menu("tree")[-2]["info"] == why
    assert handlers.menu("draft_model")[-2]["info"] == words.SETTING_HINTS["exact"]


def test_the_menu_is_drawn_again_once_the_model_is_loaded(handlers):
    handlers.studio.loading = Progress("load", 0.5, "layers")
    handlers.studio.ready = False
    _, timer, *later = handlers.tick("tree", "cost", "greedy")
    assert timer.active
    assert all("choices" not in update and "visible" not in update for update in later)
    handlers.studio.loading, handlers.studio.ready = None, True
    _, timer, *later = handlers.tick("tree", "cost", "greedy")
    assert not timer.active
    assert later == [*handlers.drawing("greedy"), *handlers.menu("tree")]


def test_a_preset_shows_which_values_it_stands_for(handlers):
    told, *values = handlers.drawing("recommended")
    assert told["info"] == "Temperature 0.7, top-k 20, top-p 0.8, repetition penalty 1.1."
    assert [update["value"] for update in values] == [0.7, 20, 0.8, 1.1]
    told, *values = handlers.drawing("greedy")
    assert told["info"] == words.DRAWN_GREEDY
    assert [update["value"] for update in values] == [0.0, 0, 1.0, 1.0]
    told, *values = handlers.drawing("own")
    assert (told["info"], [update for update in values if "value" in update]) == ("", [])
    handlers.studio.recommended = Recommended(Sampling(repetition_penalty=1.1), PROJECT)
    assert handlers.drawing("recommended")[0]["info"] == words.DRAWN_PROJECT.format(
        values="Temperature 0, top-k off, top-p off, repetition penalty 1.1."
    )
    handlers.studio.recommended = Recommended()
    assert handlers.drawing("recommended")[0]["info"] == words.DRAWN_NOTHING
    handlers.studio.ready = False  # no rate is measured yet
    told, *values = handlers.drawing("recommended")
    assert (told["info"], [update for update in values if "value" in update]) == ("", [])


@pytest.mark.parametrize("remark", ["", *words.REMARKS])
def test_the_header_says_what_is_loaded_and_why(handlers, remark):
    handlers.studio.about = About(TINY, METHODS, remark=remark)
    status = json.loads(handlers.status())
    assert status["text"] == "Ready: tiny, fp32"
    assert status["more"] == ([words.REMARKS[remark]] if remark else [])


def test_loading_shows_its_progress_and_the_time_left(handlers):
    handlers.studio.ready = False
    handlers.studio.loading = Progress("download", 0.1, "310 MB of 3.1 GB", 125.0)
    status = json.loads(handlers.status())
    assert (status["text"], status["done"]) == (words.LOADING["download"], 0.1)
    assert status["more"] == ["310 MB of 3.1 GB", "about 2 min left"]


def card_of(handlers, method):
    return json.loads(handlers.menu(method)[-1])


def test_the_card_follows_the_method(handlers):
    cards = {"draft_model": {"kind": "draft", "seed": 3}}
    handlers.studio.about = About(TINY, METHODS, cards=cards)
    assert card_of(handlers, "draft_model") == {"card": {"kind": "draft", "seed": 3}}
    assert card_of(handlers, "look_back") == {
        "none": "Look back has no weights of its own, so there is nothing to train."
    }
    assert "<b>There is</b> no draft." in card_of(handlers, "tree")["none"]
    handlers.studio.about = About(TINY, METHODS)
    assert card_of(handlers, "draft_model")["none"] == words.CARD_UNKNOWN.format(need="D")
    handlers.studio.ready = False
    assert card_of(handlers, "draft_model") == {"none": words.CARD_LOADING}


def test_results_that_the_card_shows_in_percent_have_names():
    assert set(words.VIEW["card"]["shares"]) < set(words.VIEW["card"]["names"])


OFFERS = (
    Offer("owner/here", "EAGLE-3", here=True, size=800_000_000, licence="apache-2.0"),
    Offer("owner/away", "DFlash"),
)


BIG = Entry("big", "Big", "Free", 1, "")


class SwitchingStudio(ScriptedStudio):
    """Load another pair in two reports, unless it breaks. questions: drafters that were queried at the hub"""

    def __init__(self):
        super().__init__()
        self.questions = []

    breaks: Exception | None = None
    missing: int | None = 0
    asked = None

    def pairs(self):
        return [Pair(BIG, Entry("small", "a small one", "Free", 1, ""))]

    def outlooks(self, _precision):
        return {"big": Outlook(10**9, 2 * 10**9, self.missing or 0, 19.6, 41.2)}

    def to_download(self, target, precision):
        assert (target, precision) == ("big", "fp32")
        return self.missing

    def drafters(self, target):
        return [offer for offer in OFFERS if target == "big"]

    def drafter(self, name, *, ask):
        found = next((one for one in OFFERS if one.name == name), Offer(name))
        self.questions += [name] * ask
        return replace(found, size=900_000_000, licence="mit") if ask and not found.here else found

    def switch(self, target, precision, drafter):
        self.asked = (target, precision, drafter)
        yield Progress("load", 0.5, "layers")
        if self.breaks:
            raise self.breaks
        yield Progress("warm up", None, "")


def test_another_pair_is_loaded_and_the_button_waits(handlers):
    before, *loading, (status, *_, button, row) = handlers.load(" big ", "fp32", None)
    assert handlers.studio.asked == ("big", "fp32", "none")
    assert [json.loads(value)["state"] for value, *_ in loading] == ["loading", "loading"]
    assert not any(busy.interactive for *_, busy, _ in (before, *loading))
    assert json.loads(status)["state"] == "ready"
    assert (button.interactive, row.visible) == (True, False)


@pytest.mark.parametrize(
    ("target", "breaks", "told"),
    [
        ("someone/else", None, UserError("page.no_switch")),
        ("big", reported("No room.", advice="Free some."), "No room. Free some."),
        ("big", OSError("oh"), UserError("page.unexpected", error="oh")),
    ],
)
def test_a_model_that_is_not_loaded_leaves_the_menus_free(handlers, target, breaks, told):
    handlers.studio.breaks = breaks
    *_, (status, pair, drafter, _, load, question) = handlers.load(target, "fp32", None)
    status = json.loads(status)
    assert (status["state"], status["text"]) == ("failed", str(told))
    assert "interactive" not in {*pair, *drafter}  # they stay as free as they were
    assert (load.visible, load.interactive, question.visible) == (True, True, False)
    handlers.studio.breaks, handlers.studio.asked = None, None
    list(handlers.load("big", "fp32", None))
    assert handlers.studio.asked == ("big", "fp32", "none")


def test_a_choice_that_must_download_asks_first(handlers):
    handlers.studio.missing = 3_100_000_000
    ((status, _, _, question, load, row),) = handlers.load("big", "fp32", None)
    assert json.loads(status)["state"] == "ready"
    assert json.loads(question) == [["missing", words.ASK.format(title="Big", size="3.1 GB")]]
    assert (load.visible, row.visible) == (False, True)
    assert handlers.studio.asked is None
    (_, _, _, note, load, row), *_ = handlers.load("big", "fp32", None, agreed=True)
    assert json.loads(note) == [["needs", words.COMING]]
    assert (load.interactive, row.visible) == (False, False)
    assert handlers.studio.asked == ("big", "fp32", "none")
    handlers.studio.missing = None
    assert words.ASK_UNKNOWN.format(title="Big") in next(handlers.load("big", "fp32", None))[3]


def sentences(note):
    return dict(json.loads(note))


def test_the_menu_says_what_loading_would_mean(handlers):
    menu, _, note, *_ = handlers.look("big", "fp32", None)
    assert menu["choices"][0] == ("Big", "big")
    said = sentences(note)
    assert said["summary"] == "Drafts come from a small one."
    assert said["needs"] == "Fits: needs about 1.0 GB of memory, 2.0 GB are free."
    assert said["rate"] == words.RATE.format(plain="20", drafted="41")
    assert [text for kind, text in json.loads(note) if kind == "basis"] == [
        words.BY_SIZE, words.KEPT_ASSUMED.format(kept=65),
    ]  # fmt: skip
    assert (said["here"], said["licence"]) == (words.ON_DISK, "Licence: Free.")
    handlers.studio.missing = 3_100_000_000
    menu, _, note, *_ = handlers.look("big", "fp32", None)
    assert menu["choices"][0] == ("Big (download\u00a03.1\u00a0GB)", "big")
    assert sentences(note)["needs"] == words.DOWNLOAD_SIZE.format(size="3.1 GB")
    handlers.studio.outlooks = lambda _: {"big": Outlook(3 * 10**9, 10**9, 0)}
    menu, _, note, *_ = handlers.look("big", "fp32", None)
    assert menu["choices"][0] == ("Big (too\u00a0large\u00a0here)", "big")
    assert sentences(note)["missing"] == words.NO_ROOM.format(needed="3.0 GB", free="1.0 GB")
    assert sentences(note)["rate"] == words.RATE_UNKNOWN
    assert sentences(handlers.look("another", "fp32", None)[2]) == {}
    handlers.studio.settings = AppSettings(target="big", precision="fp32")
    menu, _, note, *_ = handlers.look("auto", "fp32", None)  # the pair of the start
    assert (menu["value"], sentences(note)["here"]) == ("big", words.LOADED.format(needed="3.0 GB"))


def test_the_menu_lists_the_drafters_of_the_target_with_licence_and_size(handlers):
    _, menu, note, *_ = handlers.look("big", "fp32", "owner/here")
    assert menu["choices"] == [
        (words.NO_DRAFTER, "none"),
        ("owner/here (EAGLE-3, 800\u00a0MB)", "owner/here"),
        ("owner/away (DFlash, download)", "owner/away"),
    ]
    assert (menu["value"], menu["visible"]) == ("owner/here", True)
    assert [text for _, text in json.loads(note)[-3:]] == [
        "owner/here drafts.",
        words.DRAFTER_ON_DISK.format(size="800 MB"),
        words.DRAFTER_LICENCE.format(licence="apache-2.0"),
    ]
    assert words.DRAFTER_ASKED in handlers.look("big", "fp32", "owner/away")[2]
    # A drafter for the previous model.
    _, menu, note, *_ = handlers.another("small", "fp32", "owner/here")
    assert (menu["value"], menu["visible"]) == ("none", False)
    assert "drafts." not in note
    assert handlers.another("big", "fp32", "owner/here")[1]["value"] == "owner/here"
    # A visitor who may not name any sees only these.
    assert handlers.look("big", "fp32", "owner/other")[1]["value"] == "none"
    assert not handlers.studio.questions


def test_a_drafter_that_must_be_downloaded_is_asked_about_with_its_licence(handlers):
    list(handlers.load("big", "fp32", "owner/here"))
    assert handlers.studio.asked[-1] == "owner/here"
    assert not handlers.studio.questions
    handlers.studio.asked = None
    ((_, _, _, question, load, row),) = handlers.load("big", "fp32", "owner/away")
    assert json.loads(question) == [
        ["missing", words.ASK.format(title="owner/away", size="900 MB")],
        ["licence", words.DRAFTER_LICENCE.format(licence="mit")],
    ]
    assert (load.visible, row.visible) == (False, True)
    assert handlers.studio.asked is None  # not before the visitor agrees
    list(handlers.load("big", "fp32", "owner/away", agreed=True))
    assert handlers.studio.asked == ("big", "fp32", "owner/away")
    assert handlers.studio.questions == ["owner/away"]


def test_a_drafter_that_the_hub_does_not_know_is_a_sentence_and_no_question(handlers):

    def unknown(name, *, ask):
        if ask:
            raise reported(f"The hub knows no model {name}.")
        return Offer(name)

    handlers.studio.drafter = unknown
    ((*_, note, load, row),) = handlers.load("big", "fp32", "owner/away")
    assert "The hub knows no model" in note
    assert load.visible
    assert "visible" not in row


def test_an_expected_speed_comes_with_its_basis(handlers):
    recorded = Outlook(1, 2, 0, 10.0, 24.0, measured=True, kept=0.748, recorded="nf4")
    handlers.studio.outlooks = lambda _: {"big": recorded}
    note = json.loads(handlers.look("big", "fp32", None)[2])
    said = [text for kind, text in note if kind == "basis"]
    assert said == [words.BY_PASSES, words.KEPT_RECORDED.format(kept=75, precision="nf4")]
    handlers.studio.pairs = lambda: [Pair(BIG, None)]
    handlers.studio.outlooks = lambda _: {"big": Outlook(1, 2, 0, 10.0, None, measured=True)}
    note = json.loads(handlers.look("big", "fp32", None)[2])
    assert note[0] == ["summary", words.NO_DRAFT]
    assert [text for kind, text in note if kind in ("rate", "basis")] == [
        words.RATE_PLAIN.format(plain="10"), words.BY_PASSES,
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/models/models/my-model", "/models/my-model.gguf"])
def test_a_local_model_is_called_by_its_name(path):
    studio = Studio(AppSettings(target=path, allow_model_switch="any"))
    studio.pairs = SwitchingStudio().pairs
    with gr.Blocks():
        menu = create_model_menu(studio)
    assert menu.pair.value == path
    assert menu.pair.choices == [("Big", "big"), (PurePath(path).name, path)]


def test_the_menu_of_policies_shows_those_of_the_method_and_replaces_any_other(handlers):
    handlers.studio.methods = lambda: [
        replace(METHODS[0], policies=("constant", "heuristic", "cost")),
        replace(METHODS[1], options=("policy",), policies=("constant", "cost")),
    ]
    place = 2 + OPTIONS.index("policy")
    chain = handlers.menu("draft_model", "heuristic")[place]
    assert [name for _, name in chain["choices"]] == ["constant", "heuristic", "cost"]
    assert "value" not in chain
    tree = handlers.menu("tree", "heuristic")[place]
    assert [name for _, name in tree["choices"]] == ["constant", "cost"]
    assert tree["value"] == "cost"
    raced = RaceHandlers(handlers.studio).offered("draft_model", "cost", "tree", "heuristic")
    assert [update.get("value") for update in raced] == [None, None, "cost", None]
