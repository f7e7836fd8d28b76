"""A run: its stream only grows, errors are sentences, stopped or abandoned runs are cancelled, visitors are separate."""

from itertools import pairwise

import gradio as gr
import pytest
from errors import reported
from ui.scripted import VALUES, ScriptedConversation, ScriptedStudio, lines

from specdemo.config.errors import UserError
from specdemo.trace.events import FinishReason, RunFinished
from specdemo.trace.replay import recorded_runs
from specdemo.ui.tabs.play import EXAMPLES, PlayHandlers, PlayState, create_play, read_examples


@pytest.fixture
def handlers():
    return PlayHandlers(ScriptedStudio())


def endless(handlers):
    """A visitor, and the values of a run that has begun and does not end by itself."""
    visitor = PlayState(ScriptedConversation(steps=10_000_000))
    handlers.begin(visitor)
    running = handlers.run(visitor, "a", "", VALUES)
    next(running)
    return visitor, running


def test_the_stream_only_grows_and_keeps_earlier_turns(handlers):
    visitor, first = handlers.begin(None)
    streams = [first, *handlers.run(visitor, "a", None, VALUES)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(streams))
    types = [line["type"] for line in lines(streams[-1])]
    assert types == ["open", "started", *["verified"] * 3, "finished"]
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
def test_ask_without_a_prompt_does_not_change_the_page(handlers, prompt):
    visitor, _ = handlers.ask(None, "a", continues=False)
    list(handlers.run(visitor, "a", None, VALUES))
    before = visitor.task, list(visitor.turns)
    with pytest.raises(UserError, match="prompt is empty"):
        handlers.ask(visitor, prompt, continues=False)
    assert (visitor.task, visitor.turns) == before


def test_clear_and_forget_drop_what_later_drafts_could_copy(handlers):
    visitor, _ = handlers.ask(None, "a", continues=False)
    list(handlers.run(visitor, "a", None, VALUES))
    assert handlers.new(visitor)[0].turns == []
    assert visitor.conversation.forgotten
    visitor.conversation.forgotten = False
    handlers.forget(visitor)
    assert visitor.conversation.forgotten
    handlers.forget(None)


def test_a_recorded_run_replaces_a_live_one_which_shows_nothing_more(handlers):
    visitor, running = endless(handlers)
    cancel = visitor.task.cancel
    name = recorded_runs()[-1].name
    (opening,) = lines(handlers.play(visitor, name))
    assert (opening["source"], opening["run"]) == ("recorded", name)
    assert opening["title"]
    assert cancel.is_set()
    assert list(running) == [gr.skip()]
    again = [handlers.play(None, name) for _ in range(2)]
    assert again[0] != again[1]  # the same run may be played again


def test_a_visitor_who_leaves_closes_the_conversation():
    visitor = PlayState(ScriptedConversation())
    visitor.close()
    assert visitor.conversation.closed


def test_the_token_that_ends_an_answer_is_no_part_of_the_turn(handlers):
    class Ending(ScriptedConversation):
        def run(self, prompt, settings, *, system="", cancel, every=0.0):
            *events, _ = super().run(prompt, settings, cancel=cancel)
            yield from [*events, RunFinished("speculative", FinishReason.STOP, 3, 0.3)]

    visitor = PlayState(Ending())
    handlers.begin(visitor)
    list(handlers.run(visitor, "a", "", VALUES))
    assert visitor.turns == [("a", " a0 a1")]


def test_a_cleared_conversation_does_not_come_back(handlers):
    visitor, running = endless(handlers)
    visitor, empty, prompt = handlers.new(visitor)
    assert [line["type"] for line in lines(empty)] == ["open"]
    assert prompt == ""
    assert list(running) == [gr.skip()]
    assert visitor.turns == []


def test_the_page_opens_with_the_first_recorded_run():
    with gr.Blocks() as page:
        create_play(ScriptedStudio())
    view = next(block for block in page.blocks.values() if block.elem_id == "sd-view")
    assert [line["run"] for line in lines(view.value)] == [recorded_runs()[0].name]


@pytest.mark.parametrize("replay", [False, True])
def test_create_play_offers_without_a_model_only_examples_that_are_recorded(replay):
    studio = ScriptedStudio()
    studio.replay_only = reported("Off.") if replay else None
    with gr.Blocks() as page:
        create_play(studio)
    labels = {block.value for block in page.blocks.values() if isinstance(block, gr.Button)}
    recorded = {run.prompt for run in recorded_runs()}
    offered = [one for one in read_examples(EXAMPLES) if not replay or one["prompt"] in recorded]
    titles = {one["title"] for one in read_examples(EXAMPLES)}
    assert titles & labels == {one["title"] for one in offered}
    assert len(read_examples(EXAMPLES)) == 5
    assert offered
