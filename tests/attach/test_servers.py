"""Servers of other programs: detection, rounds from recorded streams, hostile replies, and a real llama-server."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace

import pytest
from fuzz.odd import changed
from httpx import Response
from ui.scripted import VALUES

from specdemo.attach import client, doctor
from specdemo.attach.client import Client
from specdemo.attach.detection import attach
from specdemo.attach.events import events_of
from specdemo.attach.llama_server import LlamaServer, RoundReader
from specdemo.attach.logs import LOG_SECONDS, GrowingLog
from specdemo.attach.openai import Chunk, OpenAIServer
from specdemo.attach.servers import Generation, Part, Piece, Request, Round
from specdemo.cli import console
from specdemo.cli.commands import app
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.session.door import EngineClient
from specdemo.session.remote.attached import attached_client
from specdemo.trace.codec import dumps
from specdemo.trace.events import (
    PLAIN,
    SPECULATIVE,
    Knowledge,
    RunFailed,
    RunFinished,
    RunStarted,
    Status,
    Verified,
)
from specdemo.trace.metrics import measure, output_text
from specdemo.trace.replay import parse
from specdemo.ui.run_tab import LatestRun
from specdemo.ui.tabs.play import PlayHandlers
from tests.attach.recorded import DRAFTED, LOG, NGRAM
from tests.attach.stand_in import KEY, STREAM, VLLM, Reply, chat, llama, serving, slowly, sse

ABOUT = Generation("llama-server", "b1", Knowledge.EXACT)


def chunks(text: str) -> list[dict[str, object]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def read_parts(stream: Iterable[dict[str, object]]) -> list[Part]:
    """Return the parts of an answer of a llama-server."""
    reader = RoundReader(ABOUT, "")
    return [part for chunk in stream for part in reader.read(chunk)]


def a_round(length: int, drafted: int, accepted: int) -> Round:
    return Round((Piece("x", 1),) * length, drafted, accepted, 0.1)


@pytest.mark.parametrize(
    ("rounds", "totals", "wrong"),
    [
        ([a_round(3, 5, 2), a_round(1, 0, 0)], (5, 2), False),
        ([a_round(3, 5, 2), a_round(2, 5, 3)], (10, 5), False),  # the limit cut the last round
        ([a_round(2, 5, 2), a_round(1, 0, 0)], (5, 2), True),
        ([a_round(3, 5, 2), a_round(3, 5, 1)], (10, 3), True),
        ([a_round(3, 5, 2)], (6, 2), True),
        ([a_round(3, 5, 2)], (5, 3), True),
        ([Round((Piece("x"),))], (20, 17), False),  # rounds without numbers contradict nothing
    ],
)
def test_rounds_are_compared_with_the_servers_sums(rounds, totals, wrong) -> None:
    drafted, accepted = totals
    found = replace(ABOUT, first=(Piece("a", 2),), rounds=tuple(rounds), drafted=drafted, accepted=accepted)  # fmt: skip
    assert found.contradictory is wrong
    assert found.tokens == 1 + sum(len(each.committed) for each in rounds)
    assert found.text == "a" + "x" * (found.tokens - 1)


@pytest.mark.parametrize(
    ("recording", "sums", "first_rounds"),
    [
        (DRAFTED, (45, 38), [(5, 5), (5, 1), (5, 2)]),
        (NGRAM, (40, 33), [(0, 0), (0, 0), (0, 0), (8, 8)]),
    ],
)
def test_llama_server_rounds_equal_the_servers_sums(recording, sums, first_rounds) -> None:
    parts = read_parts(chunks(recording))
    whole = parts[-1]
    assert isinstance(whole, Generation)
    assert not whole.contradictory
    counts = [(one.drafted, one.accepted) for one in whole.rounds]
    assert counts[: len(first_rounds)] == first_rounds
    assert tuple(map(sum, zip(*counts, strict=True))) == sums
    assert [part for part in parts if isinstance(part, Round)] == list(whole.rounds)
    assert sum(one.seconds for one in whole.rounds) == pytest.approx(whole.decode_seconds, abs=1e-5)


def test_llama_server_counts_tokens_whose_text_is_held_back() -> None:
    """Parts of a character have no chunk of their own: of nine tokens, three are the first, second and third parts."""

    def chunk(
        count: int, milliseconds: float, sums: tuple[int, int], token: int
    ) -> dict[str, object]:
        timings = {
            "predicted_n": count,
            "predicted_ms": milliseconds,
            "draft_n": sums[0],
            "draft_n_accepted": sums[1],
        }
        return {"content": "🎉", "tokens": [token], "stop": False, "timings": timings}

    stream = [chunk(3, 9.0, (4, 4), 7), chunk(6, 9.0, (4, 4), 7), chunk(9, 20.0, (8, 6), 7)]
    stream.append(
        {"stop": True, "tokens": [], "stop_type": "limit", "timings": stream[-1]["timings"]}
    )
    *_, whole = read_parts(stream)
    assert [len(one.committed) for one in whole.rounds] == [5, 3]
    assert (whole.tokens, whole.text, whole.contradictory) == (9, "🎉🎉🎉", False)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"draft_n": 4}, "attach.contradiction"),  # less than before
        ({"predicted_n": 10**9}, "attach.contradiction"),
        ({"predicted_n": "nine"}, "attach.malformed"),
        ({"predicted_ms": -1}, "attach.malformed"),
    ],
)
def test_llama_server_numbers_that_contradict_each_other_end_the_answer(change, code) -> None:
    stream = chunks(DRAFTED)
    stream[9]["timings"] |= change
    with pytest.raises(UserError) as found:
        read_parts(stream)
    assert found.value.code == code


def test_events_of_a_server_leave_unknown_what_it_does_not_give() -> None:
    parts = read_parts(chunks(DRAFTED))
    events = list(events_of(parts, "hi", {}))
    assert dumps(parse(dumps(events)).trace) == dumps(events)
    started = events[0]
    assert isinstance(started, RunStarted)
    known = (started.knowledge, started.server, started.prompt_tokens)
    assert known == (Knowledge.EXACT, "llama-server b1", 20)
    drafts = (one for one in events if getattr(one, "nodes", ()))
    refused = next(one for one in drafts if one.nodes[-1].status is Status.UNREACHED)
    assert [node.status for node in refused.nodes][1:] == [Status.REJECTED, *[Status.UNREACHED] * 3]
    assert refused.nodes[1].token_id is None
    assert refused.draft_seconds is None
    assert refused.next.status is Status.CORRECTION
    figures = measure(events)
    assert (figures.drafted, figures.accepted, figures.new_tokens) == (45, 38, 48)
    assert output_text(events) == parts[-1].text


def test_a_growing_log_names_the_refused_tokens(tmp_path) -> None:
    """A line that is half written, an entry that may not be complete, and a log that has only other lines."""
    path, text = tmp_path / "log", LOG.read_text("utf-8")
    path.write_text("slot earlier: id 0\n", encoding="utf-8")
    log, cancel = GrowingLog(path), threading.Event()
    parts = read_parts(chunks(DRAFTED))
    drafts = [part for part in parts if isinstance(part, Round) and part.drafted]
    for part in (text[:9000], text[9000:]):
        with path.open("a", encoding="utf-8") as file:
            file.write(part)
        log._grow()
    named = [log.named(one, cancel) for one in drafts]
    events = list(events_of([parts[0], *named, parts[-1]], "hi", {}))
    assert dumps(parse(dumps(events)).trace) == dumps(events)
    refused = [node for one in events if isinstance(one, Verified) for node in one.nodes if node.status is not Status.ACCEPTED]  # fmt: skip
    assert len(refused) == 45 - 38
    assert all(node.token_id is not None and node.confidence is not None for node in refused)
    assert all(one.draft_seconds for one in named)
    path.write_text("", encoding="utf-8")
    other, start = GrowingLog(path), time.monotonic()
    assert [other.named(one, cancel) for one in drafts] == drafts
    assert time.monotonic() - start < 2 * LOG_SECONDS
    with pytest.raises(UserError, match="none"):
        GrowingLog(tmp_path / "none")


def test_events_of_totals_invent_no_rounds() -> None:
    about = Generation("LM Studio", "", Knowledge.TOTALS, (Piece("a"),))
    whole = Generation("LM Studio", "", Knowledge.TOTALS, (Piece("a"),), (Round((Piece("b c"),)),), drafted=20, accepted=17, finish="stop", reported_tokens=3)  # fmt: skip
    events = list(events_of([about, Round((Piece("b c"),)), whole], "hi", {}))
    figures = measure(events)
    assert (figures.drafted, figures.accepted, figures.new_tokens) == (20, 17, 3)
    assert figures.tokens_per_step is None
    assert figures.positions == ()
    assert output_text(events) == "ab c"


def test_an_attached_page_answers_with_a_plain_run_first_and_saves_the_same() -> None:
    with serving(llama([DRAFTED.encode()])) as url, serving(llama([NGRAM.encode()])) as plain:
        studio = attached_client(AppSettings(), url, plain, KEY)
        studio.load()
        assert studio.error is None
        assert [method.name for method in studio.methods()] == ["attached"]
        chat = studio.open()
        events = list(chat.run("hi", RunSettings(max_new_tokens=48)))
        shown = shown_types(studio)
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert [(one.lane, one.method) for one in starts] == [
        (PLAIN, "nothing"),
        (SPECULATIVE, "attached"),
    ]
    assert isinstance(events[-1], RunFinished)
    assert len(chat.messages) == 2
    assert KEY not in dumps(events)
    # The page draws a draft together with its check, so a check that waited for the next event would come a round late.
    assert set(shown) == {"verified", "finished"}
    assert shown.count("verified") == sum(isinstance(event, Verified) for event in events)


def shown_types(studio: EngineClient) -> list[str]:
    """Return the type of the newest event each time that the page draws a run."""

    class Stream(list[str]):
        task: LatestRun
        add = list.append

    handlers, stream = PlayHandlers(studio), Stream()
    visitor, _ = handlers.ask(None, "hi", continues=False)
    values = {**VALUES, "max_new_tokens": 48}
    stream.task = visitor.task
    work = handlers.work(visitor, stream, "hi", "", values)
    return [json.loads(stream[-1])["type"] for _ in work]


def test_a_key_is_asked_for_if_the_given_one_is_refused(monkeypatch) -> None:
    """Only a person at a terminal can be asked."""
    monkeypatch.setattr(console, "getpass", lambda _: KEY)
    with serving(llama([])) as url:
        with pytest.raises(UserError) as refused:
            console.reached(url, "wrong")
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        server, key = console.reached(url, "wrong")
    assert refused.value.code == "attach.key"
    assert server.client.key == key == KEY


def test_tune_sends_each_prompt_to_both_servers_and_repeats_it_with_short_limits(capsys) -> None:
    with serving(llama([DRAFTED.encode()])) as url, serving(llama([NGRAM.encode()])) as plain:
        assert main(["tune", url, "--plain", plain, "--key", KEY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plain"]
    assert found["current"]["n_max"] == 5
    assert found["requests"] == 9 * (1 + 4)  # this server ignores the limits: drafts of 0, 1, 2, 4


def test_tune_reads_the_log_that_the_server_writes_meanwhile(tmp_path, capsys, monkeypatch) -> None:
    """Its probabilities make p_min predictable. If other requests came in between, each of its requests stands alone."""
    monkeypatch.setattr(doctor, "MORE_PROSE", ["one", "two", "three", "four"])
    monkeypatch.setattr(doctor, "PROBES", {})
    text = LOG.read_text("utf-8")
    widths = []
    for other in ("", "slot print_timing: id 0 | task 999 | eval time = 4000 ms / 97 tokens\n"):
        log, server, tasks = tmp_path / "log", llama([DRAFTED.encode()]), itertools.count()
        log.write_text("")

        def reply(path: str, headers: dict[str, str], body: bytes) -> Reply:
            if path == "/completion":
                with log.open("a", encoding="utf-8") as file:  # noqa: B023
                    file.write(text.replace("task 0", f"task {next(tasks)}") + other)  # noqa: B023
            return server(path, headers, body)  # noqa: B023

        with serving(reply) as url, serving(llama([NGRAM.encode()])) as plain:
            words = ["tune", url, "--log", str(log), "--plain", plain, "--key", KEY, "--json"]
            assert main(words) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["plain"]
        assert found["current"] == {"n_max": 5, "p_min": 0.0}
        assert found["requests"] == 4 * (1 + 4)
        assert {one["setting"]["p_min"] for one in found["forecasts"]} > {0.0, 0.5, 0.9}
        ratios = [one["over_current"] for one in found["forecasts"]]
        widths.append(max(one["high"] - one["low"] for one in ratios))
    assert widths[0] > 1.1 * widths[1]  # four prompts are fewer than twenty requests


def test_app_knows_the_servers_method_before_it_creates_the_menu(monkeypatch) -> None:
    class Created(Exception):
        """Ends the command where the page would be created."""

    def create(studio: EngineClient) -> None:
        raise Created([method.name for method in studio.methods()])

    monkeypatch.setattr(app, "make_page", create)
    with serving(llama([DRAFTED.encode()])) as url, pytest.raises(Created, match="attached"):
        main(["app", "--attach", url, "--no-browser"])


def chunk(**choice: object) -> bytes:
    """Return a chunk of a chat answer."""
    return sse({"choices": [choice]})[0]


def group(*ids: int) -> bytes:
    return chunk(delta={"content": "x" * len(ids)}, token_ids=ids)


GROUPS = [group(1), group(2, 3, 4), group(5, 6), group(7), chunk(delta={}, finish_reason="stop")]
STEPS = {
    "num_accepted_draft_tokens": 3,
    "num_draft_tokens": 9,
    "num_spec_steps": 3,
    "acceptance_histogram": [1, 1, 1],
    "per_step_accepted": [2, 1, 0],
    "per_step_drafted": [3, 3, 3],
}
SUMS = {
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 9,
    "spec_verify_ct": 3,
    "spec_correct_drafts_histogram": [1, 1, 1],
}
TEXT = [chunk(delta={"content": part}) for part in ("a", " b c d", " e f")]
STUDIO = {"/api/v0/models": b'{"data":[{"id":"m","state":"loaded"}]}'}
SGLANG = {
    "/get_server_info": b'{"internal_states":[],"version":"0.5","speculative_algorithm":"EAGLE"}'
}
# Pages, chunks, fields of the last chunk; then what is found: server, level, sums, (accepted, drafted).
FOREIGN = {
    "vllm": (VLLM, GROUPS[:-1], {"metrics": {"speculative_decoding": STEPS}},
             "vLLM 0.32.0", "arrival", (9, 3), [(2, 3), (1, 3), (0, 3)]),
    "vllm, two steps as one chunk, the last cut": (VLLM, [group(1), group(2, 3, 4, 5)], {"metrics": {"speculative_decoding": {**STEPS, "per_step_accepted": [2, 1], "per_step_drafted": [3, 6]}}},
             "vLLM 0.32.0", "arrival", (9, 3), [(2, 3), (1, 6)]),
    "vllm, no report": (VLLM, [group(1), group(2, 3)], {}, "vLLM 0.32.0", "arrival", (None, None), [(None, None)]),
    "sglang": (SGLANG, TEXT, {"sglext": {"spec_tokens_details": SUMS}}, "SGLang 0.5", "totals", (9, 3), [(None, None)] * 2),
    "lm studio": (STUDIO, TEXT, {"stats": {"total_draft_tokens_count": 20, "accepted_draft_tokens_count": 17}}, "LM Studio", "totals", (20, 17), [(None, None)] * 2),
    "lm studio without drafts": (STUDIO, TEXT, {"stats": {}}, "LM Studio", "totals", (0, 0), [(None, None)] * 2),
    "ollama": ({"/": b"Ollama is running"}, TEXT, {}, "Ollama", "none", (None, None), [(None, None)] * 2),
    "any other": ({}, TEXT, {}, "OpenAI-compatible", "none", (None, None), [(None, None)] * 2),
}  # fmt: skip


def test_a_chunk_with_the_end_of_the_reasoning_and_the_answer_has_both_texts() -> None:
    delta = {"reasoning_content": "x", "content": "y"}
    assert Chunk.model_validate({"choices": [{"delta": delta}]}).pieces == (Piece("xy"),)


@pytest.mark.parametrize(
    ("pages", "stream", "report", "name", "level", "sums", "rounds"),
    FOREIGN.values(),
    ids=FOREIGN,
)
def test_each_server_shows_what_it_reports_and_no_more(
    pages, stream, report, name, level, sums, rounds
) -> None:
    """Each stand-in answers as the documentation of its server says."""
    usage = {"prompt_tokens": 5, "completion_tokens": 7}
    last = {"choices": [], "usage": usage, **report}
    whole = [*stream, chunk(delta={}, finish_reason="stop"), *sse(last), b"data: [DONE]\n\n"]
    unknown = 200 if "/api/v0/models" in pages else 404  # LM Studio replies to every path
    with serving(chat(lambda _: whole, pages, unknown)) as url:
        server = attach(url)
        request = Request([{"role": "user", "content": "hi"}], 8)
        parts = list(server.stream(request, threading.Event()))
    found = parts[-1]
    assert f"{found.server} {found.version}".strip() == name
    assert found.knowledge.value == level
    assert (found.drafted, found.accepted) == sums
    assert [(one.accepted, one.drafted) for one in found.rounds] == rounds
    events = list(events_of(parts, "hi", {}))
    assert output_text(events) == found.text
    figures = measure(events)
    assert (figures.new_tokens, figures.drafted) == (7, sums[0] or 0)
    counted = [accepted for _, accepted in figures.positions]
    assert sum(counted) == (sums[1] if "histogram" in str(report) else 0)


def metrics_page(tokens: int, drafts: int, drafted: int, *accepted: int) -> bytes:
    """A page of vLLM's counters."""
    sums = {"num_drafts": drafts, "num_draft_tokens": drafted, "num_accepted_tokens": sum(accepted)}
    lines = [f"vllm:generation_tokens_total {tokens}.0", *(f"vllm:spec_decode_{name}_total {count}.0" for name, count in sums.items())]  # fmt: skip
    lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{n}"}} {count}.0' for n, count in enumerate(accepted)]  # fmt: skip
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("after", "sums", "positions"),
    [
        (metrics_page(107, 23, 69, 12, 6, 0), (9, 3), ((3, 3, 2), (3, 2, 1), (3, 1, 0))),
        (metrics_page(107, 23, 67, 12, 6, 0), (7, 3), ()),  # drafts of different lengths
        (metrics_page(140, 23, 69, 12, 6, 0), (None, None), ()),  # with another request
        (metrics_page(107, 23, 60, 12, 6, 0), (None, None), ()),  # contradicts itself
        (b"", (None, None), ()),
    ],
)
def test_counters_of_a_server_are_an_answers_if_no_other_request_came(
    after, sums, positions
) -> None:
    """A vLLM without a report of a request: its counters before and after, of the whole server."""
    pages = itertools.chain([metrics_page(100, 20, 60, 10, 5, 0)] * 2, itertools.repeat(after))
    usage = {"choices": [], "usage": {"completion_tokens": 7}}
    server = chat(lambda _: [*GROUPS, *sse(usage)], VLLM)

    def reply(path: str, headers: dict[str, str], body: bytes) -> Reply:
        return (200, {}, [next(pages)]) if path == "/metrics" else server(path, headers, body)

    with serving(reply) as url:
        parts = list(attach(url).stream(Request([], 8), threading.Event()))
    figures = measure(events_of(parts, "hi", {}))
    assert (parts[-1].drafted, parts[-1].accepted) == sums
    assert parts[-1].positions == positions
    assert figures.positions == tuple(each[1:] for each in positions)


