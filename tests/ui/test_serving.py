"""The server: content and preloads of the page, health and metrics, and how often Gradio polls its queue."""

import html
import inspect
import json
import re
import struct
from types import SimpleNamespace

import pytest
from errors import reported
from gradio.queueing import Queue
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS
from specdemo.session.meter import Meter
from specdemo.session.studio import Studio
from specdemo.trace.events import PLAIN, SPECULATIVE
from specdemo.trace.metrics import output_text
from specdemo.trace.replay import RUNS, parse, recorded_runs
from specdemo.ui.files import version
from specdemo.ui.player import SCRIPTS, style_files
from specdemo.ui.serving import Head, first_words, launch_options, monitor_routes
from specdemo.ui.site import PREVIEW
from tests.attach.recorded import BENCH, LOG

PAGE = b'<html><head><title>a</title><meta property="og:title" content="Gradio" /></head>'
PAGE += b"\n<body class='b'>\n<gradio-app></gradio-app></body></html>"


def answered(path, **query):
    """Return the response of a server with the middleware, which sends the page in two parts."""

    async def parts():
        yield PAGE[:50]
        yield PAGE[50:]

    def respond(_request):
        return StreamingResponse(parts(), headers={"content-length": str(len(PAGE))})

    app = Starlette(routes=[Route("/{path:path}", respond)], middleware=[Middleware(Head)])
    return TestClient(app, base_url="https://a.b").get(path, params=query)


def test_the_page_names_the_scripts_that_it_will_import():
    links = answered("/").headers["link"].split(", ")
    low = "; fetchpriority=low"  # Gradio's own scripts come first
    shape = rf"<files/{version()}/view/(.*)>; rel=modulepreload{low}"
    named = [re.fullmatch(shape, link)[1] for link in links]
    assert all((SCRIPTS / name).is_file() for name in named)
    assert len(set(named)) == len(named)
    assert {"play/view.js", "core/reducer.js", "parts/dom.js", "core/permalink.js"} < set(named)


def test_the_page_arrives_with_its_styles_and_first_words():
    page = answered("/")
    assert page.headers["content-length"] == str(len(page.content))
    head, rest = page.text.split("</head>")
    assert len(re.findall('<link rel="stylesheet"', head)) == len(style_files())
    assert 'property="og:title" content="specdemo"' in head
    assert "Gradio" not in head
    assert f'"og:image" content="https://a.b/files/{version()}/{PREVIEW}"' in head
    assert (ASSETS / PREVIEW).read_bytes()[16:24] == struct.pack(">II", 1200, 630)
    assert rest.startswith("\n<body class='b'>" + first_words())
    assert rest.endswith("\n<gradio-app></gradio-app></body></html>")


def test_a_link_to_a_recorded_run_is_previewed_with_its_title_and_prompt():
    run = recorded_runs()[1]
    page = answered("/", lang="de", recorded=run.name).text
    for name, text in (("og:title", f"{run.title} · specdemo"), ("og:description", run.prompt)):
        assert f'property="{name}" content="{html.escape(text)}"' in page
    assert answered("/", recorded="<b>").content == answered("/").content


def test_other_answers_stay_as_they_are():
    other = answered("/gradio_api/queue/join")
    assert (dict(other.headers), other.content) == ({"content-length": str(len(PAGE))}, PAGE)


def test_the_first_words_play_both_variants_of_the_first_recorded_run():
    run = recorded_runs()[0]
    events = parse((RUNS / f"{run.name}.jsonl").read_text(encoding="utf-8")).trace.events
    page = first_words()
    given = json.loads(re.findall('id="sd-given">(.*?)</script>', page)[0])
    for lane in (PLAIN, SPECULATIVE):
        own = [step for step in given["steps"] if (lane == PLAIN) == ("plain" in step)]
        told = "".join(
            step.get("plain") or "".join(text for text, _ in step["tokens"]) for step in own
        )
        text = output_text([event for event in events if event.lane == lane])
        assert told.removesuffix("<|im_end|>") == text
        assert own[-1]["at"] <= given["until"]
    assert [step["at"] for step in given["steps"]] == sorted(s["at"] for s in given["steps"])
    assert html.unescape(re.findall('"sd-asked">(.*?)</p>', page)[0]) == run.prompt


def test_gradio_still_sleeps_between_two_looks_at_its_queue():
    """Otherwise `app.QUEUE_SECONDS` sets an unused attribute, and an idle page costs a tenth of a core again."""
    assert "asyncio.sleep(self.sleep_when_free)" in inspect.getsource(Queue.start_processing)


@pytest.mark.parametrize(
    ("content", "status", "tokens", "events"),
    [
        (LOG.read_bytes(), 200, ["48"], 20),
        (f"{BENCH}\n{BENCH}".encode(), 200, ["192", "192", "384"], 0),
        (b"\x89PNG" * 999, 422, [], 0),
    ],
)
def test_import_reads_what_is_dropped_on_the_page(content, status, tokens, events) -> None:
    options = launch_options(Studio(AppSettings(replay=True)))
    client = TestClient(Starlette(routes=options["app_kwargs"]["routes"]))
    answer = client.post("/pasted", content=content)
    assert answer.status_code == status
    found = answer.json() if answer.is_success else {"rows": [], "trace": ""}
    assert [row[1] for row in found["rows"]] == tokens
    assert found["trace"].count("\n") >= events
    assert bool(events) is bool(found["trace"])


def asked(studio, path):
    with TestClient(Starlette(routes=monitor_routes(studio))) as client:
        return client.get(path)


@pytest.mark.parametrize(
    ("known", "status", "code"),
    [
        ({"ready": True}, "ready", 200),
        ({}, "loading", 200),
        ({"error": reported("It is not there.")}, "failed", 503),
        ({"replay_only": reported("Off."), "error": reported("Off.")}, "replay", 200),
    ],
)
def test_health_says_what_the_page_can_do(known, status, code):
    nothing = {"meter": Meter(), "ready": False, "error": None, "replay_only": None}
    answer = asked(SimpleNamespace(**{**nothing, **known}), "/health")
    assert (answer.json(), answer.status_code) == ({"status": status}, code)


def test_figures_are_served_beside_the_page_without_a_model():
    studio = Studio(AppSettings(replay=True))
    answer = asked(studio, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "specdemo:num_requests_running 0.0" in answer.text
    routes = launch_options(studio)["app_kwargs"]["routes"]
    assert {"/health", "/metrics"} <= {route.path for route in routes}
