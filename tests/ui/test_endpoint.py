"""The one public call: its values, its limits, its end, and the examples of docs/api.md."""

import asyncio
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from programs import run, until
from ui.scripted import HostileConversation
from ui.served import API, served

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import AppSettings, RunSettings, fields
from specdemo.config.strings import load, strings
from specdemo.models.doctor import installed
from specdemo.session.studio import Studio
from specdemo.trace.codec import decode
from specdemo.trace.events import Trace
from specdemo.trace.metrics import measure, output_text
from specdemo.ui import serving
from specdemo.ui.serving import launch_options

limits = strings("limits")
LIMIT = ("--max-time", "60")  # of curl, in seconds

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "api.md"
EXAMPLE = re.compile(r"<!-- needs: page -->\n```(\w+)\n(.*?)```", re.S)
PLACE = "http://127.0.0.1:7860"


@pytest.fixture(scope="module")
def page():
    with served(answer_tokens=64, mcp=installed("mcp")) as client:
        yield client


@pytest.fixture(scope="module")
def client(page):
    return Client(str(page.base_url), verbose=False)


def ask(client, prompt="abcabc", *, settings=None, **values):
    if not isinstance(settings, list):
        settings = {"max_new_tokens": 8, **(settings or {})}
    return client.predict(prompt=prompt, settings=settings, api_name="/answer", **values)


def test_an_answer_has_text_figures_and_trace_of_the_run(client, monkeypatch):
    monkeypatch.setattr("specdemo.trace.metrics.disturbed", lambda *_: False)
    text, metrics, trace = ask(client, method="ngram")
    run = Trace(tuple(decode(json.dumps(line)) for line in trace))
    assert run.lanes == ("plain", "speculative")
    assert text == output_text(run.lane("speculative"))
    figures = measure(run.lane("speculative"))
    assert metrics["new_tokens"] == figures.new_tokens == 8
    assert metrics["speedup"] == pytest.approx(
        figures.tokens_per_second / measure(run.lane("plain")).tokens_per_second
    )


@pytest.mark.parametrize("busy", [True, False])
def test_a_figure_without_meaning_has_a_note(client, monkeypatch, busy):
    monkeypatch.setattr("specdemo.trace.metrics.disturbed", lambda *_: busy)
    monkeypatch.setattr("specdemo.trace.metrics.repeats_itself", lambda _: not busy)
    metrics = ask(client, method="ngram")[1]
    assert (metrics["speedup"] is None, metrics["repeats_itself"]) == (busy, not busy)
    assert metrics["note"].startswith(limits.NOT_COMPARABLE if busy else limits.REPEATS_ITSELF)


def test_a_plain_answer_is_text_and_figures(client):
    text, metrics, trace = ask(client, method="nothing", trace=False)
    assert text == ask(client, method="ngram")[0]
    assert (metrics["drafted"], metrics["speedup"], trace) == (0, 1, [])
    assert ask(client, settings={"baseline": False})[1]["speedup"] is None


def test_the_description_gives_the_range_of_every_setting(page):
    call = page.get(f"{API}/info").json()["named_endpoints"]["/answer"]
    assert call["description"].startswith("Answer a prompt")
    given = {one["parameter_name"]: one for one in call["parameters"]}
    assert list(given) == ["prompt", "method", "settings", "system", "trace"]
    assert [name for name, one in given.items() if not one["parameter_has_default"]] == ["prompt"]
    known = given["settings"]["type"]["oneOf"][1]["properties"]
    assert {"method", *known} == {row.name for row in fields(RunSettings)}
    assert (known["lookahead"]["minimum"], known["lookahead"]["maximum"]) == (1, 32)
    assert [one["label"] for one in call["returns"]] == ["text", "metrics", "trace"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"prompt": " "}, "prompt is empty"),
        ({"prompt": ["a"]}, "must be a text"),
        ({"prompt": "a\x00"}, "control character"),
        ({"method": "no such"}, "must be one of auto,"),
        ({"method": {"a": 1}}, "must be one of auto,"),
        ({"method": "draft_model"}, "needs a draft model"),
        ({"settings": {"lookahead": 99}}, "lookahead is 99"),
        ({"settings": {"colour": 1}}, "no setting 'colour'"),
        ({"settings": [1]}, str(Phrase("page.group"))),
        ({"settings": {"max_new_tokens": 65}}, "at most 64 tokens"),
        ({"system": 7}, "must be a text"),
    ],
)
def test_an_impossible_request_is_explained(client, values, told):
    with pytest.raises(AppError, match=told) as raised:
        ask(client, **values)
    assert len(str(raised.value)) < 400


