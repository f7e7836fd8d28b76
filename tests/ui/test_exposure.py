"""Everything that a visitor can send, change and read: the real page over HTTP, private and public."""

import asyncio
import gc
import json
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio.context import LocalContext
from ui.scripted import ScriptedConversation, lines
from ui.served import API, Visitor, served

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS, load, strings
from specdemo.models.outlook import Offer
from specdemo.session.studio import Studio
from specdemo.ui import words
from specdemo.ui.checks import MOST_CHARACTERS
from specdemo.ui.gate import Gate
from specdemo.ui.model import ModelHandlers, create_model_menu
from specdemo.ui.visits import MOST_VISITS, Visits

limits = strings("limits")

JSON = {"content-type": "application/json"}
EVIL = "http://evil.example"
FIRST, OTHER = "smollm2-135m-instruct", "smollm2-360m-instruct"
TOO_LONG = UserError("prompt.too_long", length="70 tokens", reader="this page", room="60 tokens")
TOO_OFTEN = UserError("run.too_often", most=2, seconds=7)
NOT_POSSIBLE = re.compile(load("errors")["page.wrong_value"]["message"].split("{")[0])


@pytest.fixture(scope="module")
def local():
    """The page as it is on one's own machine."""
    with served() as client:
        yield client


@pytest.fixture(scope="module")
def public():
    """The page as it is under a name of its own, with limits small enough to meet them."""
    small = {"runs_a_minute": 2, "prompt_tokens": 60, "answer_tokens": 16}
    with served(allowed_hosts="class.example", upload_mb=1, **small) as client:
        yield client


@pytest.fixture
def log(capfd, caplog):
    """Check the server's log: no traceback for any request."""
    yield
    told = capfd.readouterr()
    assert "Traceback" not in told.out + told.err + caplog.text


pytestmark = pytest.mark.usefixtures("log")


# Which model is loaded.


def test_a_public_page_has_no_switch_of_models(public):
    visitor = Visitor(public)
    assert not {"load", "download"} & set(visitor.calls)
    labels = {part["props"].get("label") for part in visitor.kinds.values()}
    assert not labels & {words.PAIR, words.DRAFTER}


PATHS = ["/etc/shadow", "/no/such/path", "~", "~root/x", "..", "a.gguf"]


@pytest.mark.parametrize("target", [*PATHS, "owner/name", None, "", "nope"])
def test_every_target_outside_the_catalogue_gets_one_answer_without_a_look_up(local, target):
    before = local.studio.loaded
    wrong, values = Visitor(local).send("load", [target, "bf16", "none"])
    told = wrong or json.loads(values[0])["text"]
    assert told in (str(UserError("page.no_switch")), wrong_choice(words.PAIR))
    assert "shadow" not in told
    assert local.studio.loaded is before


@pytest.mark.parametrize("call", ["load", "download", "look", "another"])
@pytest.mark.parametrize("drafter", ["/etc", "~", "owner/name", "z-lab/Qwen3-8B-DFlash-b16"])
def test_an_unlisted_drafter_is_not_looked_up(local, monkeypatch, call, drafter):
    """The last is in the catalogue, for another target: none of the calls loads it or queries the hub."""
    before, looked = local.studio.loaded, []
    monkeypatch.setattr(local.studio, "drafter", lambda *name, **_: looked.append(name))
    wrong, values = Visitor(local).send(call, [FIRST, "bf16", drafter])
    if call in ("load", "download"):
        told = wrong or json.loads(values[0])["text"]
        assert told in (str(UserError("page.no_switch")), wrong_choice(words.DRAFTER))
    assert not looked
    assert local.studio.loaded is before


# A visitor may name any model only if the operator allows it and no other machine reaches the page.
SWITCHES = [
    (AppSettings(), False),
    (AppSettings(allow_model_switch="any"), True),
    (AppSettings(allow_model_switch="any", host="0.0.0.0"), False),  # noqa: S104
    (AppSettings(allow_model_switch="any", allowed_hosts="class.example"), False),
]


