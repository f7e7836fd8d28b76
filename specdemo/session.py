"""The only door to the engine: load a pair, open conversations, run, cancel. Knows nothing of any view."""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.drafters.methods import METHODS, NEEDED
from specdemo.engine.ask import Ask
from specdemo.engine.runner import Runner
from specdemo.errors import UserError
from specdemo.models.catalogue import choose_default, pairs
from specdemo.models.doctor import installed
from specdemo.models.progress import Progress
from specdemo.settings import AppSettings, RunSettings
from specdemo.trace.events import Event, ModelInfo, RunFailed, RunStarted

if TYPE_CHECKING:
    from specdemo.drafters.base import DraftingContext
    from specdemo.drafters.memory import Memory
    from specdemo.drafters.shipped import Shipped
    from specdemo.engine.prefix import PrefixReader
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.target import CachedModel
    from specdemo.models.pair import LoadedPair

PLAIN, SPECULATIVE = "plain", "speculative"
LIBRARIES = ("torch", "transformers")  # what live runs cannot do without


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """One entry of the method menu.

    needs: in words; why_not: a sentence when it is not available
    memory_mb: what it takes beside the target
    """

    name: str
    title: str
    summary: str
    options: tuple[str, ...]
    available: bool
    why_not: str = ""
    needs: tuple[str, ...] = ()
    lossy: bool = False
    memory_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class PairInfo:
    """One entry of the menu of pairs; detail: memory, licence and what it suits."""

    target: str
    draft: str
    title: str
    detail: str


class ReplayOnly(UserError):
    """There are no live runs here; recorded ones need nothing that is missing."""


