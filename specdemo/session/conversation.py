"""A conversation: prompts that are answered one after the other, with the earlier messages as context.

Recent plain runs are stored: while other users wait, one of them replaces the plain run that a drafted run is compared with.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specdemo.config.settings import RunSettings
from specdemo.config.strings import Json
from specdemo.models.devices import return_freed
from specdemo.session.door import ConversationClient
from specdemo.session.loaded import machine_name
from specdemo.session.runs import Caches, beside
from specdemo.session.text import Transcript, as_generated, encode_prompt
from specdemo.trace.events import (
    PLAIN,
    SPECULATIVE,
    Event,
    FinishReason,
    ModelInfo,
    RunFinished,
    RunStarted,
    StandIn,
)
from specdemo.trace.metrics import measure

if TYPE_CHECKING:
    from specdemo.drafters.memory.visit import Memory
    from specdemo.models.pair import LoadedPair
    from specdemo.session.door import Work
    from specdemo.session.loaded import Loaded
    from specdemo.session.studio import Studio


RETURNED = 16_000_000  # bytes of freed caches above which memory is returned to the system


class Conversation(ConversationClient):
    """The messages of one user, with the caches of their runs.

    visitor: its user, who may have several conversations; host: studio that opened it
    """

    def __init__(self, host: Studio, visitor: str = "") -> None:
        super().__init__()
        self.visitor = visitor
        self.host = host
        self._pair: weakref.ref[Loaded] | None = None  # pair of the caches and the memory
        self._caches: Caches | None = None
        self._memory: Memory | None = None
        self._running = 0

    @property
    def caches(self) -> Caches:
        """The caches on the loaded pair; new ones after a switch, a failed run or a release.

        Raises UserError without a pair.
        """
        loaded = self.host.loaded
        if self._is_of_another(loaded) or (self._caches and self._caches.broken):
            self._caches = self._memory = None
        self._pair = weakref.ref(loaded)
        self._caches = self._caches or Caches(loaded)
        return self._caches

    @property
    def memory(self) -> Memory:
        """Texts and counts of this session's runs on the loaded pair, created on first use."""
        from specdemo.drafters.memory.visit import Memory

        assert self.caches  # replacing the caches of another pair also drops their memory
        self._memory = self._memory or Memory()
        return self._memory

    @contextmanager
    def using(self) -> Iterator[Caches]:
        """Lock the caches against release inside the block. Raises UserError without a pair."""
        self._running += 1
        self.host.keeper.begin(self)
        try:
            yield self.caches
        finally:
            self._running -= 1
            if self.host.ready:
                self.release(self.host.loaded)
            self.host.keeper.keep(self)

    @property
    def held_bytes(self) -> int:
        """Bytes that remain between two runs: the caches and the drafters' memory."""
        return sum(one.memory_bytes for one in (self._caches, self._memory) if one)

    def give_back(self) -> bool:
        """Free the caches and the drafters' memory unless a run is active. The messages stay; the next run reads them again.

        returns: whether they were freed
        """
        if self._running:
            return False
        self._free()
        return True

    def _free(self) -> None:
        large = self.held_bytes >= RETURNED
        self._caches = self._memory = None
        if large:
            return_freed()

    def _is_of_another(self, loaded: Loaded) -> bool:
        return self._pair is not None and self._pair() is not loaded

    def forget(self) -> None:
        self._memory = None

    def close(self) -> None:
        self.messages = []
        self._free()
        self.host.keeper.forget(self)

    def release(self, loaded: Loaded) -> None:
        """Free the caches of another pair; an active run frees them when it ends."""
        if self._is_of_another(loaded) and not self._running:
            self._caches = self._memory = None

    def run(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
        others_wait: bool = False,
    ) -> Generator[Event, None, None]:
        """Answer a prompt, see `ConversationClient.run`.

        While others wait, a recent plain run may replace the baseline; the header of the drafted run reports it.
        others_wait: whether users wait in a queue elsewhere; the queue of this engine is always checked
        """
        waited = self.host.admission.waited_by(self.visitor)
        events = self.events(
            prompt, settings, system=system, cancel=cancel, every=every, others_wait=others_wait
        )
        yield from self.host.meter.watch(events, waited)

    def events(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
        others_wait: bool = False,
    ) -> Iterator[Event]:
        """Yield the same events as `run`, which the host's meter does not count."""
        cancel = cancel or threading.Event()
        steps = self._run(prompt, settings.checked(), system, cancel, others_wait=others_wait)
        return self.host.runner.run(steps, every)

    def perform(
        self, work: Work, arguments: Mapping[str, object], cancel: threading.Event | None = None
    ) -> Iterator[Json]:
        return work(self, cancel or threading.Event(), **arguments)

    def _run(
        self,
        prompt: str,
        settings: RunSettings,
        system: str,
        cancel: threading.Event,
        *,
        others_wait: bool,
    ) -> Generator[Event, None, None]:
        """Yield the events of all variants of a prompt, on the pair that is loaded at its start."""
        start = self._start
        with self.using() as caches:
            pair = caches.loaded.pair
            settings = settings.drawn(pair.recommended.sampling)
            if method := self.host.known.get(settings.method):
                settings = method.honoured(settings)  # the trace names the policy in use
            encoded = encode_prompt(
                pair.tokenizer,
                prompt,
                pair.context,
                system=system,
                earlier=self.messages,
                most=caches.loaded.settings.prompt_tokens,
            )
            prompt_ids = as_generated(pair.tokenizer, encoded, caches.transcript)
            lanes, stand_in = self._lanes(settings, pair, len(prompt_ids), others_wait=others_wait)
            if cancel.is_set():
                return
            together = self.host.together
            own = [Caches(caches.loaded) for _ in lanes[1:]] + [caches]  # of each variant
            running = [
                one.lane(
                    prompt_ids,
                    lane_settings,
                    self._header(pair, lane, lane_settings, prompt, settings, stand_in),
                    memory=self.memory if lane_settings.memory else None,
                    together=lambda: self.host.together,
                    cancelled=cancel.is_set,
                    sibling=next((other for other in own if other is not one), None),
                    known=self.host.known,
                )
                for one, (lane, lane_settings) in zip(own, lanes, strict=True)
            ]
            *_, answer = yield from beside(running)
            for one, (lane, lane_settings) in zip(own, lanes, strict=True):
                if lane == PLAIN:
                    self.host.baselines.store(one.events, lane_settings, together)
            caches.transcript = Transcript(encoded, caches.committed)
        self._store(start, prompt, answer)

    def _lanes(
        self, settings: RunSettings, pair: LoadedPair, prompt_tokens: int, *, others_wait: bool
    ) -> tuple[list[tuple[str, RunSettings]], StandIn | None]:
        """Return the variants of a run, and the earlier plain run that replaces the baseline, if there is one."""
        plain = replace(settings, method="nothing")
        if settings.method == "nothing":
            return [(PLAIN, plain)], None
        drafted = [(SPECULATIVE, settings)]
        if not settings.baseline:
            return drafted, None
        host, stand_in = self.host, None
        if settings.stand_in and (others_wait or host.admission.waits_beside(self.visitor)):
            stand_in = host.baselines.find(pair.target.info, plain, prompt_tokens, host.together)
        return (drafted if stand_in else [(PLAIN, plain), *drafted]), stand_in

    def _header(
        self,
        pair: LoadedPair,
        lane: str,
        settings: RunSettings,
        prompt: str,
        asked: RunSettings,
        stand_in: StandIn | None,
    ) -> RunStarted:
        """Create the header of a variant. settings: of the variant; asked: of the whole run"""
        header = RunStarted(
            lane=lane,
            method=settings.method,
            prompt=prompt,
            settings=asked.to_dict(),
            target=pair.target.info,
            machine=machine_name(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            verify_costs=pair.costs.verify,
            draft_cost=pair.costs.draft_step,
            stand_in=stand_in,
        )
        method = self.host.known.get(settings.method)
        if method is None:
            return header
        header = replace(header, lossy=method.lossy, draft=_draft_info(pair, method.needs))
        if "memory" in method.options and settings.memory and self._memory:
            header = replace(header, history=self._memory.rates(settings.method))
        return header


def _draft_info(pair: LoadedPair, needs: tuple[str, ...]) -> ModelInfo | None:
    if "copy" in needs:
        return pair.copy.info() if pair.copy else None
    for need in needs:
        if need in pair.trained:
            return pair.trained[need].info
    return pair.draft_info if "draft" in needs else None


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
                return replace(run, age_seconds=now - ended)
        return None

    def store(self, events: Sequence[Event], settings: RunSettings, together: int) -> None:
        """Store a run if it is complete, and long enough."""
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
