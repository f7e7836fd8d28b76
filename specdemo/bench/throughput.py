"""Several conversations at the same time, against the same ones in turn and against plain decoding."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import median

from specdemo.bench.lanes import run_once
from specdemo.bench.results import Table, as_factor
from specdemo.config.settings import RunSettings
from specdemo.session.studio import Studio


@dataclass(frozen=True, slots=True)
class Throughput:
    """Medians over repetitions of one variant. The wall clock includes reading the prompts.

    conversations: how many ran at the same time
    in_turn, together: new tokens per second of all conversations
    ratio: together over in turn; over_plain: together over plain decoding together, in the same repetition
    """

    lane: str
    conversations: int
    in_turn: float
    together: float
    ratio: float
    over_plain: float


def measure_throughput(
    studio: Studio,
    lanes: Mapping[str, RunSettings],
    prompts: Sequence[str],
    *,
    repeat: int = 1,
    system: str = "",
) -> list[Throughput]:
    """Answer the prompts in turn, and at the same time, each in its own conversation. Raises the error of a run.

    lanes: the others are compared with the first one. Each repetition measures all of them in another order, so
        that other work on the machine slows all of them alike.
    """

    def answer(lane: str, cancel: threading.Event, prompt: str) -> int:
        with closing(studio.open()) as conversation:
            return len(run_once(conversation, lane, prompt, lanes[lane], system, cancel).ids)

    in_turn: dict[str, list[float]] = {lane: [] for lane in lanes}
    together: dict[str, list[float]] = {lane: [] for lane in lanes}
    names = list(lanes)
    for number in range(repeat):
        first = number % len(names)
        order = names[first:] + names[:first]
        for lane in order:
            cancel = threading.Event()
            run = partial(answer, lane, cancel)
            together[lane].append(_rate(partial(_answer_together, run, prompts, cancel)))
        for lane in order:
            run = partial(answer, lane, threading.Event())
            in_turn[lane].append(_rate(partial(map, run, prompts)))
    plain = together[names[0]]
    return [
        Throughput(
            lane,
            len(prompts),
            median(in_turn[lane]),
            median(together[lane]),
            _median_ratio(together[lane], in_turn[lane]),
            _median_ratio(together[lane], plain),
        )
        for lane in names
    ]


def _rate(work: Callable[[], Iterable[int]]) -> float:
    """Return the tokens per second of runs that return their numbers of tokens."""
    started = time.perf_counter()
    tokens = sum(work())
    return tokens / (time.perf_counter() - started)


def _median_ratio(many: Sequence[float], one: Sequence[float]) -> float:
    return median(a / b for a, b in zip(many, one, strict=True))


def _answer_together(
    answer: Callable[[str], int], prompts: Sequence[str], cancel: threading.Event
) -> list[int]:
    """Answer each prompt in its own thread. An error or an interruption cancels all runs."""
    with ThreadPoolExecutor(len(prompts), "specdemo-bench") as pool:
        try:
            return list(pool.map(answer, prompts))
        finally:
            cancel.set()


def throughput_table(results: Sequence[Throughput]) -> Table:
    heads = ["conversations", "lane", "in turn, tokens/s", "together, tokens/s", "over in turn", "over plain together"]  # fmt: skip
    body = [
        [one.conversations, one.lane, f"{one.in_turn:.0f}", f"{one.together:.0f}",
         as_factor(one.ratio), as_factor(one.over_plain)]
        for one in results
    ]  # fmt: skip
    return Table(heads, body, title="Several conversations at once")