def test_the_free_field_for_a_drafter_is_for_the_machine_of_its_operator():
    for settings, free in SWITCHES:
        with gr.Blocks():
            menu = create_model_menu(Studio(settings))
        assert menu.drafter.allow_custom_value is free
        assert (menu.drafter.info == words.DRAFTER_NAMED) is free
        listed = [name for _, name in menu.drafter.choices]
        assert listed[0] == "none"
        assert "z-lab/Qwen3-4B-DFlash-b16" in listed


def test_a_visitor_of_a_shared_link_cannot_look_at_the_disk():
    """The operator may name a folder; under another host name the same page does not read it."""
    studio, looked = Studio(AppSettings(allow_model_switch="any")), []
    studio.drafter = lambda name, **_: looked.append(name) or Offer(name)
    handlers = ModelHandlers(studio)
    shared = SimpleNamespace(headers={"host": "abc.gradio.live"})
    token = LocalContext.request.set(shared)
    try:
        for call in (handlers.look, handlers.another):
            call(FIRST, "bf16", "/etc")
        ((status, *_),) = handlers.load(FIRST, "bf16", "/etc")
        assert json.loads(status)["text"] == str(UserError("page.no_switch"))
    finally:
        LocalContext.request.reset(token)
    assert not looked
    handlers.look(FIRST, "bf16", "/etc")
    assert looked == ["/etc"]


def wrong_choice(name):
    return str(UserError("page.wrong_value", name=name, range=Phrase("page.choice")))


def test_another_visitor_is_asked_before_the_new_model_answers_and_the_old_one_is_free(local):
    mine, other = Visitor(local), Visitor(local)
    for visitor in (mine, other):
        visitor.send("arrive", [])
        visitor.send("status", [])
        wrong, lines = visitor.ask()
        assert (wrong, model_of(lines)) == ("", FIRST)
    old = weakref.ref(local.studio.pair.target.model)
    wrong, values = mine.send("download", [OTHER, "bf16", "none"])  # as who agrees to it
    assert (wrong, json.loads(values[0])["state"]) == ("", "ready")
    gc.collect()
    assert old() is None
    assert model_of(mine.ask()[1]) == OTHER  # the visitor who loaded it sees it
    lines = other.ask()[1]
    assert model_of(lines) is None
    assert UserError("run.model_changed", model=OTHER, precision="bf16").message in messages(lines)
    assert model_of(other.ask()[1]) == OTHER
    mine.send("download", [FIRST, "nf4", "none"])


def test_two_visitors_at_once_never_receive_the_text_of_each_other(local, monkeypatch):
    """Two questions each: the second answer comes with the visitor's earlier question and answer."""
    together = Barrier(2)

    class Meeting(ScriptedConversation):
        def run(self, prompt, settings, **options):
            for event in super().run(prompt, settings, **options):
                together.wait(30)  # both runs go on at the same time, event by event
                yield event

    monkeypatch.setattr(local.studio, "open", lambda *_, **__: Meeting())
    questions = ("alpha", "omega")
    visitors = {question: Visitor(local) for question in questions}
    for number in (1, 2):
        with ThreadPoolExecutor(2) as pool:
            ask = pool.map(lambda asked: visitors[asked].ask(asked, continues=True), questions)
            streams = list(ask)
        for (wrong, stream), own, foreign in zip(streams, questions, questions[::-1], strict=True):
            assert wrong == ""
            assert [line["type"] for line in lines(stream)].count("earlier") == number - 1
            assert f" {own}2" in stream  # the last token of the scripted answer
            assert foreign not in stream


def model_of(lines):
    """Name of the model that answered; None where nothing ran."""
    headers = [line for line in map(json.loads, lines.splitlines()) if line["type"] == "started"]
    return headers[-1]["target"]["name"] if headers else None


def messages(lines):
    """The sentences of the notices of a stream."""
    found = [line for line in map(json.loads, lines.splitlines()) if line["type"] == "notice"]
    return " ".join(f"{line['message']} {line['unharmed']} {line['advice']}" for line in found)


# Possible values.

VALUES = [None, True, {}, [], [1], "x", "", -1, 2.5, 10**400, "\ud800", {"path": "/etc/passwd"}]