def test_a_run_ends_when_its_client_hangs_up(page, monkeypatch):
    endless = HostileConversation()
    monkeypatch.setattr(page.studio, "open", lambda *_: endless)
    began = page.post(f"{API}/call/v2/answer", json={"prompt": "forever"}).json()
    with page.stream("GET", f"{API}/call/v2/answer/{began['event_id']}") as answer:
        assert any("generating" in line for line in answer.iter_lines())
        assert not endless.closed
    until(lambda: endless.closed, "the run continues without its client", 10)
    monkeypatch.undo()
    assert page.post(f"{API}/call/v2/answer", json={"prompt": "a"}).status_code == 200


def test_the_examples_of_the_document_run(page, capsys):
    examples = EXAMPLE.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert [language for language, _ in examples] == ["python", "python", "sh"]
    said: dict[str, object] = {}
    address = str(page.base_url).rstrip("/")
    for language, example in examples:
        example = example.replace(PLACE, address)
        if language == "python":
            exec(compile(example, "docs/api.md", "exec"), said)  # noqa: S102 - the document is ours
        elif shutil.which("curl"):
            begin, follow = example.splitlines()
            number = json.loads(run(*shlex.split(begin), *LIMIT))["event_id"]
            events = run(*shlex.split(follow.replace("EVENT_ID", number)), *LIMIT)
            text, metrics, trace = json.loads(events.split("event: complete\ndata: ")[1])
            assert (metrics["new_tokens"], trace) == (24, [])
            assert len(text) > 8
    assert said["metrics"]["new_tokens"] == 24
    assert "events" in capsys.readouterr().out


@pytest.mark.skipif(not installed("mcp"), reason="needs mcp, see requirements-mcp.txt")
def test_an_agent_finds_the_call_as_its_one_tool(page):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    written = re.search(r"```json\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    place = json.loads(written[1])["mcpServers"]["specdemo"]["url"]
    address = place.replace(PLACE, str(page.base_url).rstrip("/"))
    settings = {"max_new_tokens": 8, "baseline": False}

    async def talk():
        async with (
            streamable_http_client(address) as (heard, said, _),
            ClientSession(heard, said) as agent,
        ):
            await agent.initialize()
            tools = (await agent.list_tools()).tools
            asked = {"prompt": "abcabc", "method": "ngram", "settings": settings, "trace": False}
            good = await agent.call_tool(tools[0].name, asked)
            bad = await agent.call_tool(tools[0].name, {"prompt": " "})
            return tools, good, bad

    (tool,), good, bad = asyncio.run(talk())
    assert tool.name == "answer"
    assert tool.description.startswith("Answer a prompt by speculative decoding")
    assert " ".join(tool.inputSchema["properties"]) == "prompt method settings system trace"
    assert (good.isError, bad.isError) == (False, True)
    (answer,) = (json.loads(part.text) for part in good.content)
    assert list(answer) == ["text", "metrics", "trace"]
    assert (answer["metrics"]["new_tokens"], answer["trace"]) == (8, [])
    assert "prompt is empty" in bad.content[0].text


def test_an_error_of_a_run_names_no_part_of_the_page():
    words = re.compile(r"\b(press|button|clear|page anew|menu|tab|example)\b", re.IGNORECASE)
    rooms = ("prompt", "run", "setting", "method", "drafter")
    errors = {name: entry for name, entry in load("errors").items() if name.split(".")[0] in rooms}
    assert {name for name, entry in errors.items() if words.search(json.dumps(entry))} == {
        "run.not_recorded"  # of the page's menu of recorded runs
    }


def test_the_server_for_agents_needs_its_package(monkeypatch):
    studio = Studio(AppSettings(mcp=True, replay=True))
    monkeypatch.setattr(serving, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"requirements-mcp\.txt"):
        launch_options(studio)
    monkeypatch.setattr(serving, "find_spec", lambda _: object())
    assert launch_options(studio)["mcp_server"]
    assert not launch_options(Studio(AppSettings(replay=True)))["mcp_server"]