class Studio:
    """One per process: the loaded pair and the one device. Safe to use from several threads.

    Runs that go on at the same time share the target's passes; each step in the trace tells how many did.
    """

    def __init__(self, settings: AppSettings) -> None:
        self.settings = settings
        self.replay_only = _why_replay_only(settings)
        self.error: UserError | None = self.replay_only
        self.shipped: Shipped
        self._pair: LoadedPair | None = None
        self._progress = Progress("start", None, "starting")
        self._loading = threading.Lock()
        self.runner = Runner()
        self._started = False

    def start(self) -> None:
        """Begin loading in a thread of its own; returns at once, and does nothing the second time."""
        with self._loading:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self.load, name="specdemo-load", daemon=True).start()

    def load(self, report: Callable[[Progress], None] | None = None) -> None:
        """Load the pair in this thread. A failure is kept in `error`, where a view can show it."""
        if self.replay_only:
            return
        try:
            pair, self.shipped = self.runner.call(
                lambda: self._load(self.settings, report or self._report)
            )
            self._pair = pair  # last: from here on other threads see the studio as ready
            self.error = None
        except UserError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - a loader thread must not die without a word
            self.error = UserError(
                f"The model could not be loaded: {error}.", advice="Run python -m specdemo doctor."
            )

    @property
    def pair(self) -> LoadedPair:
        """The loaded pair; raises UserError while there is none."""
        if self._pair is None:
            raise self.error or UserError(
                "The model is still loading.", advice="Wait until it is ready, then run again."
            )
        return self._pair

    @property
    def ready(self) -> bool:
        """Whether runs are possible."""
        return self._pair is not None

    def progress(self) -> Progress | None:
        """What loading is doing; None when the pair is ready or loading failed."""
        return None if self.ready or self.error else self._progress

    def switch(self, target: str, draft: str, precision: str) -> Iterator[Progress]:
        """Load another pair for everybody. Raises UserError, and then the old one stays."""
        if self.replay_only:
            raise self.replay_only
        settings = replace(self.settings, target=target, draft=draft, precision=precision)
        reports: list[Progress] = []
        outcome: list[tuple[LoadedPair, Shipped] | BaseException] = []

        def work() -> None:
            try:
                outcome.append(self._load(settings, reports.append))
            except BaseException as error:  # noqa: BLE001 - handed to the caller below
                outcome.append(error)

        loader = threading.Thread(target=work, name="specdemo-switch", daemon=True)
        loader.start()
        while loader.is_alive():
            loader.join(0.2)
            if reports:
                yield reports[-1]
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        (pair, self.shipped), self.settings, self.error = outcome[0], settings, None
        self._pair = pair  # runs that go on keep the old one

    def methods(self) -> list[MethodInfo]:
        """Every drafting method, and whether the loaded pair can do it."""
        infos = []
        for name, method in METHODS.items():
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
                )
            )
        return infos

    def last_audit(self) -> dict[str, object] | None:
        """The proof that `python -m specdemo audit` ran last on this machine; None without one."""
        try:
            found = json.loads((self.settings.cache_dir / "audit.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def card(self, method: str) -> Mapping[str, Any] | None:
        """How the weights were trained that a method drafts with; None for a method without such weights."""
        if self._pair is None or method not in METHODS:
            return None
        cards = (self._pair.card(one) for one in METHODS[method].uses)
        return next((card for card in cards if card), None)

    def _memory_mb(self, need: str) -> float:
        if self._pair is None:
            return 0.0
        if need == "store":
            return self.shipped.store.memory_bytes / 1e6 if self.shipped.store else 0.0
        return self._pair.memory_bytes(need) / 1e6

    def _missing(self, need: str) -> str:
        """Why a need is not met; empty when it is, or while nothing is loaded yet."""
        if self._pair is None:
            return ""
        if need == "store" and self.shipped.store is None:
            return "There is no datastore for this target; python -m specdemo datastore builds one."
        return self._pair.missing(need)

    def pairs(self) -> list[PairInfo]:
        """The catalogue's pairs."""
        return [
            PairInfo(
                pair.target.name,
                pair.draft.name,
                pair.title,
                f"{pair.memory_4bit_gb} GB in 4-bit, {pair.licence}. {pair.target.suits}",
            )
            for pair in pairs()
        ]

    def open(self) -> Conversation:
        """A conversation for one visitor."""
        return Conversation(self)

    def _report(self, progress: Progress) -> None:
        self._progress = progress

    def _load(
        self, settings: AppSettings, report: Callable[[Progress], None]
    ) -> tuple[LoadedPair, Shipped]:
        from specdemo.drafters.datastore import fingerprint
        from specdemo.drafters.shipped import find_shipped
        from specdemo.models.pair import load_pair

        set_threads(settings.threads)
        if settings.target == "auto":
            settings = replace(settings, target=choose_default().target.name)
        pair = load_pair(settings, report)
        tokenizer = fingerprint(pair.tokenizer.get_vocab())
        return pair, find_shipped(pair.target.info.name, tokenizer, settings.store)


class Conversation:
    """One visitor's messages and caches. Dropping it frees everything."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._messages: list[dict[str, str]] = []
        self._pair: LoadedPair | None = None
        self._target: CachedModel | None = None
        self._draft: PrefixReader | None = None
        self._copy: PrefixReader | None = None
        self._trained: dict[str, Any] = {}
        self._cached_ids: list[int] = []
        self._memory: Memory | None = None

    @property
    def memory(self) -> Memory:
        """What this visitor's runs leave for the next, made when first asked for."""
        self._open_pair()
        from specdemo.drafters.memory import Memory

        self._memory = self._memory or Memory()
        return self._memory

    def forget(self) -> None:
        """Drop what earlier runs have taught the drafters of this visitor."""
        self._memory = None

    def reset(self) -> None:
        """Start over; the caches stay, for what the next prompt shares with them."""
        self._messages = []

    def close(self) -> None:
        """Free the caches and what was learned."""
        self._messages, self._cached_ids = [], []
        self._pair = self._target = self._draft = self._copy = self._memory = None
        self._trained = {}

    def run(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
    ) -> Iterator[Event]:
        """Answer a prompt: the plain lane first when a baseline is wanted, then the speculative one.

        every: seconds between two looks at what has come, for viewers that need not see each event at once
        Raises UserError before the first event for what the user can mend; what breaks later arrives as RunFailed.
        """
        cancel = cancel or threading.Event()
        settings = settings.checked()
        yield from self._studio.runner.run(self._run(prompt, settings, system, cancel), every)

    def _run(
        self,
        prompt: str,
        settings: RunSettings,
        system: str,
        cancel: threading.Event,
    ) -> Iterator[Event | Ask]:
        from specdemo.text import encode_conversation

        pair = self._open_pair()
        messages = [*self._messages, {"role": "user", "content": prompt}]
        if system.strip():
            messages = [{"role": "system", "content": system}, *messages]
        prompt_ids = encode_conversation(pair.tokenizer, messages, pair.context)
        plain = replace(settings, method="nothing")
        lanes = [(SPECULATIVE, settings)]
        if settings.method == "nothing":
            lanes = [(PLAIN, plain)]
        elif settings.baseline:
            lanes.insert(0, (PLAIN, plain))
        answer = ""
        for lane, lane_settings in lanes:
            if cancel.is_set():
                break
            header = RunStarted(
                lane=lane,
                method=lane_settings.method,
                prompt=prompt,
                settings=settings.to_dict(),
                target=pair.target.info,
                machine=machine_name(),
                started_at=datetime.now(UTC).isoformat(timespec="seconds"),
                verify_costs=pair.costs.verify,
                draft_cost=pair.costs.draft_step,
            )
            if method := METHODS.get(lane_settings.method):
                header = replace(header, lossy=method.lossy, draft=_draft_info(pair, method.needs))
                if "memory" in method.options and lane_settings.memory and self._memory:
                    header = replace(header, history=self._memory.rates(lane_settings.method))
            answer = yield from self._lane(pair, prompt_ids, lane_settings, header, cancel)
        self._messages = [
            *self._messages,
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": answer},
        ]

    def _lane(
        self,
        pair: LoadedPair,
        prompt_ids: list[int],
        settings: RunSettings,
        header: RunStarted,
        cancel: threading.Event,
    ) -> Iterator[Event | Ask]:
        """The events of one lane with their text; returns the answer so far, whatever happened."""
        from specdemo.drafters.base import make_drafter
        from specdemo.engine.limits import Limits
        from specdemo.engine.loop import steps
        from specdemo.engine.sampling import Shaper
        from specdemo.text import TokenText
        from specdemo.trace.metrics import measure, output_ids

        shaper = Shaper(settings.sampling)
        drafter = make_drafter(self._context(pair, settings, shaper))
        target, text = self._target, TokenText(pair.tokenizer, prompt_ids)
        target.rollback(_shared(self._cached_ids, prompt_ids))
        target.record(wanted=METHODS[settings.method].states)
        room = pair.context - len(prompt_ids)
        limits = Limits(min(settings.max_new_tokens, room), pair.stop_ids())
        committed, events = list(prompt_ids), []
        try:
            for event in steps(
                target,
                drafter,
                prompt_ids,
                shaper=shaper,
                limits=limits,
                started=header,
                cancelled=cancel.is_set,
                detail=settings.detail,
            ):
                if isinstance(event, Ask):
                    yield event
                    continue
                events.append(event)
                committed += output_ids([event])
                yield text.fill(event)
        except (RuntimeError, MemoryError) as error:
            self._pair = None  # the caches may be half-written: the next run opens new ones
            yield _failed(header.lane, error)
        finally:
            # Whatever is cached is a prefix of what was committed, also after a break in the middle of a step.
            self._cached_ids = committed[: target.length]
            if settings.memory and self._memory:
                self._memory.record(settings.method, measure(events))
        return text.answer

    def _context(self, pair: LoadedPair, settings: RunSettings, shaper: Shaper) -> DraftingContext:
        """What the method's factory may use; the quantised copy is opened only where it is needed."""
        from specdemo.drafters.base import DraftingContext
        from specdemo.drafters.memory import Memory
        from specdemo.engine.prefix import PrefixReader

        method = METHODS.get(settings.method)
        if method and "copy" in method.needs and pair.open_copy and self._copy is None:
            self._copy = PrefixReader(pair.open_copy())
        if settings.memory and self._memory is None:
            self._memory = Memory()
        return DraftingContext(
            settings,
            shaper,
            pair.vocabulary_size,
            profile=pair.costs,
            memory=self._memory if settings.memory else None,
            draft=self._draft,
            copy=self._copy,
            trained={kind: partial(self._open_trained, kind) for kind in pair.trained},
            features=self._target.features,
            store=self._studio.shipped.store,
            lookahead_weights=self._studio.shipped.lookahead,
            together=max(1, self._studio.runner.going_on),
        )

    def _open_trained(self, kind: str) -> Any:
        """This conversation's reader of a trained drafter, made when it is first wanted."""
        if kind not in self._trained:
            self._trained[kind] = self._pair.open_trained(kind, self._target)
        return self._trained[kind]

    def _open_pair(self) -> LoadedPair:
        """The loaded pair, with caches of this conversation; new ones when the pair was switched."""
        pair = self._studio.pair
        if pair is not self._pair:
            from specdemo.engine.prefix import PrefixReader

            self._pair, self._cached_ids, self._copy, self._memory = pair, [], None, None
            self._target, self._trained = pair.open_target(), {}
            self._draft = PrefixReader(pair.open_draft()) if pair.open_draft else None
        return pair


def _why_replay_only(settings: AppSettings) -> ReplayOnly | None:
    """Why nothing can be run live, if so: as was asked for, or for want of a library."""
    works = "Recorded runs, the lab and the lessons work."
    if settings.replay:
        advice = "Start without --replay and SPECDEMO_REPLAY for live runs."
        return ReplayOnly("Live runs are switched off here.", unharmed=works, advice=advice)
    missing = [name for name in LIBRARIES if not installed(name)]
    if not missing:
        return None
    return ReplayOnly(
        f"Live runs need {' and '.join(missing)}, which this installation does not have.",
        unharmed=works,
        advice="For live runs: pip install -r requirements.txt, then start again.",
    )


def set_threads(threads: int) -> None:
    """Let torch use this many cores; 0 leaves its choice, one thread a core."""
    import torch

    if threads:
        torch.set_num_threads(threads)


@cache
def machine_name() -> str:
    """Processor or graphics card, and threads, in words: as at the first run, before others wanted the cores."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    names = []
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} threads"


def _shared(cached: list[int], wanted: list[int]) -> int:
    """Tokens of a cache that a prompt can reuse; its last token is always read anew."""
    same = 0
    for one, other in zip(cached, wanted[:-1], strict=False):
        if one != other:
            break
        same += 1
    return same


def _draft_info(pair: LoadedPair, needs: tuple[str, ...]) -> ModelInfo | None:
    """The weights that draft, for the header."""
    if "copy" in needs:
        return pair.copy_info
    for need in needs:
        if need in pair.trained:
            return pair.trained[need].info
    return pair.draft_info if "draft" in needs else None


def _failed(lane: str, error: Exception) -> RunFailed:
    out_of_memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
    return RunFailed(
        lane,
        "There was not enough memory to go on." if out_of_memory else f"The run broke: {error}.",
        "The text so far is kept, and other visitors are not affected.",
        "Shorten the prompt, press New, or choose a smaller pair."
        if out_of_memory
        else "Run again.",
    )
