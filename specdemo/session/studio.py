"""The local engine client: loads a pair and opens conversations, independent of any view."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended
from specdemo.config.strings import Json, JsonView
from specdemo.drafters.methods import METHODS, NEEDED, no_exact
from specdemo.engine.runner import Runner
from specdemo.files.catalogue import pairs
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.models.devices import return_freed
from specdemo.models.doctor import installed
from specdemo.session.conversation import Baselines, Conversation
from specdemo.session.door import EngineClient, MethodInfo
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

if TYPE_CHECKING:
    from specdemo.drafters.base import Method
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.files.catalogue import Pair
    from specdemo.models.outlook import Offer, Outlook
    from specdemo.models.pair import LoadedPair
    from specdemo.trace.events import ModelInfo

REQUIRED_LIBRARIES = ("torch", "transformers")  # required for live runs


class ReplayOnly(UserError):
    """There are no live runs here; recorded ones need nothing that is missing."""


class _GivenUp(BaseException):
    """Loading was cancelled."""


class Studio(EngineClient):
    """The loaded pair and its device, one per process. Thread-safe.

    Concurrent runs share the target's passes; each step of a trace reports how many did.
    """

    thread_name = "specdemo-load"
    failed = "engine.load_failed"

    def __init__(self, settings: AppSettings) -> None:
        super().__init__(settings, lambda: 1, _why_replay_only(settings))
        self._loaded: Loaded | None = None
        self._conversations: weakref.WeakSet[Conversation] = weakref.WeakSet()
        self.runner = Runner()
        self.keeper = Keeper(settings.cache_mb * 1_000_000, 60.0 * settings.idle_minutes)
        self.baselines = Baselines()
        self.known: Mapping[str, Method] = METHODS

    def bring(self, report: ProgressCallback) -> None:
        """Load the pair, unless nothing runs live here."""
        if not self.replay_only:
            self._load(self.settings, report)

    @property
    def settings(self) -> AppSettings:
        """Settings of the loaded pair, or those that the studio was opened with."""
        return self._loaded.settings if self._loaded else self._settings

    @property
    def loaded(self) -> Loaded:
        """The loaded pair with its shipped data. Raises UserError if there is none."""
        if self._loaded is None:
            raise self.error or UserError("engine.loading")
        return self._loaded

    @property
    def pair(self) -> LoadedPair:
        return self.loaded.pair

    @property
    def target(self) -> ModelInfo:
        return self.pair.target.info

    @property
    def remark(self) -> str:
        return self._loaded.remark if self._loaded else ""

    @property
    def recommended(self) -> Recommended:
        return self._loaded.pair.recommended if self._loaded else Recommended()

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset(self.pair.stop_ids())

    def machine(self) -> Json | None:
        from specdemo.engine.cost import CostProfile

        if not self.ready or self.pair.costs == CostProfile():
            return None
        costs = self.pair.costs
        return {"name": machine_name(), "verify": costs.verify, "draft": costs.draft_step}

    @property
    def store(self) -> Datastore | None:
        return self.loaded.store

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    @property
    def together(self) -> int:
        """Number of concurrent runs, including one that is about to start in the compute thread."""
        return max(1, self.runner.going_on)

    def switch(
        self, target: str, draft: str, precision: str, drafter: str | None = None
    ) -> Iterator[Progress]:
        """Load another pair for all users, see `EngineClient.switch`.

        Active runs pause during loading and finish with the old pair. Closing this iterator cancels loading at
        its next report.
        """
        if self.replay_only:
            raise self.replay_only
        if drafter is None:  # a published drafter is for one target
            drafter = self.settings.drafter if target == self.settings.target else "none"
        settings = replace(
            self.settings, target=target, draft=draft, precision=precision, drafter=drafter
        )
        reports: list[Progress] = []
        given_up = threading.Event()
        errors: list[BaseException] = []

        def report(progress: Progress) -> None:
            if given_up.is_set():
                raise _GivenUp
            reports.append(progress)

        def work() -> None:
            try:
                self._load(settings, report, given_up.is_set)
            except BaseException as error:  # noqa: BLE001 - raised where the switch is looked at
                errors.append(error)

        loader = threading.Thread(target=work, name="specdemo-switch", daemon=True)
        loader.start()
        try:
            while loader.is_alive():
                loader.join(0.2)
                if reports:
                    yield reports[-1]
        finally:
            given_up.set()
        if errors:
            raise errors[0]

    def _load(
        self,
        settings: AppSettings,
        report: Callable[[Progress], None],
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Fetch a pair here, and load it where everything is computed, between two steps of the runs."""
        settings, chosen = named(settings)

        def work() -> None:
            loaded = replace(load(settings, report), chosen=chosen)
            if not given_up():
                self.use(loaded)

        with compiling(settings):
            fetch(settings, report)
            self.runner.call(work)

    def use(self, loaded: Loaded) -> None:
        """Replace the loaded pair. Active runs use the old pair, whose memory is freed after the last of them."""
        with self._lock:
            self._loaded, self.error = loaded, None
            conversations = list(self._conversations)
        for conversation in conversations:
            conversation.release(loaded)
        gc.collect()
        return_freed()

    def add(self, method: Method) -> None:
        """Register a method, replacing one of the same name."""
        self.known = {**self.known, method.name: method}

    def methods(self) -> list[MethodInfo]:
        infos = []
        for name, method in self.known.items():
            whys = [why for need in method.needs if (why := self._missing(need))]
            infos.append(
                MethodInfo(
                    name,
                    method.title,
                    method.summary,
                    method.options,
                    not whys,
                    " ".join(whys),
                    tuple(NEEDED[need] for need in method.needs),
                    method.lossy,
                    sum(self._memory_mb(one) for one in method.uses),
                    self._no_exact(method),
                    method.policies,
                )
            )
        return infos

    def last_audit(self) -> dict[str, object] | None:
        try:
            found = json.loads((self.settings.cache_dir / "audit.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def card(self, method: str) -> JsonView | None:
        if self._loaded is None or method not in self.known:
            return None
        cards = (self.pair.card(one) for one in self.known[method].uses)
        return next((card for card in cards if card), None)

    def _no_exact(self, method: Method) -> str:
        """Why a method has no exact mode; empty when it has one, or while nothing is loaded yet."""
        if self._loaded is None:
            return ""
        error = no_exact(method, self.pair.costs.exact_rows)
        return error.message if error else ""

    def _memory_mb(self, need: str) -> float:
        if self._loaded is None:
            return 0.0
        if need == "store":
            return self.store.memory_bytes / 1e6 if self.store else 0.0
        return self.pair.memory_bytes(need) / 1e6

    def _missing(self, need: str) -> str:
        """Why a need is not met; empty when it is, or while nothing is loaded yet."""
        if self._loaded is None:
            return ""
        if need != "store":
            return self.pair.missing(need, NEEDED[need])
        if self.store is None:
            return "There is no datastore for this target; python -m specdemo train datastore builds one."
        return ""

    def outlooks(self, precision: str) -> dict[str, Outlook]:
        predict = self.predictor(precision)
        return {pair.name: predict(pair) for pair in pairs()}

    def predictor(self, precision: str) -> Callable[[Pair], Outlook]:
        """Return a function that predicts any pair in a precision on this machine."""
        from specdemo.models.outlook import free_memory, outlook, way

        known = timed_passes(self.settings) if installed("torch") else []
        free, cache = free_memory(self.settings.device), self.settings.cache_dir
        how = way(self.settings, precision)
        return lambda pair: outlook(pair, how, cache, free, known)

    def to_download(self, target: str, draft: str, precision: str) -> int | None:
        from specdemo.models.outlook import to_download

        settings = self.settings
        return to_download(target, draft, precision, settings.cache_dir, settings.trained)

    def drafters(self, target: str) -> list[Offer]:
        from specdemo.models.outlook import offers

        return offers(target)

    def open(self, visitor: str = "") -> Conversation:
        """A conversation for one visitor. visitor: whose caches are given back when they leave, see `Keeper.leave`"""
        conversation = Conversation(self, visitor)
        with self._lock:
            self._conversations.add(conversation)
        return conversation

    def leave(self, visitor: str) -> None:
        self.keeper.leave(visitor)


def _why_replay_only(settings: AppSettings) -> ReplayOnly | None:
    """Return the reason why live runs are impossible: the settings or a missing library; None if they are possible."""
    if settings.replay:
        return ReplayOnly("engine.replay_only")
    missing = [name for name in REQUIRED_LIBRARIES if not installed(name)]
    if not missing:
        return None
    return ReplayOnly("engine.no_library", names=" and ".join(missing))
