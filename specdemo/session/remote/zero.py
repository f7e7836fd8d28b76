"""Engines on a ZeroGPU Space: each request is a task in a fork of this process, which has a GPU for as long as it lasts.

Only the fork computes. This process holds the weights on a device that is not there yet and hands them to each fork;
what a visitor said, and what the fork learned about speed, travels as arguments and lines. See docs/deployment.md.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any
from uuid import uuid4

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.files.progress import Progress, silent
from specdemo.session.door import Plain
from specdemo.session.loaded import Loaded, fetch, named, place, warm
from specdemo.session.remote.engine import Engine, line, name_of, reporting
from specdemo.session.remote.link import Lost
from specdemo.session.remote.remote import RemoteStudio
from specdemo.session.studio import Studio
from specdemo.session.work import batch, lab, proposals, race

ABOUT = "about"  # kind of the line that tells what a new worker measured
LEFT = "left"  # kind of the line that tells what a run leaves for the visitor's next one
OWN = (f'{{"type":"{ABOUT}"', f'{{"type":"{LEFT}"')
MARGIN = 1.4  # of the seconds that a run is expected to take
START_SECONDS = 10.0  # of a new worker, before one has told
MOVE_SECONDS = 4.0  # of it, to bring the weights to the GPU
TOKEN_SECONDS = 1 / 40  # of plain decoding, before a worker has measured it
STEPS = 8  # tokens' worth of time for one method at one position
CROWD = 2  # how much longer a token takes that several prompts share a pass for
TOKENS = 1024  # of work whose length is not known


def zero_door(settings: AppSettings) -> RemoteStudio:
    """A door to a GPU that each run borrows. Open and load it in the main thread, before the page is served.

    `spaces` emulates CUDA in the thread that imports it, and comes before other libraries that may touch CUDA.
    """
    os.environ.setdefault("NUMBA_DISABLE_CUDA", "1")
    os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # weights are read in this thread too
    return RemoteStudio(settings, ZeroLink(settings).place)


@dataclass(slots=True)
class Speed:
    """What runs take. start: seconds of a new worker until it answers; token: of one token of plain decoding"""

    start: float = START_SECONDS
    token: float = TOKEN_SECONDS

    def seconds(self, tokens: int) -> int:
        """What to ask for: too little and the run is aborted, too much and the visitor's time does not allow it."""
        return round(self.start + MARGIN * self.token * tokens)


class ZeroLink:
    """The way to a GPU: `spaces` finds one, forks, and ends the fork when nobody asks it any more."""

    whole = True

    def __init__(self, settings: AppSettings) -> None:
        spaces: Any = import_module("spaces")
        self._settings, self._speed = settings, Speed()
        self._placed: Loaded | None = None
        self._about: Plain = {}
        self._left: dict[str, Plain] = {}  # by visitor
        # In a fork only: its engine, and the last run by visitor that what they learned there is from.
        self._runs: dict[str, str] = {}
        self._engine: Engine | None = None
        # At once: a Space whose model cannot be loaded must have such a task too, or its page is not served.
        self._task = spaces.GPU(duration=self._duration)(self._work)

    def place(self, report: Callable[[Progress], None]) -> ZeroLink:
        """Load the weights, of which `launch` makes a file for the forks; returns itself. Raises UserError."""
        settings, chosen = named(self._settings)
        fetch(settings, report)
        self._placed = replace(place(settings, report), chosen=chosen)
        studio = Studio(settings)
        studio.use(self._placed)
        self._about = Engine(studio).about()
        return self

    def about(self) -> Plain:
        """See `Engine.about`; what only a pass can tell is added by the first worker."""
        return self._about

    def stream(self, method: str, visitor: str, request: Plain) -> ZeroStream:
        """Ask for a GPU and let it work. Nothing is asked for until somebody looks."""
        request = {**request, "left": self._left.get(visitor)}
        return ZeroStream(partial(self._task, method, request), self._learn)

    def leave(self, visitor: str) -> None:
        """What their runs left is dropped; a worker ends by itself."""
        self._left.pop(visitor, None)

    def replicas(self) -> int:
        """One: how many GPUs there are is not told."""
        return 1

    def _duration(self, method: str, request: Plain) -> int:
        return self._speed.seconds(tokens_of(method, request))

    def _learn(self, said: Plain) -> None:
        """What a worker tells."""
        if said["type"] == LEFT:
            self._left[said["visitor"]] = said
            return
        self._about |= said["about"]
        self._speed = Speed(
            MOVE_SECONDS + MARGIN * said["seconds"], said["about"]["machine"]["verify"][0][1]
        )

    def _work(self, method: str, request: Plain) -> Iterator[str]:
        """The task, in a fork: lines, each ended by a newline, and an empty piece at once, after which it may be ended."""
        yield ""
        cancel = threading.Event()
        try:
            with closing(reporting(lambda: self._answer(method, request, cancel))) as lines:
                for one in lines:
                    yield f"{one}\n"
        finally:
            cancel.set()

    def _answer(self, method: str, request: Plain, cancel: threading.Event) -> Iterator[str]:
        if self._engine is None:
            assert self._placed  # before anybody could ask
            placed = self._placed
            begun = time.perf_counter()
            studio = Studio(placed.settings)
            studio.runner.call(lambda: studio.use(warm(placed, silent)))
            self._engine = Engine(studio)
            seconds = time.perf_counter() - begun
            yield line(ABOUT, about=self._engine.about(), seconds=seconds)
        if method != "run":
            yield from self._engine.perform(request, cancel)
            return
        visitor, left = request["visitor"], request["left"]
        conversation = self._engine.conversation(visitor, request["lesson"])
        if left and left["lesson"] == request["lesson"] and left["run"] != self._runs.get(visitor):
            conversation.memory.go_on(left["memory"])
        yield from self._engine.run(request, cancel)
        self._runs[visitor] = uuid4().hex
        yield line(
            LEFT,
            visitor=visitor,
            lesson=request["lesson"],
            run=self._runs[visitor],
            memory=conversation.memory.carried(),
        )