ENDLESS = (b"x" * 65536 for _ in itertools.count())
COMPRESSED = [gzip.compress(b"0" * 50_000_000)]
HOSTILE = {
    "redirect": ([], 302, {"Location": "http://127.0.0.1:1/"}, "attach.redirected", False),
    "redirect of a stream": ([], 307, STREAM | {"Location": "//other.example/completion"}, "attach.redirected", False),
    "html": ([b"<html>hi"], 200, {"Content-Type": "text/html"}, "attach.no_stream", False),
    "gzip bomb": (COMPRESSED, 200, STREAM | {"Content-Encoding": "gzip"}, "attach.compressed", False),
    "other compression": (COMPRESSED, 200, STREAM | {"Content-Encoding": "br, GZIP"}, "attach.compressed", False),
    "endless drip": (slowly(itertools.repeat(b":\n"), 0.05), 200, STREAM, "attach.endless", False),
    "endless answer": (itertools.cycle(map(str.encode, DRAFTED.splitlines(keepends=True)[:20])), 200, STREAM, "attach.contradiction", True),
    "longer than announced": ([DRAFTED.encode()], 200, STREAM | {"Content-Length": "3000"}, "attach.died", True),
    "endless line": (ENDLESS, 200, STREAM, "attach.endless", False),
    "endless error": (ENDLESS, 400, {"Content-Type": "application/json"}, "attach.endless", False),
    "malformed": ([DRAFTED[:3000].encode(), b"\ndata: {\n"], 200, STREAM, "attach.malformed", True),
    "nested": ([b"data: " + b"[" * 100_000 + b"\n"], 200, STREAM, "attach.malformed", False),
    "dies": ([DRAFTED[:3000].encode()], 200, STREAM, "attach.died", True),
    "wrong length": ([b"short"], 200, STREAM | {"Content-Length": "500"}, "attach.broken", False),
    "slow": (slowly([DRAFTED[:3000].encode(), b" ", b" "], 0.4), 200, STREAM, "attach.silent", True),
    "wrong key": ([], 401, {}, "attach.key", False),
    "echoes the key": ([json.dumps({"error": {"message": f"bad {KEY}"}}).encode()], 400, {}, "attach.refused", False),
    "error in the stream": ([f'data: {{"error":{{"message":"{KEY}"}}}}\n\n'.encode()], 200, STREAM, "attach.stopped", False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("stream", "status", "headers", "code", "keeps"), HOSTILE.values(), ids=HOSTILE
)
def test_hostile_servers_end_in_one_message(
    stream, status, headers, code, keeps, monkeypatch
) -> None:
    """It uses bounded time and memory, does not show the key, and keeps the text so far."""
    if code == "attach.silent":
        monkeypatch.setattr(client, "SILENT_SECONDS", 0.2)
        stream = [DRAFTED[:3000].encode(), *[b""] * 3]
        stream = itertools.chain(stream[:1], slowly(stream[1:], 0.4))
    monkeypatch.setattr(client, "STREAM_SECONDS", 2)
    with serving(llama(stream, status, headers)) as url:
        studio = attached_client(AppSettings(), url, key=KEY)
        studio.load()
        start, events, error = time.monotonic(), [], None
        try:
            for event in studio.open().run("hi", RunSettings()):
                events.append(event)
        except UserError as refused:
            error = refused
    assert time.monotonic() - start < 5
    assert bool(events) is keeps
    if keeps:
        assert isinstance(events[-1], RunFailed)
        assert events[-1].message.startswith(UserError(code, url=url, line="", seconds=0).message)
        assert output_text(events)
    else:
        assert error is not None
        assert error.code == code
    assert KEY not in f"{error}{events}"


@pytest.mark.parametrize("seed", range(8))
def test_strange_values_in_a_stream_end_in_one_message_or_a_whole_trace(seed, monkeypatch) -> None:
    """Streams of each kind with one to three strange values; a trace that begins can be written to a file."""
    rng = random.Random(seed)
    steps = {"choices": [], "usage": {"completion_tokens": 7}, "metrics": {"speculative_decoding": STEPS}}  # fmt: skip
    answer = [*chunks(b"".join(GROUPS).decode()), steps]
    counts = Counter[str]()
    for _ in range(120):
        llama_kind = rng.random() < 0.6
        stream = chunks(rng.choice([DRAFTED, NGRAM])) if llama_kind else list(answer)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(stream))
            stream[place] = changed(rng, copy.deepcopy(stream[place]))
        lines = b"".join(sse(*stream))
        parts = [lines[start : start + 999] for start in range(0, len(lines), 999)]
        response = Response(200, headers=STREAM, content=iter(parts))
        monkeypatch.setattr(Client, "_open", lambda *_, response=response: nullcontext(response))
        one = Client("http://h")
        server = LlamaServer(one, ABOUT, True) if llama_kind else OpenAIServer(one, replace(ABOUT, knowledge=Knowledge.ARRIVAL))  # fmt: skip
        monkeypatch.setattr(LlamaServer, "prompt", lambda *_: "hi")
        events = []
        try:
            for event in events_of(server.stream(Request([], 48), threading.Event()), "hi", {}):
                events.append(event)
            counts["whole"] += 1
        except UserError as error:
            counts[error.code] += 1
        written = dumps(events).encode()
        assert dumps(parse(written.decode()).trace).encode() == written if events else True
    assert counts["whole"] > 5, counts
    assert sum(counts.values()) - counts["whole"] > 20, counts


