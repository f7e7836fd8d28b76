"""Handlers: the stream only grows, errors are sentences, a run that is stopped or left is cancelled, visitors are apart."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import gradio as gr
import pytest
from gradio.queueing import Queue

from specdemo.drafters import methods as drafters
from specdemo.errors import UserError
from specdemo.export.table import SCRIPTS
from specdemo.models.progress import Progress
from specdemo.scenarios.batch import State
from specdemo.session.menu import MethodInfo
from specdemo.settings import POLICIES, AppSettings, RunSettings
from specdemo.trace.events import (
    FinishReason,
    ModelInfo,
    Node,
    RunFinished,
    RunStarted,
    Status,
    Verified,
)
from specdemo.training.card import TITLES
from specdemo.ui import words
from specdemo.ui.handlers import Handlers, Visitor, read_controls
from specdemo.ui.panels import INPUTS, OPTIONS, create_ask, create_controls
from specdemo.ui.runs import RecordedRun, opening_line, recorded_runs
from specdemo.ui.teach import QUIET, follow, others_reach, qr, read_link
from specdemo.ui.view import Preload

CONTROLS = ("auto", "cost", 8, 0.4, 12, True, True, True, 64, 0.0, 0, 1.0, 1.0, 0)
METHODS = [
    MethodInfo("draft_model", "Draft model", "Guesses.", ("policy", "lookahead"), True, "", ("D",)),
    MethodInfo("tree", "Tree", "Branches.", ("nodes",), False, "There is no draft.", ("D",)),
    MethodInfo("look_back", "Look back", "Wrong on purpose.", (), True, lossy=True),
]


class ScriptedConversation:
    """A conversation whose events are given; it tells whether it was closed."""

    def __init__(self, error=None, steps=3):
        self.error = error
        self.steps = steps
        self.closed = False

    def run(self, prompt, settings, *, system="", cancel, every=0.0):
        if self.error:
            raise self.error
        yield RunStarted("speculative", settings.method, prompt, {}, ModelInfo("tiny"))
        for step in range(self.steps):
            if cancel.is_set():
                yield RunFinished("speculative", FinishReason.CANCELLED, step, 0.1 * step)
                return
            own = Node(step, f" {prompt}{step}", status=Status.PLAIN)
            yield Verified("speculative", step, (), (), own, 0, 0.1, 0, 0.1 * (step + 1))
        yield RunFinished("speculative", FinishReason.LENGTH, self.steps, 0.1 * self.steps)

    def reset(self):
        pass

    def forget(self):
        self.forgotten = True

    def close(self):
        self.closed = True


class ScriptedStudio:
    ready = True
    error = None
    replay_only = None
    audited = None
    cards: dict[str, dict[str, object]] = {}
    loading = None
    pair = SimpleNamespace(target=SimpleNamespace(info=ModelInfo("tiny", precision="fp32")))

    def methods(self):
        return METHODS

    def last_audit(self):
        return self.audited

    def card(self, method):
        return self.cards.get(method)

    def progress(self):
        return self.loading

    def open(self):
        return ScriptedConversation()


@pytest.fixture
def handlers():
    return Handlers(ScriptedStudio())


def lines(stream):
    return [json.loads(line) for line in stream.splitlines()]


def test_the_stream_only_grows_and_keeps_earlier_turns(handlers):
    visitor, first = handlers.begin(None)
    streams = [first, *handlers.run(visitor, "a", None, *CONTROLS)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(streams))
    assert [line["type"] for line in lines(streams[-1])] == [
        "open",
        "started",
        "verified",
        "verified",
        "verified",
        "finished",
    ]
    visitor, second = handlers.begin(visitor)
    assert lines(second)[1] == {"type": "earlier", "prompt": "a", "answer": " a0 a1 a2"}
    assert second.splitlines()[0] != first.splitlines()[0]
    assert handlers.new(visitor)[0].turns == []


@pytest.mark.parametrize(
    "error", [UserError("Happened.", unharmed="Unharmed.", advice="Do."), RuntimeError("boom")]
)
def test_an_error_is_a_sentence_and_the_next_run_works(handlers, error):
    visitor = Visitor(ScriptedConversation(error))
    handlers.begin(visitor)
    notice = lines(list(handlers.run(visitor, "a", "", *CONTROLS))[-1])[-1]
    assert notice["type"] == "notice"
    assert notice["message"]
    assert notice["advice"]
    assert "Traceback" not in json.dumps(notice)
    visitor.conversation = ScriptedConversation()
    handlers.begin(visitor)
    assert lines(list(handlers.run(visitor, "a", "", *CONTROLS))[-1])[-1]["type"] == "finished"


def test_stop_before_its_turn_and_a_closed_browser_cancel(handlers):
    visitor, _ = handlers.begin(None)
    handlers.stop(visitor)
    assert [
        line["type"] for line in lines(list(handlers.run(visitor, "a", "", *CONTROLS))[-1])
    ] == ["open"]
    visitor = Visitor(ScriptedConversation(steps=10_000_000))
    handlers.begin(visitor)
    running = handlers.run(visitor, "a", "", *CONTROLS)
    next(running)
    cancel: threading.Event = visitor.cancel
    running.close()  # what Gradio does when the tab is closed
    assert cancel.is_set()
    visitor.close()
    assert visitor.conversation.closed


def test_a_run_gives_way_to_a_recorded_one_and_shows_nothing_more(handlers):
    visitor = Visitor(ScriptedConversation(steps=10_000_000))
    handlers.begin(visitor)
    running = handlers.run(visitor, "a", "", *CONTROLS)
    next(running)
    cancel = visitor.cancel
    name = recorded_runs()[-1].name
    (opening,) = lines(handlers.play(visitor, name))
    assert (opening["source"], opening["run"]) == ("recorded", name)
    assert opening["title"]
    assert cancel.is_set()
    assert list(running) == []
    assert handlers.play(None, name) != handlers.play(
        None, name
    )  # the same run may be played again


def test_the_menu_lists_the_runs_that_are_there(tmp_path):
    entries = [{"name": name, "title": name.upper()} for name in ("b", "a", "gone")]
    (tmp_path / "index.json").write_text(json.dumps({"runs": entries}), encoding="utf-8")
    for name in ("a", "b", "unlisted"):
        (tmp_path / f"{name}.jsonl").touch()
    assert recorded_runs(tmp_path) == [RecordedRun("b", "B"), RecordedRun("a", "A")]
    assert lines(opening_line())[0]["run"] == recorded_runs()[0].name


def fields():
    with gr.Blocks():
        studio = ScriptedStudio()
        studio.pairs, studio.settings = list, AppSettings()
        ask, controls = create_ask(), create_controls(studio)
    return {"prompt": ask.prompt, **dict(zip(INPUTS, controls.inputs, strict=True))}


def test_a_link_sets_what_is_possible_and_says_what_is_not():
    link = {
        "prompt": "<b>A & B</b> = ü",
        "method": "tree",
        "lookahead": "7",
        "threshold": "0.25",
        "memory": "0",
        "seed": "12",
        "tab": "race",
        "recorded": recorded_runs()[0].name,
        "__theme": "dark",
    }
    tabs = ("play", "race")
    values, problems = read_link(urlencode(link), fields(), tabs)
    assert problems == []
    assert values["prompt"] == link["prompt"]
    assert (values["lookahead"], values["threshold"]) == (7, 0.25)
    assert (values["memory"], values["seed"], values["tab"]) == (False, 12, "race")
    assert "__theme" not in values

    wrong = {
        "method": "gone",
        "policy": "",
        "lookahead": "33",
        "nodes": "2.5",
        "threshold": "nan",
        "temperature": "inf",
        "memory": "yes",
        "seed": "-1",
        "top_k": "many",
        "tab": "nowhere",
        "recorded": "../index",
    }
    values, problems = read_link(urlencode(wrong), fields(), tabs)
    assert values == {}
    assert len(problems) == len(wrong)
    for (name, value), sentence in zip(wrong.items(), problems, strict=True):
        assert f"{name}={value}" in sentence

    some = fields()
    sentences, tab, *updates = follow("lookahead=3&nodes=99&tab=race", some, tabs)
    assert len(json.loads(sentences)) == 1
    assert tab.selected == "race"
    set_to = [update.get("value") for update in updates]
    assert set_to == [3 if name == "lookahead" else None for name in some]


def test_a_qr_code_is_the_address_in_dark_squares():
    code = qr("http://127.0.0.1:7860/?prompt=hello")
    squares = re.findall(r"M(\d+) (\d+)h1v1h-1z", code["path"])
    assert "".join(f"M{x} {y}h1v1h-1z" for x, y in squares) == code["path"]
    places = [int(place) for square in squares for place in square]
    assert (min(places), max(places)) == (QUIET, code["size"] - QUIET - 1)
    assert code != qr("http://127.0.0.1:7860/?prompt=hallo")
    assert qr("x" * 5000) == {"size": 0, "path": ""}


def test_others_are_told_the_address_that_they_can_open():
    told = others_reach("http://127.0.0.1:7860", "127.0.0.1", "10.0.0.5")
    assert "--host 0.0.0.0" in told["sentence"]
    assert "http://10.0.0.5:7860" in told["sentence"]
    assert told["address"] == ""
    told = others_reach("http://localhost:7860", "0.0.0.0", "10.0.0.5")
    assert told["address"] == "http://10.0.0.5:7860"
    nothing = {"sentence": "", "address": ""}
    assert others_reach("https://example.org", "0.0.0.0", "10.0.0.5") == nothing
    assert others_reach("http://127.0.0.1:7860", "127.0.0.1", "") == nothing


def test_a_run_asked_for_while_the_model_loads_begins_by_itself(handlers, monkeypatch):
    monkeypatch.setattr("specdemo.ui.handlers.LOADING_SECONDS", 0.01)
    handlers.studio.ready = False
    visitor, first = handlers.begin(None)
    assert "loading" in lines(first)[0]["waiting"]
    running = handlers.run(visitor, "a", "", *CONTROLS)
    assert next(running) == next(running) == first
    handlers.studio.ready = True
    assert lines(list(running)[-1])[-1]["type"] == "finished"
    handlers.studio.ready = False
    visitor, _ = handlers.begin(visitor)
    handlers.stop(visitor)
    assert "finished" not in list(handlers.run(visitor, "a", "", *CONTROLS))[-1]


def test_two_visitors_never_see_each_other(handlers):
    one, two = handlers.begin(None)[0], handlers.begin(None)[0]
    runs = handlers.run(one, "alpha", "", *CONTROLS), handlers.run(two, "omega", "", *CONTROLS)
    for first, second in zip(*runs, strict=True):
        assert "omega" not in first
        assert "alpha" not in second
    assert one.turns != two.turns


def batch_of(handlers, text, visitor=None):
    """All values of the batch view, from pressing Run all on."""
    visitor, first = handlers.begin_batch(visitor, text)
    return [
        json.loads(value) for value in (first, *handlers.run_batch(visitor, text, "", *CONTROLS))
    ]


def test_a_batch_shows_each_prompt_and_what_all_came_to(handlers):
    first, *_, last = batch_of(handlers, "a\n\n  b \n")
    assert [row["state"] for row in first["rows"]] == ["waiting", "waiting"]
    assert first["waiting"] == words.BATCH_TURN
    assert [(row["prompt"], row["text"]) for row in last["rows"]] == [
        ("a", " a0 a1 a2"),
        ("b", " b0 b1 b2"),
    ]
    assert [row["rate"] for row in last["rows"]] == [pytest.approx(10), pytest.approx(10)]
    assert (last["total"]["prompts"], last["total"]["tokens"]) == (2, 6)
    assert last["total"]["rate"] > 0
    assert last["waiting"] == last["error"] == ""


def test_a_batch_keeps_a_prompt_that_fails_apart(handlers):
    handlers.studio.open = lambda: ScriptedConversation(UserError("Happened.", advice="Do."))
    last = batch_of(handlers, "a\nb")[-1]
    assert [(row["state"], row["error"]) for row in last["rows"]] == [
        ("failed", "Happened. Do.")
    ] * 2
    assert last["error"] == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, words.BATCH_EMPTY), (" \n", words.BATCH_EMPTY), ("a\n" * 17, "17 prompts")],
)
def test_a_batch_of_none_or_too_many_is_a_sentence(handlers, text, message):
    last = batch_of(handlers, text)[-1]
    assert message in last["error"]
    assert last["rows"] == []


def test_a_batch_with_a_setting_out_of_range_is_a_sentence(handlers):
    visitor, _ = handlers.begin_batch(None, "a")
    controls = (*CONTROLS[:2], 99, *CONTROLS[3:])
    (value,) = handlers.run_batch(visitor, "a", "", *controls)
    assert "lookahead" in json.loads(value)["error"]


def test_a_batch_is_shown_at_most_ten_times_a_second(handlers, monkeypatch):
    ticks = iter(range(10**6))
    monkeypatch.setattr("specdemo.ui.handlers.time.monotonic", lambda: next(ticks) / 100)
    values = batch_of(handlers, "\n".join("abcd"))
    looks = 4 * 5  # each prompt: started, three steps, finished
    assert len(values) - 2 <= looks * 2 / 10 + 1  # a look and perhaps a value take a hundredth each
    assert len(values) > 2


def test_a_batch_that_is_stopped_or_left_is_cancelled(handlers):
    handlers.studio.open = lambda: ScriptedConversation(steps=10**9)
    visitor, _ = handlers.begin_batch(None, "a\nb")
    running = handlers.run_batch(visitor, "a\nb", "", *CONTROLS)
    next(running)
    handlers.stop_batch(visitor)
    last = json.loads(list(running)[-1])
    assert [row["state"] for row in last["rows"]] == ["stopped", "stopped"]
    assert last["total"]["tokens"] > 0
    assert not visitor.cancel.is_set()  # the run above is another one's affair

    visitor, _ = handlers.begin_batch(visitor, "a")
    running = handlers.run_batch(visitor, "a", "", *CONTROLS)
    next(running)
    running.close()  # what Gradio does when the tab is closed
    assert visitor.cancel_batch.is_set()
    assert not [thread for thread in threading.enumerate() if "specdemo-batch" in thread.name]

    visitor, _ = handlers.begin_batch(visitor, "a")
    visitor.close()
    assert visitor.cancel_batch.is_set()
    handlers.stop_batch(None)


def test_a_batch_asked_for_while_the_model_loads_begins_by_itself(handlers, monkeypatch):
    monkeypatch.setattr("specdemo.ui.handlers.LOADING_SECONDS", 0.01)
    handlers.studio.ready = False
    visitor, first = handlers.begin_batch(None, "a")
    assert json.loads(first)["waiting"] == words.WAIT_LOADING
    running = handlers.run_batch(visitor, "a", "", *CONTROLS)
    assert next(running) == next(running) == first
    handlers.studio.ready = True
    assert json.loads(list(running)[-1])["rows"][0]["state"] == "done"


def test_batches_of_two_visitors_never_meet(handlers):
    one, two = handlers.begin_batch(None, "alpha")[0], handlers.begin_batch(None, "omega")[0]
    first = "".join(handlers.run_batch(one, "alpha", "", *CONTROLS))
    second = "".join(handlers.run_batch(two, "omega", "", *CONTROLS))
    assert "omega" not in first
    assert "alpha" not in second
    assert one.cancel_batch is not two.cancel_batch


def test_the_token_that_ends_an_answer_is_no_part_of_the_turn(handlers):
    class Ending(ScriptedConversation):
        def run(self, prompt, settings, *, system="", cancel, every=0.0):
            *events, _ = super().run(prompt, settings, cancel=cancel)
            yield from [*events, RunFinished("speculative", FinishReason.STOP, 3, 0.3)]

    visitor = Visitor(Ending())
    handlers.begin(visitor)
    list(handlers.run(visitor, "a", "", *CONTROLS))
    assert visitor.turns == [("a", " a0 a1")]


def test_every_state_of_a_prompt_has_a_word():
    assert set(words.VIEW["batch"]["state"]) == set(State)


def test_controls_become_checked_settings():
    assert read_controls(CONTROLS) == RunSettings(max_new_tokens=64)
    changed = (*CONTROLS[:4], 30, False, *CONTROLS[6:])
    assert read_controls(changed) == RunSettings(max_new_tokens=64, nodes=30, memory=False)
    for place, value in ((2, 99), (4, 0), (4, None), (9, -1.0), (2, None), (9, float("nan"))):
        changed = (*CONTROLS[:place], value, *CONTROLS[place + 1 :])
        with pytest.raises(UserError):
            read_controls(changed)


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


def test_what_was_learned_can_be_forgotten(handlers):
    visitor = Visitor(ScriptedConversation())
    handlers.forget(visitor)
    assert visitor.conversation.forgotten
    handlers.forget(None)


def test_the_audit_arrives_as_it_was_written(handlers):
    assert json.loads(handlers.audit()) is None
    handlers.studio.audited = {"methods": [{"name": "tree"}]}
    assert json.loads(handlers.audit()) == handlers.studio.audited


def card_of(handlers, method):
    return json.loads(handlers.menu(method)[-1])


def test_the_card_follows_the_method(handlers):
    handlers.studio.cards = {"draft_model": {"kind": "draft", "seed": 3}}
    assert card_of(handlers, "draft_model") == {"card": {"kind": "draft", "seed": 3}}
    assert card_of(handlers, "look_back") == {
        "none": "Look back: nothing to train, it drafts without weights of its own."
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


def answered(path):
    """Headers of an empty answer to a request that went through the middleware."""
    sent = []

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})

    async def keep(message):
        sent.append(message)

    # In a thread of its own: where browser tests have run, this one has an event loop already.
    page = Preload(app)({"type": "http", "path": path}, None, keep)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, page).result()
    return dict(sent[0]["headers"])


def test_the_page_names_the_scripts_that_it_will_import():
    links = answered("/")[b"link"].decode().split(", ")
    named = [re.fullmatch(r"<gradio_api/file=(.*)>; rel=modulepreload", link)[1] for link in links]
    assert all(Path(path).is_file() for path in named)
    assert len(set(named)) == len(named)
    names = {Path(path).relative_to(SCRIPTS).as_posix() for path in named}
    assert {"play/view.js", "core/reducer.js", "parts/dom.js", "core/permalink.js"} < names
    assert answered("/gradio_api/queue/join") == {b"a": b"b"}


def test_gradio_still_sleeps_between_two_looks_at_its_queue():
    """Else `app.LOOK_SECONDS` sets something that nobody reads, and an idle page costs a tenth of a core again."""
    assert "asyncio.sleep(self.sleep_when_free)" in inspect.getsource(Queue.start_processing)
