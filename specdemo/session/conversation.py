"""A conversation: prompts that are answered one after the other, with the earlier messages as context."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specdemo.config.settings import RunSettings
from specdemo.engine.runner import Runner
from specdemo.models.memory import return_freed
from specdemo.session.door import ConversationClient, EngineClient, Part, Work
from specdemo.session.keeper import Keeper
from specdemo.session.loaded import Loaded, machine_name
from specdemo.session.runs import Caches, beside
from specdemo.session.text import Transcript, as_generated, encode_prompt
from specdemo.trace.events import NOTHING, PLAIN, SPECULATIVE, Event, RunStarted

if TYPE_CHECKING:
    from specdemo.drafters.memory.visit import Memory
    from specdemo.models.pair import LoadedPair

RETURNED = 16_000_000  # bytes of freed caches above which memory is returned to the system


class Host(EngineClient):
    """An engine client in the process of the models, with everything that its conversations share.

    runner: computes all passes in one thread; keeper: limits the memory between runs
    """

    runner: Runner
    keeper: Keeper

    @property
    @abstractmethod
    def loaded(self) -> Loaded:
        """The loaded pair with its shipped data. Raises UserError if there is none."""

    @abstractmethod
    def open(self, visitor: str = "") -> Conversation:
        """Return a new conversation. visitor: the user, whose caches are freed when the user leaves"""

    @property
    def together(self) -> int:
        """Number of concurrent runs, including one that is about to start in the compute thread."""
        return max(1, self.runner.going_on)


class Conversation(ConversationClient):
    """The messages of one user, with the caches of their runs."""

    host: Host

    def __init__(self, host: Host, visitor: str = "") -> None:
        super().__init__(host, visitor)
        self._caches: Caches | None = None
        self._memory: Memory | None = None
        self._running = 0

    @property
    def caches(self) -> Caches:
        """The caches on the loaded pair; new ones after a switch, a failed run or a release.

        Raises UserError without a pair.
        """
        loaded = self.host.loaded
        if self._caches is None or self._caches.broken or self._caches.loaded is not loaded:
            self._caches, self._memory = Caches(loaded), None
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

    def forget(self) -> None:
        self._memory = None

    def close(self) -> None:
        self.messages = []
        self._free()
        self.host.keeper.keep(self)

    def events(
        self,
        prompt: str,
        settings: RunSettings,
        cancel: threading.Event,
        *,
        system: str = "",
        every: float = 0.0,
    ) -> Generator[Event, None, None]:
        """Run the variants in the compute thread."""
        steps = self._run(prompt, settings.checked(), system, cancel)
        return self.host.runner.run(steps, every)

    def perform(
        self, work: Work, arguments: Mapping[str, object], cancel: threading.Event | None = None
    ) -> Iterator[Part]:
        return work(self, cancel or threading.Event(), **arguments)

    def _run(
        self, prompt: str, settings: RunSettings, system: str, cancel: threading.Event
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
            lane = PLAIN if settings.method == NOTHING else SPECULATIVE
            lanes = [(lane, settings)]
            if settings.baseline and lane != PLAIN:
                lanes.insert(0, (PLAIN, replace(settings, method=NOTHING)))
            if cancel.is_set():
                return
            own = [Caches(caches.loaded) for _ in lanes[1:]] + [caches]  # of each variant
            running = [
                one.lane(
                    prompt_ids,
                    lane_settings,
                    self._header(pair, lane, lane_settings, prompt, settings),
                    memory=self.memory if lane_settings.memory else None,
                    together=lambda: self.host.together,
                    cancelled=cancel.is_set,
                    sibling=next((other for other in own if other is not one), None),
                    known=self.host.known,
                )
                for one, (lane, lane_settings) in zip(own, lanes, strict=True)
            ]
            *_, answer = yield from beside(running)
            caches.transcript = Transcript(encoded, caches.committed)
        self._store(start, prompt, answer)

    def _header(
        self, pair: LoadedPair, lane: str, settings: RunSettings, prompt: str, asked: RunSettings
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
        )
        method = self.host.known.get(settings.method)
        if method is None:
            return header
        drafts = [pair.drafts[need].loaded_info() for need in method.needs if need in pair.drafts]
        header = replace(header, lossy=method.lossy, draft=next(iter(drafts), None))
        if "memory" in method.options and settings.memory and self._memory:
            header = replace(header, history=self._memory.rates(settings.method))
        return header