def test_every_call_answers_every_value_in_a_sentence(local):
    visitor = Visitor(local)
    for name, call in visitor.calls.items():
        if not call["backend_fn"] or call["queue"]:
            continue
        for value in (None, {}) if call["inputs"] else (None,):
            wrong, values = visitor.send(name, [value] * len(call["inputs"]))
            assert wrong or values is not None, (name, value)
            assert len(wrong) < 300


@pytest.mark.parametrize("name", ["show_answer", "run", "run_1", "run_2", "ask", "lambda_4"])
def test_calls_that_run_answer_wrong_values_in_a_sentence(local, name):
    visitor = Visitor(local)
    known = visitor.values(name)
    if name in ("show_answer", "run", "run_1", "run_2", "ask"):
        assert visitor.send(name, known)[0] == str(UserError("page.not_begun"))
    for value in VALUES:
        assert visitor.send(name, [value] * (len(known) + 1))[0]
        wrong = visitor.send(name, [None, *[value] * (len(known) - 1)])[0]
        assert wrong or len(known) == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sd-prompt": {"a": 1}}, NOT_POSSIBLE),
        ({"sd-prompt": ["a"]}, NOT_POSSIBLE),
        ({"sd-prompt": "\ud83d"}, NOT_POSSIBLE),
        ({"sd-prompt": "x" * (MOST_CHARACTERS + 1)}, NOT_POSSIBLE),
        ({"sd-method": "no such"}, re.compile(re.escape(wrong_choice(words.SETTINGS["method"])))),
        ({"sd-prompt": "a\x00b"}, re.compile("control character U[+]0000")),
        ({"sd-prompt": "a\x1b[31m"}, re.compile("control character U[+]001B")),
        ({"System prompt (optional)": "\x07"}, re.compile("system prompt contains")),
        ({"sd-seed": None}, re.compile("seed is empty")),
        *(
            ({name: float("nan")}, NOT_POSSIBLE)
            for name in ("sd-temperature", "sd-seed", "sd-lookahead", "sd-top_p")
        ),
        *(({"sd-temperature": float(text)}, NOT_POSSIBLE) for text in ("inf", "-inf", "1e400")),
        ({"sd-temperature": 1e-300}, re.compile("must be")),
        ({"sd-max_new_tokens": 10**6}, re.compile("maximum number of tokens is 1000000")),
        ({"sd-prompt": "x" * 60_000}, re.compile("reads at most")),
    ],
)
def test_an_impossible_question_is_answered_with_a_sentence(local, changes, told):
    wrong, lines = Visitor(local).ask(**{"sd-prompt": "abc", **changes})
    assert told.search(wrong or messages(lines))
    assert lines is None or model_of(lines) is None


def test_too_many_and_too_few_values_are_refused(local):
    visitor = Visitor(local)
    for data in ([], [None] * 40):
        assert visitor.send("show_answer", data)[0].startswith("The page expects")


PART = {"data": 1, "session_hash": "a"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("run/no-such", {"data": []}),
        ("run/x", {"data": [], "fn_index": 10**6}),
        ("queue/join", {"data": [], "fn_index": 10**6, "session_hash": "a"}),
        ("call/v2/x", {"data": []}),
        ("component_server", {**PART, "component_id": 10**6, "fn_name": "x"}),
        ("component_server", {**PART, "component_id": 1, "fn_name": "__init__"}),
        ("component_server", {**PART, "data": [], "component_id": "1", "fn_name": []}),
        ("run/x", {"data": {}, "fn_index": "x"}),
        ("cancel", {"session_hash": "a", "fn_index": 1, "event_id": "b"}),
    ],
)
def test_an_unknown_call_gets_a_sentence(local, path, body):
    answer = local.post(f"{API}/{path}", json=body)
    assert answer.status_code < 500
    assert answer.json()


def test_a_broken_body_and_an_unknown_session_leave_no_traceback(local):
    for content in ("{", "[]", '{"data": [NaN], "fn_index": NaN}', "\xff"):
        assert 400 <= local.post(f"{API}/run/x", content=content).status_code < 500
    assert "unexpected_error" in local.get(f"{API}/queue/data?session_hash=nobody").text


