"""Measure a served page as its visitors see it: waiting, first token, cancelling, and starting.

    python tools/probe.py http://127.0.0.1:7860 --visitors 30
    python tools/probe.py --visitors 1 --target=FILE.gguf

Without an address it starts the page first, and measures the seconds until it is served and until its model is
ready; other options are those of `app`. With empty folders as SPECDEMO_CACHE and NUMBA_CACHE_DIR it is a first start, with
downloads unless the target is a file. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gradio_client.utils import apply_diff

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "Write three sentences about a town called {name}."
SILENCE_SECONDS = 60.0  # without a line from a server that sends a sign of life every 15 s
READY_SECONDS = 900.0  # until the model is loaded; it may have to be downloaded
ANSWER_TOKENS, CANCELLED_TOKENS = 32, 400
STARTED = rb"\"type\":\"started\""  # JSON inside of a JSON string, as the server sends it
TOKEN = rb"\"type\":\"verified\""

Call = dict[str, Any]  # one entry of the page's `dependencies`


class PageError(RuntimeError):
    """The page refused or failed a call."""


class Outline:
    """The components of a page and the calls that their events start, from `/config`."""

    def __init__(self, url: str) -> None:
        self.address = urlsplit(url).netloc
        config = json.loads(_request(self.address, "GET", "/config"))
        self.prefix: str = config["api_prefix"]
        self.calls: list[Call] = config["dependencies"]
        self.parts = {part["id"]: part for part in config["components"]}
        self.names = {
            part["props"]["elem_id"]: part["id"]
            for part in config["components"]
            if part["props"].get("elem_id")
        }

    def call(self, name: str, event: str = "click") -> Call:
        """Return the first call that an event of the component with this element id starts."""
        wanted = [self.names[name], event]
        return next(call for call in self.calls if wanted in map(list, call["targets"]))

    def after(self, call: Call) -> Call:
        """Return the call that follows another one."""
        return next(then for then in self.calls if then["trigger_after"] == call["id"])

    def opening(self) -> list[Call]:
        """Return the calls of a page that is opened."""
        return [call for call in self.calls if any(event == "load" for _, event in call["targets"])]


class Visit:
    """One browser tab: a session with its own values of the components.

    Only one thread may use it, except that any thread may call `ask` during a stream.
    """

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.session = uuid.uuid4().hex
        self._props: dict[int, dict[str, Any]] = {}
        self._alive = self._connect("GET", f"/heartbeat/{self.session}")
        for call in outline.opening():
            self.ask(call)

    def set(self, name: str, value: object) -> None:
        """Enter a value, or apply an update, of the component with this element id."""
        self._enter(self.outline.names[name], value)

    def ask(self, call: Call) -> list[Any]:
        """Run a call, in the page's queue if the page asks for it, and return its values. Raises PageError if it fails."""
        if call["queue"] is False:
            answer = json.loads(self._post("/run/predict", call))
        else:
            answer = next(
                message.get("output", message)
                for message in map(parsed, self.stream(call))
                if message.get("msg") in ("process_completed", "unexpected_error")
            )
        if "data" not in answer:
            raise PageError(f"The page could not answer: {answer.get('error')}")
        for part, value in zip(call["outputs"], answer["data"], strict=True):
            self._enter(part, value)
        return list(answer["data"])

    def stream(self, call: Call) -> Iterator[bytes]:
        """Run a queued call and yield the server's lines until it ends.

        Raises PageError if it is refused, OSError if the server stops answering.
        """
        self._post("/queue/join", call)
        connection = self._connect("GET", f"/queue/data?session_hash={self.session}")
        with closing(connection), connection.getresponse() as answer:
            yield from answer

    def leave(self) -> None:
        """Close the tab after its streams have ended: its heartbeat ends without notice."""
        self._alive.close()

    def _enter(self, part: int, value: object) -> None:
        update = value if isinstance(value, dict) and "__type__" in value else {"value": value}
        self._props.setdefault(part, {}).update(update)

    def _value(self, part: int) -> object:
        described = self.outline.parts[part]
        if described["type"] == "state":
            return None
        return self._props.get(part, {}).get("value", described["props"].get("value"))

    def _connect(self, method: str, path: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.outline.address, timeout=SILENCE_SECONDS)
        connection.request(method, self.outline.prefix + path)
        return connection

    def _post(self, path: str, call: Call) -> bytes:
        data = [self._value(part) for part in call["inputs"]]
        body = {"data": data, "fn_index": call["id"], "session_hash": self.session}
        path = self.outline.prefix + path
        return _request(self.outline.address, "POST", path, json.dumps(body).encode())


def parsed(line: bytes) -> dict[str, Any]:
    """Return the message of a line that the server streamed; empty for the line between two messages."""
    return json.loads(line.removeprefix(b"data: ")) if line.strip() else {}


def last_value(sent: bytes) -> str:
    """Return the only output of a streamed call: the first message has a whole value, the others have changes.

    Raises PageError if the call failed.
    """
    value: Any = None
    for message in map(parsed, sent.splitlines()):
        if message.get("msg") == "process_generating":
            (new,) = message["output"]["data"]
            value = new if value is None else apply_diff(value, new)
        elif message.get("msg") == "process_completed" and not message["success"]:
            raise PageError("The page could not answer; its log says why.")
        elif message.get("msg") == "unexpected_error":
            raise PageError(f"The page could not answer: {message.get('message')}")
    return str(value)


