"""The engine client in the process of the models: it loads a pair, and answers prompts in conversations."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import Json
from specdemo.drafters.base import Method
from specdemo.drafters.methods import no_exact
from specdemo.engine.clock import Cancelled
from specdemo.engine.cost import CostProfile
from specdemo.engine.runner import Runner
from specdemo.files.catalogue import Pair, pairs
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.models.doctor import installed
from specdemo.models.memory import free_on, return_freed, way
from specdemo.models.outlook import Offer as Offer  # re-exported for the page
from specdemo.models.outlook import Outlook as Outlook
from specdemo.models.outlook import offer, offers, outlook, to_download
from specdemo.session.admission import Cancel
from specdemo.session.door import (
    About,
    ConversationClient,
    EngineClient,
    MethodInfo,
    Part,
    Work,
    streamed,
)
from specdemo.session.keeper import Keeper
from specdemo.session.loaded import (
    Loaded,
    compiling,
    fetch,
    load,
    machine_name,
    named,
    timed_passes,
)
from specdemo.session.runs import Caches, beside
from specdemo.session.text import Transcript, as_generated, encode_prompt
from specdemo.trace.events import NOTHING, PLAIN, SPECULATIVE, Event, RunStarted

if TYPE_CHECKING:
    from specdemo.drafters.memory.visit import Memory
    from specdemo.models.pair import LoadedPair

AUDIT_FILE = "audit.json"  # the last audit, in the cache folder
RETURNED = 16_000_000  # bytes of freed caches above which memory is returned to the system
REQUIRED_LIBRARIES = ("torch", "transformers")  # required for live runs


class Studio(EngineClient):
    """The loaded pair and its device, one per process. Thread-safe.

    Concurrent runs share the target's passes; each step of a trace reports how many did.
    runner: computes all passes in one thread; keeper: limits the memory between runs
    """

    thread_name = "specdemo-load"
    failed = "engine.load_failed"
    not_loaded = "engine.loading"

    def __init__(self, settings: AppSettings) -> None:
        super().__init__(settings, _why_replay_only(settings))
        self._loaded: Loaded | None = None
        self.runner = Runner()
        self.keeper = Keeper(settings.cache_mb * 1_000_000, 60.0 * settings.idle_minutes)

    def bring(self, report: ProgressCallback) -> None:
        """Load the pair, unless nothing runs live here."""
        if not self.replay_only:
            self._load(self.settings, report)

    @property
    def loaded(self) -> Loaded:
        """The loaded pair with its shipped data. Raises UserError if there is none."""
        if self._loaded is None:
            raise self.error or UserError(self.not_loaded)
        return self._loaded

    @property
    def pair(self) -> LoadedPair:
        return self.loaded.pair

    def _described(self, loaded: Loaded) -> About:
        pair, costs = loaded.pair, loaded.pair.costs
        trained = {need: dict(draft.card) for need, draft in pair.drafts.items() if draft.card}
        cards = {
            name: next((trained[need] for need in method.uses if need in trained), None)
            for name, method in self.known.items()
        }
        machine = {"name": machine_name(), "verify": costs.verify, "draft": costs.draft_step}
        return About(
            target=pair.target.info,
            methods=[_entry(method, loaded) for method in self.known.values()],
            stop_ids=frozenset(pair.stop_ids()),
            remark=loaded.remark,
            recommended=pair.recommended,
            machine=machine if costs != CostProfile() else None,
            cards={name: card for name, card in cards.items() if card},
        )

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    @property
    def together(self) -> int:
        """Number of concurrent runs, including one that is about to start in the compute thread."""
        return max(1, self.runner.going_on)

    def switch(self, target: str, precision: str, drafter: str | None = None) -> Iterator[Progress]:
        """Load another target with the draft "auto" for all users. If it raises UserError, the old pair stays.

        drafter: a published one; None for that of the settings if the target stays
        Active runs pause during loading and finish with the old pair. Closing this iterator cancels loading at
        its next report.
        """
        if self.replay_only:
            raise self.replay_only
        if drafter is None:  # a published drafter is for one target
            drafter = self.settings.drafter if target == self.settings.target else "none"
        settings = replace(
            self.settings, target=target, draft="auto", precision=precision, drafter=drafter
        )

        def work(reported: Callable[[Progress], None], given_up: Cancel) -> None:
            def report(progress: Progress) -> None:
                if given_up.is_set():
                    raise Cancelled
                reported(progress)

            self._load(settings, report, given_up.is_set)

        yield from streamed(work, threading.Event())

    def _load(
        self,
        settings: AppSettings,
        report: Callable[[Progress], None],
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fetch a pair here, and load it where everything is computed, between two steps of the runs."""
        settings, chosen = named(settings)

        def work() -> None:
            loaded = replace(load(settings, report, found), chosen=chosen)
            if not given_up():
                self.use(loaded)

        with compiling(settings):
            found = fetch(settings, report)
            self.runner.call(work)

    def use(self, loaded: Loaded) -> None:
        """Replace the loaded pair. Active runs use the old pair, whose memory is freed after the last of them.

        Later collections of garbage pass over all that is loaded now: one that visits it stops an answer for a quarter of a second.
        """
        about = self._described(loaded)
        self.settings, self.about = loaded.settings, about
        self._loaded, self.error = loaded, None
        self.keeper.leave(None)
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return_freed()

    def add(self, method: Method) -> None:
        """Register a method, replacing one of the same name."""
        self.known = {**self.known, method.name: method}
        if self._loaded:
            self.about = self._described(self._loaded)

    def last_audit(self) -> Json | None:
        """Read the proof again: other processes write it, too."""
        try:
            found = json.loads((self.settings.cache_dir / AUDIT_FILE).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def outlooks(self, precision: str) -> dict[str, Outlook]:
        """Return the outlook of loading each pair now, by target."""
        predict = self.predictor(precision)
        return {pair.name: predict(pair) for pair in pairs()}

    def predictor(self, precision: str) -> Callable[[Pair], Outlook]:
        """Return a function that predicts any pair in a precision on this machine."""
        known = timed_passes(self.settings) if installed("torch") else []
        free, cache = free_on(self.settings.device), self.settings.cache_dir
        how = way(self.settings, precision)
        return lambda pair: outlook(pair, how, cache, free, known)

    def to_download(self, target: str, precision: str) -> int | None:
        """Return the bytes that `switch` would download, without a published drafter; None if the size is unknown without the hub."""
        settings = self.settings
        how = way(settings, precision)
        return to_download(target, "auto", how, settings.cache_dir, settings.trained)

    def drafters(self, target: str) -> list[Offer]:
        """Return the catalogue's published drafters for a target, without network access."""
        return offers(target)

    def drafter(self, name: str, *, ask: bool) -> Offer:
        """Return a published drafter by its hub id or folder. ask: query the hub if it is not on this disk. Raises UserError."""
        return offer(name, ask=ask)

    def open(self, visitor: str = "") -> Conversation:
        return Conversation(self, visitor)

    def leave(self, visitor: str) -> None:
        self.keeper.leave(visitor)


def _entry(method: Method, loaded: Loaded) -> MethodInfo:
    """Return the menu entry of a method for a loaded pair."""
    error = no_exact(method, loaded.pair.costs.exact_rows)
    return MethodInfo.of(
        method,
        why_not=" ".join(filter(None, map(loaded.missing, method.needs))),
        memory_mb=sum(map(loaded.memory_mb, method.uses)),
        no_exact=error.message if error else "",
    )


def _why_replay_only(settings: AppSettings) -> UserError | None:
    """Return the reason why live runs are impossible: the settings or a missing library; None if they are possible."""
    if settings.replay:
        return UserError("engine.replay_only")
    missing = [name for name in REQUIRED_LIBRARIES if not installed(name)]
    if not missing:
        return None
    return UserError("engine.no_library", names=" and ".join(missing))


class Conversation(ConversationClient):
    """The messages of one user, with the caches of their runs."""

    host: Studio

    def __init__(self, host: Studio, visitor: str = "") -> None:
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