def test_functions_that_scripts_call_take_only_texts(local):
    part = next(one for one in local.config["components"] if one["props"].get("server_fns"))
    name = part["props"]["server_fns"][0]
    for value in ([], {}, 1, "\ud800", "x" * (MOST_CHARACTERS + 1)):
        body = {"data": value, "component_id": part["id"], "session_hash": "a", "fn_name": name}
        answer = local.post(f"{API}/component_server", content=json.dumps(body))
        assert answer.status_code == 400
        assert NOT_POSSIBLE.search(answer.json()["error"])


def test_every_kind_of_input_of_the_page_has_a_check(local):
    """Each kind of component that is an input has a rule of its own; a new kind would be taken for a text."""
    kinds = {part["type"] for call in Visitor(local).calls for part in Visitor(local).inputs(call)}
    known = {"state", "checkbox", "number", "slider", "radio", "dropdown", "textbox", "html", "api"}
    assert kinds <= known


# Responses by client.


def test_no_call_of_the_page_itself_is_offered_to_other_programs(local):
    calls = local.config["dependencies"]
    public = [call["api_name"] for call in calls if call["api_visibility"] != "private"]
    assert public == ["answer"]  # tests/ui/test_endpoint.py
    offered = local.get(f"{API}/info").json()
    assert list(offered["named_endpoints"]) == ["/answer"]
    assert offered["unnamed_endpoints"] == {}


def test_a_run_cannot_bypass_the_queue(local):
    visitor = Visitor(local)
    body = visitor.body("show_answer", visitor.values("show_answer"))
    answer = local.post(f"{API}/run/show_answer", content=body, headers=JSON)
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("127.0.0.1:7860", True),
        ("localhost", True),
        ("[::1]:7860", True),
        ("192.168.1.20", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("class.example", False),
        ("a@127.0.0.1", True),  # the part before the sign is no name
        ("", False),
    ],
)
def test_a_page_answers_under_its_own_names(local, host, answered):
    answer = local.get("/config", headers={"host": host})
    assert answer.status_code == (200 if answered else 421)
    assert answered or answer.json()["error"] == limits.UNKNOWN_HOST


def test_the_operator_and_a_space_name_further_hosts(monkeypatch):
    monkeypatch.setenv("SPACE_HOST", "me-demo.hf.space,demo.example")
    gate = Gate(None, AppSettings(allowed_hosts="class.example, *.school.example"))
    known = ("class.example", "a.school.example", "me-demo.hf.space", "demo.example", "10.0.0.1")
    assert all(map(gate._known, known))
    assert not gate._known("school.example.evil")
    assert Gate(None, AppSettings(allowed_hosts="*"))._known("any.example")


def test_another_page_is_neither_answered_nor_named(local, public):
    own = str(local.base_url).rstrip("/")
    body = Visitor(local).body("arrive", [])
    for origin in (EVIL, "null", "http://127.0.0.1:1", "https://evil.example", "http://["):
        asked = {"origin": origin, "access-control-request-method": "POST"}
        for answer in (
            local.post(f"{API}/run/arrive", content=body, headers={"origin": origin}),
            local.options(f"{API}/run/arrive", headers=asked),
        ):
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
    answer = local.post(f"{API}/run/arrive", content=body, headers={"origin": own, **JSON})
    assert answer.status_code == 200
    named = {"host": "class.example", "origin": "https://class.example"}
    assert public.get("/config", headers=named).status_code == 200
    assert public.get("/config", headers={**named, "origin": EVIL}).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        *("/monitoring", "/monitoring/summary", f"{API}/file=/etc/hostname", f"{API}/file/etc/x"),
        *(f"{API}/proxy=https://a.hf.space", f"{API}/deep_link", f"{API}/upload_progress"),
        *(f"{API}/custom_component/a/client/b/c", f"{API}/token", f"{API}/run-history/buckets"),
    ],
)
def test_paths_that_the_page_does_not_use_are_closed(local, capfd, path):
    assert local.get(path).status_code == 404
    assert "monitoring/" not in capfd.readouterr().out


