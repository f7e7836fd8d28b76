"""A crowd on the page: visitors with sessions of their own, mixed methods, random stops and closed tabs.

    python -m specdemo.bench.crowd --visitors 30 --minutes 10 [--url http://127.0.0.1:7860 --pid PID] [--json crowd.json]

Without an address it serves the page itself. Each visitor has random numbers of their own, drawn from the seed, and
a secret word in every prompt: a word of one visitor in what another sees is a leak. Returns 1 where a run failed,
a word leaked, the server wrote a traceback, its memory grew to the end, or a fresh visitor was not answered.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import string
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from specdemo.bench.crowd_report import Crowd, Memory, Run, failures, measurement, rows
from specdemo.bench.page_speed import served
from specdemo.bench.visit import Outline, Visit, last_value
from specdemo.config.errors import UserError

PROMPTS = (
    "Write three sentences about a town called {word}.",
    "Repeat the name {word} and say what it could mean.",
    "Tell a short story about {word}, who learns to swim.",
    "Explain to {word} how a bridge carries a train.",
    "{word} asks: why is the sky blue?",
)
LENGTHS = (16, 32, 64, 128)  # tokens
PAUSE_SECONDS = (0.5, 8.0)  # between a visitor's runs
ENDING_SECONDS = (0.5, 20.0)  # after which one who stops, stops, and one who goes, goes
STOPS, DROPS, CLEARS = 0.18, 0.11, 0.3  # shares of all runs
LOOK_SECONDS = 0.5  # between two looks at the server's memory
SETTLE_SECONDS = 5.0  # between the last visitor's leaving and the last look
LOADING_SECONDS = 600.0  # for the first answer: the model may have to be fetched
LAST_SECONDS = 60.0  # for runs that are stopped at the end to end
STARTED, TOKEN = (
    rb"\"type\":\"started\"",
    rb"\"type\":\"verified\"",
)  # as they stand in a text of JSON in JSON


class Secrets:
    """A word for each visitor that no text has by itself, and who has seen whose."""

    def __init__(self, visitors: int, seed: int) -> None:
        rng = random.Random(f"{seed} words")
        letters = string.ascii_lowercase
        self.words = [
            "".join(rng.choice(letters) for _ in range(9)).capitalize() for _ in range(visitors)
        ]

    def leaks(self, visitor: int, text: str) -> list[tuple[int, int]]:
        """Words of others in what a visitor saw."""
        return [
            (owner, visitor)
            for owner, word in enumerate(self.words)
            if owner != visitor and word.casefold() in text.casefold()
        ]


def attend(
    url: str, visitors: int, seconds: float, *, seed: int = 1, pid: int | None = None
) -> Crowd:
    """Send a crowd to a served page and see what becomes of it.

    pid: the server's process, whose memory is looked at where the system tells it
    Raises UserError when not even the first visitor is answered.
    """
    outline = Outline(url)
    secrets = Secrets(visitors + 2, seed)
    first = _Visitor(outline, secrets, visitors, seed).alone(LOADING_SECONDS)
    if first.outcome != "finished":
        raise UserError("bench.page_refuses", problem=first.problem or first.outcome)
    crowd = Crowd(visitors, seconds)
    watch = _Watch(crowd, pid)
    everybody = [_Visitor(outline, secrets, number, seed) for number in range(visitors)]
    threads = [threading.Thread(target=one.stay, args=(seconds,)) for one in everybody]
    watch.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.wait(SETTLE_SECONDS)
    crowd.fresh = _Visitor(outline, secrets, visitors + 1, seed).alone(LAST_SECONDS)
    watch.end()
    for one in everybody:
        crowd.runs += one.runs
        crowd.leaks += one.leaks
    return crowd


class _Visitor:
    """One visitor, who has random numbers of their own."""

    def __init__(self, outline: Outline, secrets: Secrets, number: int, seed: int) -> None:
        self.outline, self.secrets, self.number = outline, secrets, number
        self.rng = random.Random(f"{seed} visitor {number}")
        self.runs: list[Run] = []
        self.leaks: list[tuple[int, int]] = []

    def stay(self, seconds: float) -> None:
        """Ask, wait, read and ask again for so long."""
        end = time.perf_counter() + seconds
        time.sleep(self.rng.uniform(0, min(PAUSE_SECONDS[1], seconds / 4)))
        visit: Visit | None = None
        while time.perf_counter() < end:
            if visit is None or visit.left:
                visit = self._arrive()
            if visit is not None:
                self._turn(visit, end)
            pause = self.rng.uniform(*PAUSE_SECONDS)
            time.sleep(max(0.0, min(pause, end - time.perf_counter())))
        if visit is not None:
            visit.leave()

    def alone(self, seconds: float) -> Run:
        """Arrive, run one prompt to its end and leave."""
        run = Run(self.number, "nothing")
        try:
            visit = Visit(self.outline)
            visit.open()
            self._ask(visit, run, LENGTHS[0], ends="", at=time.perf_counter() + seconds)
            visit.leave()
        except (UserError, OSError, http.client.HTTPException) as error:
            run.outcome, run.problem = "failed", str(error) or type(error).__name__
        return run

    def _arrive(self) -> Visit | None:
        try:
            visit = Visit(self.outline)
            visit.open()
        except (UserError, OSError, http.client.HTTPException) as error:
            self._failed(Run(self.number, ""), error)
            return None
        return visit

    def _turn(self, visit: Visit, end: float) -> None:
        """One run, with whatever this visitor does to it."""
        choices = visit.get("sd-method", "choices")
        methods = [name for label, name in choices if "not available" not in label]
        run = Run(self.number, self.rng.choice(methods))
        length, kind = self.rng.choice(LENGTHS), self.rng.random()
        ends = "stop" if kind < STOPS else "drop" if kind < STOPS + DROPS else ""
        at = time.perf_counter() + self.rng.uniform(*ENDING_SECONDS)
        visit.set("sd-temperature", self.rng.choice((0, 0, 0.8)))
        visit.set("sd-baseline", self.rng.random() < 0.3)
        try:
            if self.rng.random() < CLEARS:
                visit.ask(self.outline.call("sd-new"))
            self._ask(visit, run, length, ends=ends or "stop", at=at if ends else end)
            self.runs.append(run)
        except (UserError, OSError, http.client.HTTPException) as error:
            self._failed(run, error)
            visit.leave()

    def _failed(self, run: Run, error: Exception) -> None:
        run.outcome, run.problem = "failed", str(error) or type(error).__name__
        self.runs.append(run)

    def _ask(self, visit: Visit, run: Run, length: int, *, ends: str, at: float) -> None:
        """Press Run and read what comes. ends: what the visitor does at that time, if the run goes on"""
        word = self.secrets.words[self.number]
        visit.set("sd-prompt", self.rng.choice(PROMPTS).format(word=word))
        visit.set("sd-method", run.method)
        visit.set("sd-max_new_tokens", length)
        begin = self.outline.call("sd-run")
        pressed = time.perf_counter()
        visit.ask(begin)
        done = threading.Event()
        acted: list[str] = []

        def act() -> None:
            if done.wait(max(0.0, at - time.perf_counter())):
                return
            acted.append(ends)
            if ends == "stop":
                visit.ask(self.outline.call("sd-stop"))
            if ends == "drop" or not done.wait(LAST_SECONDS):
                visit.leave()

        actor = threading.Thread(target=act)
        actor.start()
        sent = []
        try:
            for line in visit.stream(self.outline.after(begin)):
                sent.append(line)
                if run.waited is None and STARTED in line:
                    run.waited = time.perf_counter() - pressed
                if run.first is None and TOKEN in line:
                    run.first = time.perf_counter() - pressed
        finally:
            done.set()
            actor.join()
        run.seconds = time.perf_counter() - pressed
        if visit.left:
            run.outcome = "dropped" if ends == "drop" else "failed"
            run.problem = "" if ends == "drop" else "no end came after Stop"
            self.leaks += self.secrets.leaks(self.number, b"".join(sent).decode(errors="replace"))
            return
        seen = last_value(b"".join(sent))
        run.outcome, run.problem = outcome(seen, stopped=bool(acted))
        self.leaks += self.secrets.leaks(self.number, seen + shown(seen))


def outcome(seen: str, *, stopped: bool) -> tuple[str, str]:
    """How a run ended by its lines, and the sentence where it failed. stopped: the visitor pressed Stop"""
    lines = _lines(seen)
    for line in lines:
        if line["type"] in ("notice", "failed"):
            return "failed", str(line.get("message"))
    ends = [line["reason"] for line in lines if line["type"] == "finished"]
    if stopped and (not ends or ends[-1] == "cancelled"):
        return "stopped", ""
    if not ends:
        return "failed", "the run ended without a word"
    return "finished", ""


def shown(seen: str) -> str:
    """The texts of a run's tokens, what was kept and each draft, as running text: a word may be several tokens."""
    steps = [line for line in _lines(seen) if line["type"] == "verified"]
    kept = [
        node["text"]
        for step in steps
        for node in (*(step["nodes"][i] for i in step["path"]), step.get("next"))
        if node
    ]
    drafts = ["".join(node["text"] for node in step["nodes"]) for step in steps]
    return "\n".join(("".join(kept), *drafts))


