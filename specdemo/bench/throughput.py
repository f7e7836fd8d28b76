"""Several conversations at once against the same ones in turn: new tokens a second over the wall clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from specdemo.bench.lanes import run_once
from specdemo.bench.report import aligned
from specdemo.session.studio import Studio
from specdemo.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Throughput:
    """One lane, medians over repetitions; the wall clock sees everything, reading the prompts included.

    conversations: how many at once
    in_turn, together: new tokens a second, all conversations added up
    ratio: together over in turn
    """

    lane: str
    conversations: int
    in_turn: float
    together: float
    ratio: float


def measure_throughput(
    studio: Studio,
    lane: str,
    settings: RunSettings,
    prompts: Sequence[str],
    *,
    repeat: int = 1,
    system: str = "",
) -> Throughput:
    """Answer the prompts in turn, then all at once, each in a conversation of its own. Raises what a run raised."""

    def answer(prompt: str, cancel: threading.Event | None = None) -> int:
        conversation = studio.open()
        try:
            return len(run_once(conversation, lane, prompt, settings, system, cancel).ids)
        finally:
            conversation.close()

    in_turn, together = [], []
    for _ in range(repeat):
        begun = time.perf_counter()
        tokens = sum(answer(prompt) for prompt in prompts)
        in_turn.append(tokens / (time.perf_counter() - begun))
        begun = time.perf_counter()
        tokens = sum(_at_once(answer, prompts))
        together.append(tokens / (time.perf_counter() - begun))
    ratio = median(many / one for many, one in zip(together, in_turn, strict=True))
    return Throughput(lane, len(prompts), median(in_turn), median(together), ratio)


def _at_once(answer: Callable[[str, threading.Event], int], prompts: Sequence[str]) -> list[int]:
    """Each prompt's answer from a thread of its own; an interruption cancels them all."""
    cancel = threading.Event()
    tokens, errors = [0] * len(prompts), []

    def work(place: int) -> None:
        try:
            tokens[place] = answer(prompts[place], cancel)
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(place,), name=f"specdemo-bench-{place}")
        for place in range(len(prompts))
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
    """Markdown: a row a lane."""
    heads = ["lane", "conversations", "in turn, tokens/s", "together, tokens/s", "ratio"]
    body = [
        [
            result.lane,
            str(result.conversations),
            f"{result.in_turn:.0f}",
            f"{result.together:.0f}",
            f"{result.ratio:.2f}x",
        ]
        for result in results
    ]
    return aligned(heads, body)
