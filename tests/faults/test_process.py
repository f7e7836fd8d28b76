"""The real page in a process of its own: a pause, and a signal in mid-run."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from programs import free_port
from tiny_files import make_tiny_model

from tools.probe import TOKEN, Outline, Visit, last_value, main, outcome

ROOT = Path(__file__).parents[2]
END_SECONDS = 3.0

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="signals of Unix")


@dataclass
class Page:
    """A served page. log: its stderr"""

    process: subprocess.Popen[bytes]
    port: int
    log: IO[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def written(self) -> str:
        self.log.seek(0)
        return self.log.read().decode()


def command(port: int, *more: str) -> list[str]:
    return [sys.executable, "app.py", "--no-browser", "--port", str(port), *more]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    """The page with a model of two random layers, ready to answer."""
    place = tmp_path_factory.mktemp("process")
    folder = make_tiny_model(place / "model", max_position_embeddings=8192)
    port = free_port()
    model = ("--target", str(folder), "--draft", "none", "--device", "cpu", "--precision", "fp32")
    with (place / "log").open("w+b") as log:
        given = {**os.environ, "SPECDEMO_CACHE": str(place / "cache")}
        process = subprocess.Popen(
            command(port, *model), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log, env=given
        )
        served = Page(process, port, log)
        try:
            for _ in range(600):
                with socket.socket() as asked:
                    if asked.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, served.written
                time.sleep(0.1)
            yield served
        finally:
            process.kill()
            process.wait()


@dataclass
class Running:
    """A started run: its events, and whether it has ended."""

    visit: Visit
    begun: threading.Event
    lines: list[bytes]
    thread: threading.Thread


def start(page: Page, tokens: int) -> Running:
    """Start a run, and return at its first token."""
    outline = Outline(page.url)
    visit = Visit(outline)
    visit.set("sd-prompt", "the cat sat on the mat")
    visit.set("sd-method", "nothing")
    visit.set("sd-max_new_tokens", tokens)
    begin = outline.call("sd-run")
    visit.ask(begin)
    lines: list[bytes] = []
    begun = threading.Event()

    def read() -> None:
        try:
            for line in visit.stream(outline.after(begin)):
                lines.append(line)
                if TOKEN in line:
                    begun.set()
        except OSError:
            pass  # the server has ended

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(60), (lines[-3:], page.written)
    return Running(visit, begun, lines, thread)


def test_a_stopped_and_continued_process_goes_on(page):
    run = start(page, 120)
    os.kill(page.process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(page.process.pid, signal.SIGCONT)
    run.thread.join(60)
    assert outcome(last_value(b"".join(run.lines)), stopped=False) == ("finished", "")
    run.visit.leave()


def test_probe_measures_a_served_page(page, capsys):
    assert main([page.url, "--visitors", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    figures = dict(line.split("  ", 1) for line in printed.out.splitlines())
    assert set(figures) == {
        "wait until a run starts",
        "wait for the first token",
        "from Stop to the end",
    }
    assert all(figure.endswith(" s") for figure in figures.values())


def test_a_signal_in_mid_run_ends_the_page_within_three_seconds_without_a_traceback(page):
    run = start(page, 400)
    begun = time.perf_counter()
    page.process.terminate()
    page.process.wait(60)
    assert time.perf_counter() - begun < END_SECONDS
    run.thread.join(10)
    assert not run.thread.is_alive()
    assert page.process.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert "Traceback" not in page.written
