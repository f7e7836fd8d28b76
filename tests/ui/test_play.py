"""A run: its stream only grows, errors are sentences, stopped or abandoned runs are cancelled, visitors are separate."""

from __future__ import annotations

import json
import threading
from itertools import pairwise

import gradio as gr
import pytest
from errors import reported
from ui.scripted import VALUES, ScriptedConversation, ScriptedStudio, lines

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import AppSettings
from specdemo.trace.events import FinishReason, RunFinished
from specdemo.ui.tabs.play import EXAMPLES, PlayHandlers, PlayState, create_play, read_examples
from specdemo.ui.view import recorded_runs


@pytest.fixture
def handlers():
    return PlayHandlers(ScriptedStudio())


def test_the_stream_only_grows_and_keeps_earlier_turns(handlers):
    visitor, first = handlers.begin(None)
    streams = [first, *handlers.run(visitor, "a", None, VALUES)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(streams))
    assert [line["type"] for line in lines(streams[-1])] == [
        "open",
        "started",
        "verified",
        "verified",
        "verified",
        "finished",
    ]
    visitor, second = handlers.ask(visitor, "b", continues=True)
    assert lines(second)[1] == {"type": "earlier", "prompt": "a", "answer": " a0 a1 a2"}
    assert second.splitlines()[0] != first.splitlines()[0]


def test_ask_starts_a_conversation_of_its_own_unless_it_continues(handlers):
    visitor, _ = handlers.ask(None, "a", continues=False)
    assert list(handlers.run(visitor, "a", None, VALUES))
    visitor, alone = handlers.ask(visitor, "b", continues=False)
    assert [line["type"] for line in lines(alone)] == ["open"]
    assert visitor.turns == []


@pytest.mark.parametrize("prompt", ["", " \n", None])
def test_ask_leaves_the_page_as_it_is_without_a_prompt(handlers, prompt):
    visitor, _ = handlers.ask(None, "a", continues=False)
    list(handlers.run(visitor, "a", None, VALUES))
    before = visitor.task, list(visitor.turns)
    with pytest.raises(UserError, match="prompt is empty"):
        handlers.ask(visitor, prompt, continues=False)
    assert (visitor.task, visitor.turns) == before


def test_clear_drops_the_turns_and_what_later_drafts_could_copy(handlers):
    visitor, _ = handlers.ask(None, "a", continues=False)
    list(handlers.run(visitor, "a", None, VALUES))
    assert handlers.new(visitor)[0].turns == []
    assert visitor.conversation.forgotten


@pytest.mark.parametrize(
    "error", [reported("Happened.", unaffected="Unharmed.", advice="Do."), RuntimeError("boom")]
)
def test_an_error_is_a_sentence_and_the_next_run_works(handlers, error):
    visitor = PlayState(ScriptedConversation(error))
    handlers.begin(visitor)
    notice = lines(list(handlers.run(visitor, "a", "", VALUES))[-1])[-1]
    assert notice["type"] == "notice"
    assert notice["message"]
    assert notice["advice"]
    assert "Traceback" not in json.dumps(notice)
    visitor.conversation = ScriptedConversation()
    handlers.begin(visitor)
    assert lines(list(handlers.run(visitor, "a", "", VALUES))[-1])[-1]["type"] == "finished"


def test_stop_before_its_turn_and_a_closed_browser_cancel(handlers):
    visitor, _ = handlers.begin(None)
    handlers.stop(visitor)
    assert [line["type"] for line in lines(list(handlers.run(visitor, "a", "", VALUES))[-1])] == [
        "open"
    ]
    visitor = PlayState(ScriptedConversation(steps=10_000_000))
    handlers.begin(visitor)
    running = handlers.run(visitor, "a", "", VALUES)
    next(running)
    cancel: threading.Event = visitor.task.cancel
    running.close()  # as Gradio does when the tab is closed
    assert cancel.is_set()
    visitor.close()
    assert visitor.conversation.closed


def test_a_run_gives_way_to_a_recorded_one_and_shows_nothing_more(handlers):
    visitor = PlayState(ScriptedConversation(steps=10_000_000))
    handlers.begin(visitor)
    running = handlers.run(visitor, "a", "", VALUES)
    next(running)
    cancel = visitor.task.cancel
    name = recorded_runs()[-1].name
    (opening,) = lines(handlers.play(visitor, name))
    assert (opening["source"], opening["run"]) == ("recorded", name)
    assert opening["title"]
    assert cancel.is_set()
    assert list(running) == []
    assert handlers.play(None, name) != handlers.play(
        None, name
    )  # the same run may be played again