def test_uploads_are_closed_and_a_body_that_is_too_large_is_not_read(local, public):
    assert local.post(f"{API}/upload", files={"files": b"x"}).status_code == 404

    def endless():
        for _ in range(40):
            yield b"x" * 100_000

    for content in (b"x" * 1_100_000, endless()):
        answer = public.post(f"{API}/run/x", content=content)
        assert answer.status_code == 413
        assert answer.json()["error"] == limits.TOO_MUCH.format(most=1)


def test_a_body_that_breaks_off_does_not_reach_the_page():
    parts = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    seen = []

    async def receive():
        return parts.pop(0)

    async def page(*_):
        seen.append("page")

    async def send(message):
        seen.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(Gate(page, AppSettings())(scope, receive, send))
    assert (parts, seen) == ([], [])


def test_neither_the_page_nor_its_headers_name_a_folder_of_the_server(local):
    page = local.get("/")
    folders = {str(ASSETS), str(ASSETS.parent), str(ASSETS.home())}
    told = (page.text, str(page.headers), local.get("/config").text, local.get("/theme.css").text)
    assert not [folder for folder in folders for text in told if f"{folder}/" in text]


def test_a_browser_keeps_a_file_until_it_changes(local):
    link = local.get("/").headers["link"].split("<")[1].split(">")[0]
    answer = local.get(f"/{link}")
    assert answer.status_code == 200
    assert "/javascript" in answer.headers["content-type"]
    assert "immutable" in answer.headers["cache-control"]
    again = local.get(f"/{link}", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    _, version, name = link.split("/", 2)
    before = local.get(f"/files/earlier/{name}")
    assert (before.text, before.headers["cache-control"]) == (answer.text, "no-cache")
    for outside in ("../../settings.py", "%2e%2e/%2e%2e/settings.py", "drafts"):
        assert local.get(f"/files/{version}/view/{outside}").status_code in (307, 404)


# Limits.


def test_the_lengths_of_prompts_and_answers_are_limited(public):
    lines = Visitor(public).ask(**{"sd-max_new_tokens": 17})[1]
    assert UserError("page.long_answer", most=16, given=17).message in messages(lines)
    lines = Visitor(public).ask("a" * 70)[1]
    sentence = TOO_LONG.message
    assert sentence in messages(lines)
    assert TOO_LONG.advice in messages(lines)
    parts = [part["props"] for part in public.config["components"]]
    slider = next(part for part in parts if part.get("elem_id") == "sd-max_new_tokens")
    assert (slider["maximum"], slider["value"]) == (16, 16)


def test_the_runs_of_a_visitor_per_minute_are_limited(public):
    visitor = Visitor(public)
    for _ in range(2):
        assert model_of(visitor.ask()[1]) == FIRST
    told = messages(visitor.ask()[1])
    assert TOO_OFTEN.message in told
    assert TOO_OFTEN.advice.split("7")[0] in told
    assert model_of(Visitor(public).ask()[1]) == FIRST


def test_the_limits_hold_for_the_public_call_and_count_an_address_whatever_session_it_names(public):
    assert "complete" in called(public, prompt="abc", session_hash="one")
    long = called(public, prompt="a" * 70, session_hash="two")
    assert TOO_LONG.message in long
    assert TOO_OFTEN.message in called(public, prompt="abc")
    assert UserError("page.long_answer", most=16, given=17).message in called(
        public, prompt="abc", settings={"max_new_tokens": 17}
    )


def called(client, **values):
    """The stream of events that answers the public call."""
    data = [values["prompt"], "nothing", values.get("settings"), "", False]
    body = {"data": data, "session_hash": values.get("session_hash")}
    number = client.post(f"{API}/call/answer", json=body).json()["event_id"]
    return client.get(f"{API}/call/answer/{number}").text


def test_each_task_runs_once(local):
    visitor = Visitor(local)
    assert model_of(visitor.ask()[1]) == FIRST
    again = visitor.send("show_answer", visitor.values("show_answer", **{"sd-prompt": "abc"}))
    assert again == (str(UserError("page.not_begun")), None)


def test_the_oldest_visits_are_forgotten():
    visits = Visits(1)
    first = visits.of("first")
    for number in range(MOST_VISITS):
        visits.of(str(number))
    assert visits.of("first") is not first