def _lines(seen: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in seen.splitlines() if line.startswith("{")]


class _Watch(threading.Thread):
    """Looks at the server's memory and threads until it is told to end."""

    def __init__(self, crowd: Crowd, pid: int | None) -> None:
        super().__init__()
        self.crowd, self.pid = crowd, pid
        self.over = threading.Event()
        self.begun = time.perf_counter()

    def run(self) -> None:
        """Look now and then."""
        while True:
            found = self.pid and resident(self.pid)
            if found:
                self.crowd.memory.append(Memory(time.perf_counter() - self.begun, *found))
            if self.over.wait(LOOK_SECONDS):
                return

    def wait(self, seconds: float) -> None:
        """Let what was left be given back, at most as long as the crowd stayed."""
        time.sleep(min(seconds, self.crowd.seconds))

    def end(self) -> None:
        """Stop looking at the server."""
        self.over.set()
        self.join()


def resident(pid: int) -> tuple[float, int] | None:
    """A process' resident memory in MB and its threads; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(facts["VmRSS"].split()[0]) / 1000, int(facts["Threads"])


def main(arguments: Sequence[str] | None = None) -> int:
    """returns: 0 when all is as asked for, else 1"""
    parser = argparse.ArgumentParser(description="Send a crowd of visitors to the page.")
    parser.add_argument("--visitors", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", help="a page that is already served")
    parser.add_argument("--pid", type=int, help="the process that serves it, to see its memory")
    parser.add_argument("--json", type=Path, help="also write a measurement here")
    options = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryFile())
            url, pid = options.url, options.pid
            if not url:
                server = stack.enter_context(served(errors=log))
                url, pid = server.url, server.pid
            seconds = 60 * options.minutes
            crowd = attend(url, options.visitors, seconds, seed=options.seed, pid=pid)
            log.seek(0)
            text = log.read().decode(errors="replace")
    except (UserError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    crowd.tracebacks = text.count("Traceback (most recent call last)")
    if crowd.tracebacks:
        sys.stderr.write(text)
    sys.stdout.write("\n".join(f"{name:<44}{value}" for name, value in rows(crowd)) + "\n")
    if options.json:
        command = f"python -m specdemo.bench.crowd --visitors {options.visitors} --minutes {options.minutes:g} --json {options.json.as_posix()}"
        found = json.dumps(measurement(crowd, command), indent=1)
        options.json.write_text(found + "\n", encoding="utf-8")
    short = failures(crowd)
    for sentence in short:
        sys.stderr.write(sentence + "\n")
    return 1 if short else 0


if __name__ == "__main__":
    raise SystemExit(main())
