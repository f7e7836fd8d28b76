"""The real page in a process of its own: a pause, and a signal in mid-run."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from programs import serving_page
from tiny_files import make_tiny_model

from tools.probe import TOKEN, Outline, Visit, answers, last_value, main, outcome

END_SECONDS = 3.0

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="signals of Unix")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[subprocess.Popen[bytes]]:
    """The page with a model of two random layers, ready to answer. url: its address; log: its output"""
    place = tmp_path_factory.mktemp("process")
    folder = make_tiny_model(place / "model", max_position_embeddings=8192)
    cache = str(place / "cache")
    model = ("--target", folder, "--draft", "none", "--device", "cpu", "--precision", "fp32")
    command = (sys.executable, "app.py", *model)
    with serving_page(*command, log=place / "log", SPECDEMO_CACHE=cache) as process:
        yield process


def start(
    page: subprocess.Popen[bytes], tokens: int
) -> tuple[Visit, list[bytes], threading.Thread]:
    """Start a run, and return at its first token. returns: its visit, its events, and the thread that reads them"""
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
    assert begun.wait(60), (lines[-3:], page.log.read_text())
    return visit, lines, thread


def test_a_stopped_and_continued_process_goes_on(page):
    visit, lines, thread = start(page, 120)
    page.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    page.send_signal(signal.SIGCONT)
    thread.join(60)
    assert outcome(last_value(b"".join(lines)), stopped=False) == ("finished", "")
    visit.leave()


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


def test_a_probe_that_reaches_itself_is_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(4096))

        threading.Thread(target=echo, daemon=True).start()
        assert not answers(f"http://127.0.0.1:{server.getsockname()[1]}")


def test_a_signal_in_mid_run_ends_the_page_within_three_seconds_without_a_traceback(page):
    _, _, thread = start(page, 400)
    begun = time.perf_counter()
    page.terminate()
    page.wait(60)
    assert time.perf_counter() - begun < END_SECONDS
    thread.join(10)
    assert not thread.is_alive()
    assert page.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert "Traceback" not in page.log.read_text()
