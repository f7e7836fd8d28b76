"""Several conversations at once against the same ones in turn, and against plain decoding: new tokens a second over the wall clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from specdemo.bench.lanes import run_once
from specdemo.bench.report import aligned
from specdemo.config.settings import RunSettings
from specdemo.session.studio import Studio


@dataclass(frozen=True, slots=True)
class Throughput:
    """One lane, medians over repetitions; the wall clock sees everything, reading the prompts included.

    conversations: how many at once
    in_turn, together: new tokens a second, all conversations added up
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
    """Answer the prompts in turn, and all at once, each in a conversation of its own. Raises what a run raised.

    lanes: the first is what the others are compared with. All are measured in each repetition, in changing order, so
        that a machine that others use as well disturbs all of them alike.
    """

    def answer(lane: str, prompt: str, cancel: threading.Event | None = None) -> int:
        conversation = studio.open()
        try:
            found = run_once(conversation, lane, prompt, lanes[lane], system, cancel)
            return len(found.ids)
        finally:
            conversation.close()

    def rate(work: Callable[[], Iterable[int]]) -> float:
        begun = time.perf_counter()
        tokens = sum(work())
        return tokens / (time.perf_counter() - begun)

    in_turn: dict[str, list[float]] = {lane: [] for lane in lanes}
    together: dict[str, list[float]] = {lane: [] for lane in lanes}
    names = list(lanes)
    for number in range(repeat):
        first = number % len(names)
        order = names[first:] + names[:first]
        for lane in order:
            one = partial(answer, lane)
            together[lane].append(rate(partial(_at_once, one, prompts)))
        for lane in order:
            in_turn[lane].append(rate(partial(map, partial(answer, lane), prompts)))
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


def _median_ratio(many: Sequence[float], one: Sequence[float]) -> float:
    return median(a / b for a, b in zip(many, one, strict=True))


def _at_once(answer: Callable[[str, threading.Event], int], prompts: Sequence[str]) -> list[int]:
    """Each prompt's answer from a thread of its own; an interruption cancels them all."""
    cancel = threading.Event()
    tokens, errors = [0] * len(prompts), []

    def work(number: int) -> None:
        try:
            tokens[number] = answer(prompts[number], cancel)
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(number,), name=f"specdemo-bench-{number}")
        for number in range(len(prompts))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        cancel.set()
    if errors:
        raise errors[0]
    return tokens


def as_table(results: Sequence[Throughput]) -> str:
    """Markdown: a row a lane and count."""
    heads = ["conversations", "lane", "in turn, tokens/s", "together, tokens/s", "over in turn", "over plain together"]  # fmt: skip
    body = [
        [
            str(result.conversations),
            result.lane,
            f"{result.in_turn:.0f}",
            f"{result.together:.0f}",
            f"{result.ratio:.2f}x",
            f"{result.over_plain:.2f}x",
        ]
        for result in results
    ]
    return aligned(heads, body)
