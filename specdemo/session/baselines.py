"""Recent plain runs. While other users wait, one of them replaces the plain run that a drafted run is compared with."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from specdemo.config.settings import RunSettings
from specdemo.trace.events import Event, FinishReason, ModelInfo, RunFinished, RunStarted, StandIn
from specdemo.trace.metrics import measure

STORED_RUNS = 64  # newest runs that are stored
FEWEST_TOKENS = 16  # minimum length of a run whose rate is meaningful
RECENT_SECONDS = 900.0
ALIKE = 2.0  # lengths and companies differ by this factor at most


@dataclass(frozen=True, slots=True)
class _Kind:
    """Properties that must match when one plain run replaces another. together: number of concurrent runs"""

    target: ModelInfo
    greedy: bool
    tokens: int
    together: int

    def like(self, other: _Kind) -> bool:
        same = self.target == other.target and self.greedy == other.greedy
        pairs = ((self.tokens, other.tokens), (self.together, other.together))
        return same and all(max(pair) <= ALIKE * min(pair) for pair in pairs)


class Baselines:
    """The plain runs of a studio, of the machine and the pair that are loaded. Used in the compute thread.

    clock: seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: deque[tuple[_Kind, float, StandIn]] = deque(maxlen=STORED_RUNS)

    def find(
        self, target: ModelInfo, settings: RunSettings, prompt_tokens: int, together: int
    ) -> StandIn | None:
        """The newest plain run with similar settings; None if there is none."""
        wanted = _kind(target, settings, prompt_tokens, together)
        now = self._clock()
        for kind, ended, run in reversed(self._runs):
            if now - ended <= RECENT_SECONDS and kind.like(wanted):
                return StandIn(
                    run.tokens_per_second, run.new_tokens, run.prompt_tokens, now - ended
                )
        return None

    def watch(
        self,
        lane: Generator[Event, None, str],
        settings: RunSettings,
        together: int,
    ) -> Generator[Event, None, str]:
        """Yield the events of a run, and store it if it completes."""
        events: list[Event] = []
        with closing(lane):
            while True:
                try:
                    event = next(lane)
                except StopIteration as end:
                    self._remember(events, settings, together)
                    answer: str = end.value
                    return answer
                events.append(event)
                yield event

    def _remember(self, events: list[Event], settings: RunSettings, together: int) -> None:
        if not events or not isinstance(first := events[0], RunStarted):
            return
        last, metrics = events[-1], measure(events)
        whole = isinstance(last, RunFinished) and last.reason is not FinishReason.CANCELLED
        rate = metrics.tokens_per_second
        if not whole or not rate or metrics.new_tokens < FEWEST_TOKENS:
            return
        kind = _kind(first.target, settings, first.prompt_tokens, together)
        run = StandIn(rate, metrics.new_tokens, first.prompt_tokens, 0.0)
        self._runs.append((kind, self._clock(), run))


def _kind(target: ModelInfo, settings: RunSettings, prompt_tokens: int, together: int) -> _Kind:
    tokens = prompt_tokens + settings.max_new_tokens
    return _Kind(target, settings.sampling.greedy, tokens, max(1, together))