def outcome(seen: str, *, stopped: bool) -> tuple[str, str]:
    """Return how a run ended ("finished", "stopped" or "failed") and the message of a failure.

    seen: the lines that the page shows; stopped: the visitor pressed Stop
    """
    lines = [json.loads(line) for line in seen.splitlines() if line.startswith("{")]
    for line in lines:
        if line["type"] in ("notice", "failed"):
            return "failed", str(line.get("message"))
    ends = [line["reason"] for line in lines if line["type"] == "finished"]
    if stopped and (not ends or ends[-1] == "cancelled"):
        return "stopped", ""
    return ("finished", "") if ends else ("failed", "The run ended without an end event.")


@dataclass(slots=True)
class RunTimes:
    """Seconds of one run after its visitor pressed Run; None if an event was not reached.

    waited: until its first variant started; first_token: until its first token was received
    cancelled: from Stop until the stream ended; problem: message of a failed run
    """

    waited: float | None = None
    first_token: float | None = None
    cancelled: float | None = None
    problem: str = ""


def run_once(outline: Outline, name: str, *, cancel: bool = False) -> RunTimes:
    """Open the page, run one prompt and leave. cancel: press Stop at the first token"""
    times = RunTimes()
    stopping: threading.Thread | None = None
    try:
        visit = Visit(outline)
        visit.set("sd-prompt", PROMPT.format(name=name))
        visit.set("sd-baseline", value=False)
        visit.set("sd-max_new_tokens", CANCELLED_TOKENS if cancel else ANSWER_TOKENS)
        pressed, stopped = time.perf_counter(), 0.0
        press = outline.call("sd-run")
        visit.ask(press)
        sent: list[bytes] = []
        for line in visit.stream(outline.after(press)):
            sent.append(line)
            if times.waited is None and STARTED in line:
                times.waited = time.perf_counter() - pressed
            if times.first_token is None and TOKEN in line:
                times.first_token = time.perf_counter() - pressed
                if cancel:
                    stopped = time.perf_counter()
                    stopping = threading.Thread(target=visit.ask, args=[outline.call("sd-stop")])
                    stopping.start()
        if stopping:
            times.cancelled = time.perf_counter() - stopped
            stopping.join()
        _, times.problem = outcome(last_value(b"".join(sent)), stopped=cancel)
        visit.leave()
    except (PageError, OSError, http.client.HTTPException) as error:
        times.problem = str(error) or type(error).__name__
    return times


def run_together(outline: Outline, visitors: int) -> list[RunTimes]:
    """Let several visitors press Run at the same time."""
    names = [f"Town {number}" for number in range(visitors)]
    with ThreadPoolExecutor(visitors) as pool:
        return list(pool.map(partial(run_once, outline), names))


@contextmanager
def served(*options: str) -> Iterator[str]:
    """Serve the page from a process that ends with this block. yields: its address, once it answers"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "app.py", *options, "--no-browser", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while not answers(url):
            if process.poll() is not None:
                raise PageError("The page could not be served.")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(url: str) -> None:
    """Wait for the page's model. Raises PageError if it could not be loaded."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/health") as answer:  # noqa: S310 - the page's address
                status = json.load(answer)["status"]
        except urllib.error.HTTPError as error:  # 503 if the model failed
            status = json.load(error)["status"]
        if status == "ready":
            return
        if status != "loading":
            break
        time.sleep(0.2)
    raise PageError(f"The page has no model that could answer: {status}.")


def spread(values: Sequence[float | None]) -> str:
    """Return the median, the 95th percentile and the maximum, in seconds."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return "not reached"
    high = known[min(len(known) - 1, int(0.95 * len(known)))]
    return f"{statistics.median(known):.2f}, {high:.2f}, {known[-1]:.2f} s"


def answers(url: str) -> bool:
    """Return whether a page is served at an address."""
    try:
        urllib.request.urlopen(url).close()  # noqa: S310 - the page's address
    except (OSError, http.client.HTTPException):
        # A probe whose own port is this one reaches itself, and reads no reply.
        return False
    return True


def _request(address: str, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=SILENCE_SECONDS)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 500):  # 500 comes with the error of the call
            raise PageError(f"The page answers {answer.status} to {path}: {text[:200]!r}")
        return text
    finally:
        connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures. returns: 1 if a run failed"""
    parser = argparse.ArgumentParser(description="Measure a served page.")
    parser.add_argument("url", nargs="?", help="address of the page; by default it is started")
    parser.add_argument("--visitors", type=int, default=1, help="who press Run at the same time")
    options, more = parser.parse_known_args(arguments)
    rows: list[tuple[str, str]] = []
    with ExitStack() as stack:
        started = time.perf_counter()
        url = options.url or stack.enter_context(served(*more))
        served_seconds = time.perf_counter() - started
        wait_until_ready(url)
        if not options.url:
            ready = time.perf_counter() - started
            rows.append(("page served", f"{served_seconds:.1f} s"))
            rows.append(("model ready", f"{ready:.1f} s"))
        outline = Outline(url)
        runs = run_together(outline, options.visitors)
        cancelled = run_once(outline, "Nobody", cancel=True)
    rows += [
        ("wait until a run starts", spread([run.waited for run in runs])),
        ("wait for the first token", spread([run.first_token for run in runs])),
        ("from Stop to the end", spread([cancelled.cancelled])),
    ]
    sys.stdout.write("".join(f"{name:<28}{value}\n" for name, value in rows))
    problems = [run.problem for run in (*runs, cancelled) if run.problem]
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
