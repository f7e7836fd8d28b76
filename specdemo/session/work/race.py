"""A race: variants on the same prompt, run one after the other, for a view that replays them on one clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.session.door import EngineClient, Part, perform
from specdemo.session.studio import Conversation
from specdemo.trace.events import LANES, NOTHING, PLAIN, SPECULATIVE, Event
from specdemo.trace.replay import RecordedRun, recorded_runs

LEAST, MOST = 2, 4  # number of variants
WARM_UP_TOKENS = 8  # tokens of the warm-up before a variant, which is not timed


def run_race(
    studio: EngineClient,
    prompt: str,
    lanes: Sequence[RunSettings],
    *,
    cancel: threading.Event | None = None,
    every: float = 0.0,
) -> Generator[tuple[int, Event | None], None, None]:
    """Run the variants one after the other: concurrent runs would disturb each other. All use the same engine.

    Each has its own conversation, and first a short pass as warm-up.
    yields: (number of the variant, event); None for the event when a variant starts
    cancel: ends the active variant within a step; later ones do not start
    every: polling interval in seconds, see `Runner.run`
    Raises UserError before the first variant if one cannot be run, and for an invalid prompt.
    """
    lanes = [replace(settings, baseline=False).checked() for settings in lanes]
    _check(studio, lanes)
    cancel = cancel or threading.Event()
    running = perform(studio, race_lanes, cancel, prompt=prompt, lanes=lanes, every=every)
    with closing(running) as parts:
        for number, own in groupby(parts, key=itemgetter(0)):
            yield number, None
            events = (event for _, event in own if isinstance(event, Event))
            yield from ((number, event) for event in studio.meter.watch(events))


def race_lanes(
    conversation: Conversation,
    cancel: threading.Event,
    *,
    prompt: str,
    lanes: Sequence[RunSettings],
    every: float,
) -> Iterator[Part]:
    """Run the variants of a race where the models are. yields: the number of a variant, with an event, or None when it starts"""
    for number, settings in enumerate(lanes):
        if cancel.is_set():
            return
        yield number, None
        short = replace(settings, max_new_tokens=min(WARM_UP_TOKENS, settings.max_new_tokens))
        for part, shown in ((short, False), (settings, True)):
            with closing(conversation.host.open()) as own:
                for event in own.events(prompt, part, cancel, every=every):
                    if shown:
                        yield number, event


def _check(studio: EngineClient, lanes: Sequence[RunSettings]) -> None:
    if not LEAST <= len(lanes) <= MOST:
        raise UserError("race.lanes", least=LEAST, most=MOST, count=len(lanes))
    methods = {method.name: method for method in studio.methods()}
    for settings in lanes:
        method = methods.get(settings.method)
        if method is None:
            raise UserError("method.unknown", method=settings.method, names=", ".join(methods))
        if not method.available:
            raise UserError("race.unsupported", method=method.title, why_not=method.why_not)


@dataclass(frozen=True, slots=True)
class RecordedLane:
    """One variant of a recorded run."""

    run: RecordedRun
    lane: str = SPECULATIVE

    @property
    def method(self) -> str:
        return NOTHING if self.lane == PLAIN else self.run.method


@dataclass(frozen=True, slots=True)
class RecordedRace:
    """A race assembled from recorded runs. precisions: whether it compares precisions of the target"""

    prompt: str
    lanes: tuple[RecordedLane, ...]
    precisions: bool = False


def recorded_together(folder: Path) -> list[list[RecordedRun]]:
    """Group a folder's recorded runs with drafts by text, target and sampling.

    In the order of the folder's index; runs without a file are skipped.
    """
    groups: dict[tuple[str, str, str, str], list[RecordedRun]] = {}
    for run in recorded_runs(folder):
        sampling = json.dumps(run.settings.get("sampling", {}), sort_keys=True)
        if run.method != NOTHING:
            key = run.prompt, run.target, run.precision, sampling
            groups.setdefault(key, []).append(run)
    return list(groups.values())


def recorded_races(folder: Path) -> list[RecordedRace]:
    """Return the races that recordings allow: several methods on a prompt, and a prompt in several precisions."""
    together = recorded_together(folder)
    races = []
    for runs in together:
        lanes = RecordedLane(runs[0], PLAIN), *map(RecordedLane, runs)
        if len(runs) >= LEAST:
            races.append(RecordedRace(runs[0].prompt, lanes[:MOST]))
    by_prompt: dict[tuple[str, str], dict[str, RecordedRun]] = {}
    for run, *_ in together:
        by_prompt.setdefault((run.prompt, run.target), {}).setdefault(run.precision, run)
    for (prompt, _), first in by_prompt.items():
        if len(first) > 1:
            pairs = [RecordedLane(run, lane) for run in first.values() for lane in LANES]
            races.append(RecordedRace(prompt, tuple(pairs[:MOST]), precisions=True))
    return races