def test_a_run_asked_for_while_the_model_loads_begins_by_itself(handlers, monkeypatch):
    monkeypatch.setattr("specdemo.ui.run_tab.LOADING_SECONDS", 0.01)
    handlers.studio.ready = False
    visitor, first = handlers.begin(None)
    assert "loading" in lines(first)[0]["waiting"]
    running = handlers.run(visitor, "a", "", VALUES)
    assert next(running) == next(running) == first
    handlers.studio.ready = True
    assert lines(list(running)[-1])[-1]["type"] == "finished"
    handlers.studio.ready = False
    visitor, _ = handlers.begin(visitor)
    handlers.stop(visitor)
    assert "finished" not in list(handlers.run(visitor, "a", "", VALUES))[-1]


def test_two_visitors_never_see_each_other(handlers):
    one, two = handlers.begin(None)[0], handlers.begin(None)[0]
    runs = handlers.run(one, "alpha", "", VALUES), handlers.run(two, "omega", "", VALUES)
    for first, second in zip(*runs, strict=True):
        assert "omega" not in first
        assert "alpha" not in second
    assert one.turns != two.turns


def test_the_token_that_ends_an_answer_is_no_part_of_the_turn(handlers):
    class Ending(ScriptedConversation):
        def run(self, prompt, settings, *, system="", cancel, every=0.0):
            *events, _ = super().run(prompt, settings, cancel=cancel)
            yield from [*events, RunFinished("speculative", FinishReason.STOP, 3, 0.3)]

    visitor = PlayState(Ending())
    handlers.begin(visitor)
    list(handlers.run(visitor, "a", "", VALUES))
    assert visitor.turns == [("a", " a0 a1")]


def test_a_setting_out_of_range_is_a_sentence_that_names_it(handlers):
    wrong = {"lookahead": 99, "nodes": None, "temperature": float("nan"), "top_k": 2.5}
    for name, value in wrong.items():
        visitor, _ = handlers.begin(None)
        *_, last = handlers.run(visitor, "a", "", {**VALUES, name: value})
        notice = lines(last)[-1]
        assert notice["type"] == "notice"
        assert str(Phrase(f"label.{name}")) in notice["message"]


def test_the_box_of_the_exact_mode_is_a_setting_of_the_run(handlers):
    class Asked(ScriptedConversation):
        def run(self, prompt, settings, **options):
            asked.append(settings.exact)
            return super().run(prompt, settings, **options)

    asked: list[bool] = []
    visitor = PlayState(Asked())
    for ticked in (False, True):
        handlers.begin(visitor)
        list(handlers.run(visitor, "a", "", {**VALUES, "exact": ticked}))
    assert asked == [False, True]


def test_what_was_cleared_does_not_come_back(handlers):
    visitor = PlayState(ScriptedConversation(steps=10_000_000))
    handlers.begin(visitor)
    running = handlers.run(visitor, "a", "", VALUES)
    next(running)
    visitor, empty, prompt = handlers.new(visitor)
    assert [line["type"] for line in lines(empty)] == ["open"]
    assert prompt == ""
    assert list(running) == []
    assert visitor.turns == []


def test_what_was_learned_can_be_forgotten(handlers):
    visitor = PlayState(ScriptedConversation())
    handlers.forget(visitor)
    assert visitor.conversation.forgotten
    handlers.forget(None)


def test_a_run_that_waits_for_its_turn_gives_way_too(handlers):
    visitor, _ = handlers.begin(None)
    handlers.play(visitor, recorded_runs()[0].name)
    assert list(handlers.run(visitor, "a", "", VALUES)) == [gr.skip()]
    assert visitor.turns == []
    handlers.begin(visitor)
    assert lines(list(handlers.run(visitor, "a", "", VALUES))[-1])[-1]["type"] == "finished"


@pytest.mark.parametrize("replay", [False, True])
def test_create_play_offers_without_a_model_only_examples_that_are_recorded(replay):
    studio = ScriptedStudio()
    studio.pairs, studio.settings = list, AppSettings()
    studio.replay_only = reported("Off.") if replay else None
    with gr.Blocks() as page:
        create_play(studio)
    labels = {block.value for block in page.blocks.values() if isinstance(block, gr.Button)}
    recorded = {run.prompt for run in recorded_runs()}
    offered = [one for one in read_examples(EXAMPLES) if not replay or one["prompt"] in recorded]
    assert {one["title"] for one in read_examples(EXAMPLES)} & labels == {
        one["title"] for one in offered
    }
    assert len(read_examples(EXAMPLES)) == 5
    assert offered