class ZeroStream:
    """What one task answers. Raises UserError where there is no GPU for it, and Lost where it was taken away.

    ask: begins the task; learn: takes what a worker tells that is no event
    """

    def __init__(
        self, ask: Callable[[], Generator[str, None, None]], learn: Callable[[Plain], None]
    ) -> None:
        self._ask, self._learn = ask, learn
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[str]:
        """The pieces. A task that is cancelled ends after its next one."""
        try:
            with closing(self._ask()) as pieces:
                for piece in pieces:
                    if self._ended.is_set():
                        return
                    if piece.startswith(OWN):
                        self._learn(json.loads(piece))
                    else:
                        yield piece
        except Exception as error:
            raise meaning(error) from error

    def cancel(self) -> None:
        """End the task, from any thread."""
        self._ended.set()


def tokens_of(method: str, request: Plain) -> int:
    """How many tokens a request is about, at most."""
    if method == "run":
        settings = RunSettings.from_values(request["settings"])
        lanes = 2 if settings.baseline and settings.method != "nothing" else 1
        return lanes * settings.max_new_tokens
    known = _LENGTHS.get(request["work"])
    return known(request["arguments"]) if known else TOKENS


_LENGTHS: dict[str, Callable[[Plain], int]] = {
    name_of(race.race_lanes): lambda asked: sum(
        race.WARM_UP + lane["max_new_tokens"] for lane in asked["lanes"]
    ),
    name_of(batch.answers): lambda asked: (
        asked["settings"]["max_new_tokens"]
        * math.ceil(len(asked["prompts"]) / asked["at_once"])
        * CROWD
    ),
    name_of(proposals.steps_of_all): lambda asked: STEPS * len(asked["methods"]),
    name_of(lab.perfect_lanes): lambda _: lab.TOKENS * (3 + lab.ATTEMPTS * len(lab.LOOKAHEADS)),
    name_of(lab.random_lanes): lambda _: lab.TOKENS * (3 + 2 * len(lab.LOOKAHEADS)),
    name_of(lab.places_taken_back): lambda _: 4 * lab.POSITIONS,
}


def meaning(error: Exception) -> Exception:
    """What an error of `spaces` means to a visitor; `gr.Error` is the only kind that it raises on purpose."""
    said, kind = str(getattr(error, "message", "")), str(getattr(error, "title", ""))
    number = re.search(r"\((\d+)s", said)
    requested = number[1] if number else "?"
    if "aborted" in said or kind == "ZeroGPU worker error":
        return Lost(UserError("gpu.aborted"))
    if left := re.search(r"(\d+)s left\)\. Try again in (.+?)\. ?", said):
        return UserError("gpu.quota", requested=requested, left=left[1], wait=left[2])
    if "runs limit" in said:
        return UserError("gpu.runs")
    if "larger than the maximum" in said:
        return UserError("gpu.long", requested=requested)
    if "No GPU was available" in said:
        return UserError("gpu.busy")
    if "reached its GPU limit" in said:
        return UserError("gpu.not_signed_in")
    return UserError("gpu.unreachable", error=(said or str(error)).strip(" ."))
