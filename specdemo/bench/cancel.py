"""How long a run goes on after it was cancelled, while it reads a long prompt and while it answers.

    python -m specdemo.bench.cancel [--methods nothing,draft_model,auto] [--repeat 8] [--words 1500] [--json cancel.json]

The model is the one that the variables of the settings name, such as SPECDEMO_TARGET and SPECDEMO_PRECISION. Returns
1 where a run took longer than 0.3 s.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.session.studio import Studio
from specdemo.trace.events import Verified

LIMIT = 0.3  # seconds
READING, ANSWERING = "reading", "answering"
TOKENS = 400  # of an answer that is cancelled
SHORT = 12  # words of a prompt whose answer is cancelled
WORDS = ("river", "stone", "lamp", "seven", "green", "walk", "paper", "cloud", "north", "bread")


@dataclass(frozen=True, slots=True)
class Ends:
    """Seconds between cancelling and the end of each run of a method. during: READING or ANSWERING"""

    method: str
    during: str
    seconds: tuple[float, ...]


def measure(
    studio: Studio, methods: Sequence[str], *, repeat: int, words: int, seed: int = 1
) -> list[Ends]:
    """Cancel runs while they read, at random times before their first token, and while they answer, at random steps.

    repeat: runs of a method in each of the two; words: of a long prompt, another one for each run
    Raises UserError for what cannot be run.
    """
    rng = random.Random(seed)
    found = []
    for method in methods:
        settings = RunSettings(method=method, baseline=False, max_new_tokens=TOKENS)
        first = _Run(studio, settings)
        first.go(_prompt(rng, words), step=0)
        reading, answering = [], []
        for _ in range(repeat):
            after = rng.uniform(0.05, 0.95) * first.first_token
            reading.append(_Run(studio, settings).go(_prompt(rng, words), after=after))
            step = rng.randrange(1, TOKENS // 10)
            answering.append(_Run(studio, settings).go(_prompt(rng, SHORT), step=step))
        found += [
            Ends(method, READING, tuple(reading)),
            Ends(method, ANSWERING, tuple(answering)),
        ]
    return found


def _prompt(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


class _Run:
    """One run in a conversation of its own. first_token: seconds to its first token"""

    def __init__(self, studio: Studio, settings: RunSettings) -> None:
        self.first_token = 0.0
        self._studio, self._settings = studio, settings
        self._cancel = threading.Event()
        self._cancelled = 0.0

    def go(self, prompt: str, *, after: float | None = None, step: int | None = None) -> float:
        """Run, and cancel after so many seconds or at this step. returns: seconds from there to the end of the run"""
        conversation = self._studio.open()
        timer = threading.Timer(after, self._end) if after is not None else None
        begun = time.perf_counter()
        if timer:
            timer.start()
        for event in conversation.run(prompt, self._settings, cancel=self._cancel):
            if isinstance(event, Verified):
                self.first_token = self.first_token or time.perf_counter() - begun
                if event.step == step:
                    self._end()
        seconds = time.perf_counter() - (self._cancelled or time.perf_counter())
        if timer:
            timer.cancel()
        conversation.close()
        return seconds

    def _end(self) -> None:
        self._cancelled = time.perf_counter()
        self._cancel.set()


def table(found: Sequence[Ends]) -> str:
    """Median and maximum in seconds, a line a method and phase."""
    lines = [f"{'method':<16}{'while':<12}{'median':>8}{'most':>8}"]
    lines += [
        f"{one.method:<16}{one.during:<12}{statistics.median(one.seconds):>8.3f}{max(one.seconds):>8.3f}"
        for one in found
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """returns: 0 when each run ended within the limit, else 1"""
    parser = argparse.ArgumentParser(description="Measure how soon a cancelled run ends.")
    parser.add_argument("--methods", default="nothing,draft_model,auto")
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--words", type=int, default=1500)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args(arguments)
    studio = Studio(AppSettings.from_environment())
    try:
        studio.load()
        methods = options.methods.split(",")
        found = measure(studio, methods, repeat=options.repeat, words=options.words)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table(found) + "\n")
    if options.json:
        rows = json.dumps([asdict(one) for one in found], indent=1)
        options.json.write_text(rows + "\n", encoding="utf-8")
    return int(any(max(one.seconds) > LIMIT for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
