"""Programs that tests run in processes of their own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "assets" / "runs" / "01-guess-and-check.jsonl"
COPIED = ("app.py", "assets", "docs", "pyproject.toml", "README.md", "specdemo", "tests", "tools")
LEFT = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.npz", "node_modules")

needs_node = pytest.mark.skipif(not shutil.which("node"), reason="no node")


def run(*words: object, cwd: Path = ROOT, text: str | None = None, **variables: str) -> str:
    """Run a program, which must succeed. text: its input; variables: of its environment. Returns its output, with its ends of lines."""
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, input=text and text.encode(), env={**os.environ, **variables},
        check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-4000:] + done.stderr[-4000:]).decode(
        errors="replace"
    )
    return done.stdout.decode()


def python(*words: object, **options: object) -> str:
    return run(sys.executable, *words, **options)


def copy_project(folder: Path) -> Path:
    """Copy the project without its weights, for a test that follows a document in the copy. Returns the folder."""
    folder.mkdir()
    for path in (ROOT / name for name in COPIED):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=LEFT)
        else:
            shutil.copy(path, folder)
    return folder


def python_in(folder: Path, *words: object) -> str:
    """Run Python in a copy of the project, with a cache next to it."""
    return python(*words, cwd=folder, SPECDEMO_CACHE=str(folder.parent / "cache"), COLUMNS="200")


def node(*words: object, **options: object) -> str:
    """Run a script of the page's parts, which finds the words and the recorded runs in its environment."""
    from specdemo.trace.replay import RUNS
    from specdemo.ui.words import VIEW

    given = {"SPECDEMO_WORDS": json.dumps(VIEW), "SPECDEMO_RUNS": str(RUNS)}
    return run("node", *words, **{**given, **options})


def module(code: str, **options: object) -> str:
    """Run a script that imports others."""
    return node("--input-type=module", "-e", code, **options)


def until(true: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Wait until a condition holds. what: the message of the failure after this many seconds"""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def free_port() -> int:
    """A port of this machine that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving_page(
    *words: object, log: Path, cwd: Path = ROOT, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that serves the page, and stop it when the block ends.

    log: file for its output; yields: the process, with the address of the page as `url`, and `log`
    """
    port = free_port()
    command = [*map(str, words), "--no-browser", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **variables}, stdout=output, stderr=output
        )
    process.url, process.log = f"http://127.0.0.1:{port}", log

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)  # each probe may be given that port as its own, and then reaches itself
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(answers, f"port {port} is not served", 120)
        yield process
    finally:
        process.kill()
        process.wait()
