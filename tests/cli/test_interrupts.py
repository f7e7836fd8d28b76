"""The program's process: Ctrl+C at any moment, outputs that refuse text, and characters that an encoding lacks."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from programs import RECORDED

from specdemo.trace.codec import dumps
from specdemo.trace.events import SPECULATIVE, Verified
from specdemo.trace.replay import read

INSIDE_C = "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"  # runs no Python code until it is over
CHILD = """
import hashlib, threading, time
from specdemo.__main__ import program
from specdemo.cli import interrupts
from specdemo.cli.commands import lists

def ready():
    print("ready", flush=True)

class Slow:  # reads after the main thread has handled the interrupt
    def __init__(self, reader):
        self.reader = reader
    def recv(self, count):
        read = self.reader.recv(count)
        time.sleep({delay})
        return read

def slow_pair(pair=interrupts.socketpair):
    reader, writer = pair()
    return Slow(reader), writer

interrupts.socketpair = slow_pair

def work(options):
    {start}
    {loading}
    with interrupts.keep_results() as kept:
        {measuring}
    {shown}
    print("kept\\n", end="", flush=True)  # in one piece
    return kept.status

lists.run_methods = work
program(["methods"])
"""


def interrupted(code: list[str]) -> tuple[int, str, str, float]:
    """Return exit status, both outputs, and the seconds that the program took to end after Ctrl+C."""
    child = subprocess.Popen(
        [sys.executable, *code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert child.stdout
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err, time.monotonic() - begun


@pytest.mark.parametrize(
    ("parts", "out"),
    [
        ({"loading": "ready(); time.sleep(60)"}, ""),
        ({"loading": f"ready(); {INSIDE_C}"}, ""),
        ({"loading": "try: ready(); time.sleep(60)\n    except BaseException: time.sleep(60)"}, ""),
        ({"measuring": "ready(); time.sleep(60)"}, "kept\n"),
        (
            {"measuring": "ready(); time.sleep(60)", "delay": 0.3, "shown": "time.sleep(0.5)"},
            "kept\n",
        ),
        ({"measuring": f"ready(); {INSIDE_C}"}, ""),
        (
            {
                "start": f"threading.Thread(target=lambda: {INSIDE_C}).start()",
                "measuring": "ready(); threading.Event().wait(60)",
            },
            "kept\n",
        ),
    ],
)
def test_program_ends_at_an_interrupt_silently_within_a_second(parts, out):
    usual = dict.fromkeys(("start", "loading", "measuring", "shown"), "pass")
    code = CHILD.format(**{**usual, "delay": 0, **parts})
    status, written, err, seconds = interrupted(["-c", code])
    assert (status, written, err) == (130, out, "")
    assert seconds < 3  # less than one on a machine that does nothing else


def finished(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specdemo", *words],
        check=False, encoding="utf-8", stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **options},
    )  # fmt: skip


def test_program_writes_characters_that_the_encoding_lacks_as_escapes(tmp_path):
    events = [
        replace(event, next=replace(event.next, text="नé🙂"))
        if isinstance(event, Verified) and event.next and event.lane == SPECULATIVE
        else event
        for event in read(RECORDED).trace.events
    ]
    saved = tmp_path / "saved.jsonl"
    saved.write_text(dumps(events), encoding="utf-8")
    done = finished("replay", str(saved), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "\\u0928\\u00e9\\ud83d\\ude42" in done.stdout


@pytest.mark.parametrize("closed", [1, 2])
def test_program_runs_without_an_output(closed):
    done = finished("replay", str(RECORDED), preexec_fn=lambda: os.close(closed))
    assert done.returncode == 0
    assert (done.stdout, done.stderr)[closed - 1] == ""
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_program_reports_a_full_disk_in_a_sentence():
    with Path("/dev/full").open("w") as full:
        done = finished("methods", stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
