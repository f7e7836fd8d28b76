"""How the page starts on a CPU Space: two cores, 16 GB, no GPU, an empty home, a source that cannot be written.

    python -m specdemo.bench.cold_start [--target NAME] [--json cold_start.json]

A copy of the checkout is served by a process that has no more than that: cores by its affinity, memory by a limit of its
address space. It is another user where this one may become one, else one without the right to write what is read-only.
What is downloaded is downloaded anew. Times count from the start of the process. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from specdemo.bench.visit import Outline, Visit, last_value
from specdemo.config.errors import UserError
from specdemo.config.paths import ASSETS

CORES = 2
MEMORY_BYTES = 16 << 30
NOBODY = 65534
DROP, RIGHTS = (
    24,
    (1, 2, 3),
)  # prctl's number for giving up rights: to write, read and own what others own
LOOK_SECONDS = 0.02
MOST_SECONDS = 900.0
FAILED = 503  # as `/health` answers where the model could not be loaded
MOST_READY = 120.0  # seconds that the model may take from an empty cache
KEPT = ("PATH", "LANG", "PIP_", "SSL_CERT", "HTTP", "NO_PROXY", "http", "no_proxy")
PROMPT = "Name three colours."
# The least page of Gradio's own.
BARE = """
import sys, gradio
with gradio.Blocks() as page:
    gradio.Textbox()
page.launch(server_name="127.0.0.1", server_port=int(sys.argv[1]), quiet=True, ssr_mode=False)
"""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds from the start of the process.

    page: until it is there; state: what it says of its model then; recorded: until a recorded run was read
    gradio: until the least page of Gradio is there, under the same conditions
    ready: until the model can answer; answered: until it has answered a prompt
    """

    page: float
    state: str
    recorded: float
    gradio: float | None = None
    ready: float | None = None
    answered: float | None = None
    answer: str = ""


def measure(variables: Mapping[str, str], *, whole: bool = True) -> ColdStart:
    """Start the page and visit it. variables: of the page's environment

    whole: also start Gradio's own page before, wait for the model and have a prompt answered; else these are None
    Raises UserError when the page or its model does not start.
    """
    with tempfile.TemporaryDirectory(prefix="specdemo-cold-") as folder:
        place = Path(folder)
        source, home = _copied(place / "source"), place / "home"
        home.mkdir()
        place.chmod(0o755)
        gradio = _gradio(home) if whole else None
        space = {"SPACE_ID": "owner/name", "SYSTEM": "spaces", **variables}
        with _started(["app.py", "--no-browser", "--port"], source, home, space) as page:
            first = page.wait(partial(page.read, "/"))
            state = page.state()
            index = json.loads(page.read("/files/0/runs/index.json"))
            page.read(f"/files/0/runs/{index['runs'][0]['name']}.jsonl")
            found = ColdStart(first, state, page.seconds, gradio)
            if not whole:
                return found
            ready = page.wait(lambda: page.state() != "loading")
            if page.state() != "ready":
                raise UserError("bench.model_not_loaded")
            answer = _answer(page.url)
            return replace(found, ready=ready, answered=page.seconds, answer=answer)


def _gradio(home: Path) -> float:
    with _started(["-c", BARE], home, home, {}) as page:
        return page.wait(partial(page.read, "/"))


def _answer(url: str) -> str:
    """What the page streams when a visitor asks."""
    outline = Outline(url)
    visit = Visit(outline)
    visit.open()
    visit.set("sd-prompt", PROMPT)
    begun = outline.call("sd-run")
    visit.ask(begun)
    sent = b"".join(visit.stream(outline.after(begun)))
    visit.leave()
    return last_value(sent)


class _Page:
    """A page and the process that serves it."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], begun: float) -> None:
        self.url = url
        self._process, self._begun = process, begun

    @property
    def seconds(self) -> float:
        """Since the process was started."""
        return time.perf_counter() - self._begun

    def read(self, path: str) -> bytes:
        """What is answered, also by a page whose model failed. Raises OSError."""
        try:
            with urllib.request.urlopen(self.url + path) as answer:  # noqa: S310 - our own server
                body: bytes = answer.read()
        except urllib.error.HTTPError as error:
            if error.code != FAILED:
                raise
            body = error.read()
        return body

    def state(self) -> str:
        """What the page says of its model."""
        status: str = json.loads(self.read("/health"))["status"]
        return status

    def wait(self, there: Callable[[], object]) -> float:
        """Ask until it is there. returns: seconds since the start; raises UserError when it does not come."""
        while self.seconds < MOST_SECONDS and self._process.poll() is None:
            try:
                if there():
                    return self.seconds
            except OSError:
                pass
            time.sleep(LOOK_SECONDS)
        raise UserError("bench.page_did_not_start")


@contextmanager
def _started(
    words: Sequence[str], folder: Path, home: Path, variables: dict[str, str]
) -> Iterator[_Page]:
    """A Python that serves a page; its port is the last of its words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    user: dict[str, Any] = {}
    if _may_be_nobody():
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        os.chown(home, NOBODY, NOBODY)
    begun = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, *words, str(port)],
        cwd=folder,
        env={**kept, "HOME": str(home), "CUDA_VISIBLE_DEVICES": "", **variables},
        preexec_fn=_confine,
        **user,
    )
    try:
        yield _Page(f"http://127.0.0.1:{port}", process, begun)
    finally:
        process.terminate()
        process.wait()


def _may_be_nobody() -> bool:
    """Whether a process may become another user who can run this Python."""
    if os.geteuid() != 0:
        return False
    try:
        command = [sys.executable, "-c", "import gradio"]
        subprocess.run(command, user=NOBODY, check=True, capture_output=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _confine() -> None:
    """In the new process: as little as a CPU Space has."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    libc = ctypes.CDLL(None)
    for right in RIGHTS:  # refused to who does not have them
        libc.prctl(DROP, right, 0, 0, 0)


def _copied(source: Path) -> Path:
    """What a Space has of the checkout, read-only."""
    root = ASSETS.parent
    hidden = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("specdemo", "assets"):
        shutil.copytree(root / name, source / name, ignore=hidden)
    shutil.copy(root / "app.py", source)
    for path in (source, *source.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return source


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table. returns: 0 where the model answers within two minutes"""
    parser = argparse.ArgumentParser(
        prog="python -m specdemo.bench.cold_start", description=__doc__
    )
    parser.add_argument("--target", default="", help="by default the page's own")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(argv)
    try:
        found = measure({"SPECDEMO_TARGET": options.target} if options.target else {})
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    figures = {name: value for name, value in asdict(found).items() if isinstance(value, float)}
    for name, value in figures.items():
        sys.stdout.write(f"{name:>10} {value:7.1f} s\n")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return int(found.ready is None or found.ready > MOST_READY)


if __name__ == "__main__":
    raise SystemExit(main())