@pytest.mark.parametrize(
    "url",
    [
        "file:" + "///etc/passwd",
        "http://user:pass@host/",
        "http://user:pass@host:99999",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://h/?q=1",
        "nope",
    ],
)
def test_impossible_addresses_are_refused(url) -> None:
    with pytest.raises(UserError, match="no address") as found:
        attach(url, KEY)
    assert "pass@" not in str(found.value)
    if not {"@", "?"} & set(url):
        assert str(found.value).startswith(f"{url} is no address")


def test_a_cancelled_stream_ends_at_once_with_the_text_so_far() -> None:
    stream = itertools.chain([DRAFTED[:3000].encode()], slowly([b"\n"] * 50, 0.1))
    cancel = threading.Event()
    with serving(llama(stream)) as url:
        parts = attach(url).stream(Request([], 9), cancel)
        found = [next(parts), next(parts)]
        cancel.set()
        start = time.monotonic()
        found += parts
        assert time.monotonic() - start < 1
    assert found[-1].finish == "cancelled"
    assert found[-1].rounds


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_rounds_of_a_real_llama_server_equal_its_sums(temperature, real_server) -> None:
    """The embedded model as target and n-gram drafts, one thread."""
    server = attach(real_server("ngram"))
    assert server.drafting
    ask = [{"role": "user", "content": "Repeat ten times: the cat sat on the mat."}]
    request = Request(ask, 16, Sampling(temperature=temperature, seed=3))
    *_, whole = server.stream(request, threading.Event())
    assert whole.knowledge is Knowledge.EXACT
    assert not whole.contradictory
    assert 1 < whole.tokens <= 16
    assert sum(one.drafted for one in whole.rounds) == whole.drafted
