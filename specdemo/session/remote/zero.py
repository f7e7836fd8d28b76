"""Engines on a ZeroGPU Space: each request is a task in a fork of this process that has a GPU during the task.

Only the fork computes. This process stores the weights on an emulated device and passes them to each fork;
messages and measurements travel as arguments and results. See docs/deployment.md.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from typing import Any
from uuid import uuid4

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import Json
from specdemo.files.progress import Progress, silent
from specdemo.session.door import About
from specdemo.session.loaded import Loaded, fetch, named, place, warm
from specdemo.session.remote.client import Link, Lost, RemoteStudio
from specdemo.session.remote.server import Answer, Call, Engine, portable, run
from specdemo.session.studio import Studio
from specdemo.session.work import batch, race
from specdemo.trace.events import NOTHING

SECONDS_FACTOR = 1.4  # factor on the expected seconds of a run
WORKER_START_SECONDS = 10.0  # start of a worker, before a measurement
MOVE_SECONDS = 4.0  # part of the start: moving the weights to the GPU
TOKEN_SECONDS = 1 / 40  # plain decoding, before a measurement
STEPS = 8  # duration of one method at one position, in tokens
CROWD = 2  # factor on the duration of a token when several prompts share a pass


def zero_client(settings: AppSettings) -> RemoteStudio:
    """Return an engine client that borrows a GPU for each run. Open and load it in the main thread, before the page is served.

    `spaces` emulates CUDA in the thread that imports it, and must be imported before other libraries that use CUDA.
    """
    os.environ.setdefault("NUMBA_DISABLE_CUDA", "1")
    os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # weights are read in this thread too
    link = ZeroLink(settings)
    client = RemoteStudio(settings, link.place)
    link.learned = client.learn
    return client


class ZeroLink(Link):
    """A connection to a GPU: `spaces` allocates it, forks, and ends an unused fork."""

    whole = True

    def __init__(self, settings: AppSettings) -> None:
        spaces: Any = import_module("spaces")
        self._settings = settings
        # Seconds from a new worker's start to its answer, and per token of plain decoding.
        self._start, self._token = WORKER_START_SECONDS, TOKEN_SECONDS
        self._placed: Loaded | None = None
        self._about: About
        self.learned: Callable[[About], None] = lambda _: None  # called with measurements
        self._left: dict[str, Json] = {}  # by visitor
        # In a fork only: its engine, and by visitor the last run that the drafters' memory is from.
        self._runs: dict[str, str] = {}
        self._engine: Engine | None = None
        # Created immediately: a Space whose model cannot be loaded needs such a task too, or its page is not served.
        self._task = spaces.GPU(duration=self._duration)(self._work)

    def place(self, report: Callable[[Progress], None]) -> ZeroLink:
        """Load the weights, which `launch` stores in a file for the forks; returns itself. Raises UserError."""
        settings, chosen = named(self._settings)
        found = fetch(settings, report)
        self._placed = replace(place(settings, report, found), chosen=chosen)
        studio = Studio(settings)
        studio.use(self._placed)
        self._about = Engine(studio).about()
        return self

    def about(self) -> About:
        return self._about

    def stream(self, call: Call, ended: threading.Event) -> Generator[list[Answer], None, None]:
        """Request a GPU and call the engine. A task that was ended stops after its next value.

        Raises UserError if no GPU is available, and Lost if it was taken away.
        """
        try:
            with closing(self._task(call, self._left.get(call.visitor))) as task:
                for value in task:
                    if ended.is_set():
                        return
                    if isinstance(value, dict):
                        self._learn(**value)
                    elif value is not None:
                        yield [value]
        except Exception as error:
            raise meaning(error) from error

    def leave(self, visitor: str) -> None:
        """Drop the state of the visitor's runs; a worker ends by itself."""
        self._left.pop(visitor, None)

    def _duration(self, call: Call, _left: Json | None) -> int:
        """Return the seconds to request: a run is aborted if they are too few, and a user's quota may not allow many."""
        return round(self._start + SECONDS_FACTOR * self._token * tokens_of(call))

    def _learn(self, about: About | None = None, seconds: float = 0.0, **left: Any) -> None:
        """Store the measurements of a new worker, or the state that a run leaves for the user's next one."""
        if about is None:
            self._left[left["visitor"]] = left
            return
        assert about.machine  # a worker measures
        self._about = about
        self.learned(about)
        self._start = MOVE_SECONDS + SECONDS_FACTOR * seconds
        self._token = about.machine["verify"][0][1]

    def _work(self, call: Call, left: Json | None) -> Iterator[Answer | Json | None]:
        """Run the task in a fork. Yields None first, after which it may be ended, and dictionaries for `_learn`.

        left: the state of the user's last run. Errors are yielded, because `spaces` passes on only the class of one that is raised.
        """
        yield None
        cancel = threading.Event()
        try:
            with closing(self._answer(call, left, cancel)) as values:
                yield from values
        except Exception as error:  # noqa: BLE001 - raised again in the client
            yield portable(error)
        finally:
            cancel.set()

    def _answer(
        self, call: Call, left: Json | None, cancel: threading.Event
    ) -> Generator[Answer | Json, None, None]:
        if self._engine is None:
            assert self._placed  # set before the first request
            placed = self._placed
            begun = time.perf_counter()
            studio = Studio(placed.settings)
            studio.runner.call(lambda: studio.use(warm(placed, silent)))
            self._engine = Engine(studio)
            seconds = time.perf_counter() - begun
            yield {"about": self._engine.about(), "seconds": seconds}
        if call.work is not run:
            yield from self._engine.perform(call, cancel)
            return
        visitor, lesson = call.visitor, call.lesson
        conversation = self._engine.conversation(visitor, lesson)
        if left and left["lesson"] == lesson and left["run"] != self._runs.get(visitor):
            conversation.memory.go_on(left["memory"])
        yield from self._engine.perform(call, cancel)
        self._runs[visitor] = uuid4().hex
        yield {
            "visitor": visitor,
            "lesson": lesson,
            "run": self._runs[visitor],
            "memory": conversation.memory.carried(),
        }


def tokens_of(call: Call) -> int:
    """Return the tokens that a call computes at most."""
    work, asked = call.work, call.arguments
    if work is run:
        settings = asked["settings"]
        lanes = 2 if settings.baseline and settings.method != NOTHING else 1
        return lanes * int(settings.max_new_tokens)
    if work is race.race_lanes:
        return sum(race.WARM_UP_TOKENS + int(lane.max_new_tokens) for lane in asked["lanes"])
    if work is batch.answers:
        rounds: int = math.ceil(len(asked["prompts"]) / asked["at_once"])
        return int(asked["settings"].max_new_tokens) * rounds * CROWD
    return STEPS * len(asked["methods"])


def meaning(error: Exception) -> Exception:
    """Translate an error of `spaces` for the user; it deliberately raises only `gr.Error`."""
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
