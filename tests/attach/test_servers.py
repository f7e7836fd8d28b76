"""Servers of other programs: detection, rounds from recorded streams, hostile replies, and a real llama-server."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from specdemo.attach import client
from specdemo.attach.events import events_of
from specdemo.attach.llama_server import RoundReader
from specdemo.attach.rounds import Generation, Knowledge, Piece, Round
from specdemo.attach.servers import Request, attach
from specdemo.bench.peers import gguf_file
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.session.remote.attached import attached_client
from specdemo.trace.codec import dumps, loads
from specdemo.trace.events import PLAIN, SPECULATIVE, RunFailed, RunFinished, RunStarted, Status
from specdemo.trace.metrics import measure, output_text
from tests.attach.stand_in import Reply, serving, slowly

DATA = Path(__file__).parent / "data"
DRAFTED, NGRAM = ((DATA / name).read_text("utf-8") for name in ("draft.sse", "ngram.sse"))
KEY = "sk-very-secret"
STREAM = {"Content-Type": "text/event-stream"}
ABOUT = Generation("llama-server", "b1", Knowledge.EXACT)


def as_json(value: object) -> Reply:
    return (
        200,
        {"Content-Type": "application/json", "Server": "llama.cpp"},
        [json.dumps(value).encode()],
    )


def llama(stream: Iterable[bytes], status: int = 200, headers: dict[str, str] = STREAM):
    """Replies of a llama-server whose answer is this stream."""
    pages = {
        "/props": {
            "default_generation_settings": {},
            "model_path": "a/tiny.gguf",
            "build_info": "b1",
        },
        "/health": {"status": "ok"},
        "/slots": [{"id": 0, "speculative": True}],
        "/apply-template": {"prompt": "<user>hi"},
    }

    def reply(path: str, given: dict[str, str], _body: bytes) -> Reply:
        if given.get("Authorization", f"Bearer {KEY}") != f"Bearer {KEY}":
            return 401, {}, [b"{}"]
        return as_json(pages[path]) if path in pages else (status, headers, stream)

    return reply


def chunks(text: str) -> list[dict[str, object]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize(
    ("recording", "sums", "first_rounds"),
    [
        (DRAFTED, (45, 38), [(5, 5), (5, 1), (5, 2)]),
        (NGRAM, (40, 33), [(0, 0), (0, 0), (0, 0), (8, 8)]),
    ],
)
def test_llama_server_rounds_equal_the_servers_sums(recording, sums, first_rounds) -> None:
    reader = RoundReader(ABOUT, "")
    parts = [part for chunk in chunks(recording) for part in reader.read(chunk)]
    whole = parts[-1]
    assert isinstance(whole, Generation)
    assert not whole.mismatches()
    assert [(one.drafted, one.accepted) for one in whole.rounds][
        : len(first_rounds)
    ] == first_rounds
    assert (
        sum(one.drafted for one in whole.rounds),
        sum(one.accepted for one in whole.rounds),
    ) == sums
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

    reader = RoundReader(ABOUT, "")
    stream = [chunk(3, 9.0, (4, 4), 7), chunk(6, 9.0, (4, 4), 7), chunk(9, 20.0, (8, 6), 7)]
    stream.append(
        {"stop": True, "tokens": [], "stop_type": "limit", "timings": stream[-1]["timings"]}
    )
    *_, whole = [part for one in stream for part in reader.read(one)]
    assert [len(one.committed) for one in whole.rounds] == [5, 3]
    assert (whole.tokens, whole.text, whole.mismatches()) == (9, "🎉🎉🎉", [])


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
    reader, stream = RoundReader(ABOUT, ""), chunks(DRAFTED)
    stream[9]["timings"] |= change
    with pytest.raises(UserError) as found:
        list(itertools.chain.from_iterable(map(reader.read, stream)))
    assert found.value.code == code


def test_events_of_a_server_leave_unknown_what_it_does_not_give() -> None:
    reader = RoundReader(ABOUT, "")
    parts = [part for chunk in chunks(DRAFTED) for part in reader.read(chunk)]
    events = list(events_of(parts, "hi", {}))
    assert dumps(loads(dumps(events))) == dumps(events)
    started = events[0]
    assert isinstance(started, RunStarted)
    assert (started.knowledge, started.server, started.prompt_tokens) == (
        Knowledge.EXACT,
        "llama-server b1",
        20,
    )
    refused = next(
        one
        for one in events
        if getattr(one, "nodes", ()) and one.nodes[-1].status is Status.UNREACHED
    )
    assert [node.status for node in refused.nodes][1:] == [Status.REJECTED, *[Status.UNREACHED] * 3]
    assert refused.nodes[1].token_id is None
    assert refused.draft_seconds is None
    assert refused.next.status is Status.CORRECTION
    figures = measure(events)
    assert (figures.drafted, figures.accepted, figures.new_tokens) == (45, 38, 48)
    assert output_text(events) == parts[-1].text


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
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert [(one.lane, one.method) for one in starts] == [
        (PLAIN, "nothing"),
        (SPECULATIVE, "attached"),
    ]
    assert isinstance(events[-1], RunFinished)
    assert len(chat.messages) == 2
    assert KEY not in dumps(events)


def test_any_openai_server_gives_text_and_no_drafts() -> None:
    def chunk(**choice: object) -> bytes:
        return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()

    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}}\n\ndata: [DONE]\n\n'
    stream = [chunk(delta={"content": "a b"}), chunk(delta={"content": " c"}), chunk(delta={}, finish_reason="stop"), usage]  # fmt: skip

    def reply(path: str, _headers: dict[str, str], _body: bytes) -> Reply:
        if path == "/v1/models":
            return 200, {}, [b'{"data":[{"id":"m"}]}']
        return (200, STREAM, stream) if path == "/v1/chat/completions" else (404, {}, [b"no"])

    with serving(reply) as url:
        server = attach(url)
        parts = server.stream(Request([{"role": "user", "content": "hi"}], 8), threading.Event())
        events = list(events_of(parts, "hi", {}))
    assert output_text(events) == "a b c"
    figures = measure(events)
    assert (figures.new_tokens, figures.drafted, figures.drafted_accept_rate) == (4, 0, None)
    assert events[0].knowledge is Knowledge.NONE


ENDLESS = (b"x" * 65536 for _ in itertools.count())
COMPRESSED = [gzip.compress(b"0" * 50_000_000)]
HOSTILE = {
    "redirect": ([], 302, {"Location": "http://127.0.0.1:1/"}, "attach.redirected", False),
    "html": ([b"<html>hi"], 200, {"Content-Type": "text/html"}, "attach.no_stream", False),
    "gzip bomb": (COMPRESSED, 200, STREAM | {"Content-Encoding": "gzip"}, "attach.compressed", False),
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
    """Within bounds of time and memory, without the key, and what came is kept."""
    if code == "attach.silent":
        monkeypatch.setattr(client, "SILENT_SECONDS", 0.2)
        stream = [DRAFTED[:3000].encode(), *[b""] * 3]
        stream = itertools.chain(stream[:1], slowly(stream[1:], 0.4))
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


@pytest.mark.parametrize(
    "url",
    [
        "file:" + "///etc/passwd",
        "http://user:pass@host/",
        "ftp://host",
        "http://",
        "http://h:99999",
        "http://h/?q=1",
    ],
)
def test_addresses_that_are_none_are_refused(url) -> None:
    with pytest.raises(UserError, match="no address") as found:
        attach(url, KEY)
    assert "pass@" not in str(found.value)


def test_a_cancelled_stream_ends_at_once_with_what_came() -> None:
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
def test_rounds_of_a_real_llama_server_equal_its_sums(temperature, real_llama_server) -> None:
    """The embedded model as target and n-gram drafts, one thread."""
    server = attach(real_llama_server)
    assert server.drafting
    ask = [{"role": "user", "content": "Repeat ten times: the cat sat on the mat."}]
    request = Request(ask, 16, Sampling(temperature=temperature, seed=3))
    *_, whole = server.stream(request, threading.Event())
    assert whole.knowledge is Knowledge.EXACT
    assert not whole.mismatches()
    assert 1 < whole.tokens <= 16
    assert sum(one.drafted for one in whole.rounds) == whole.drafted


@pytest.fixture(scope="module")
def real_llama_server(tmp_path_factory) -> str:
    """Address of a llama-server in this process; skipped without its package or the embedded model's file."""
    native = pytest.importorskip("xllamacpp")
    try:
        path = gguf_file(
            AppSettings(target="smollm2-135m-instruct"), tmp_path_factory.mktemp("gguf")
        )
    except UserError as error:
        pytest.skip(str(error))
    options = native.CommonParams()
    options.model.path, options.hostnames = str(path), ["127.0.0.1"]
    options.n_ctx, options.n_parallel, options.endpoint_slots = 512, 1, True
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        options.port = free.getsockname()[1]
    kind = native.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
    options.speculative.types, options.speculative.ngram_simple.size_n = [kind], 3
    server = native.Server(options)
    servers.append(server)  # its end would wait for its threads
    return str(server.listening_address)


servers: list[object] = []
