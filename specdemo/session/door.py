"""The interface between the page and an engine in this process or another. Only values that can be pickled cross it.

`Studio` implements it in this process, `RemoteStudio` for engines in other processes. Work that needs the models is a
function of a module, which is pickled as its name.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, TypeAlias, TypeVar

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended, RunSettings
from specdemo.config.strings import Json
from specdemo.drafters.base import Method
from specdemo.drafters.methods import METHODS, NEEDED
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.files.catalogue import Pair, pairs
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.admission import TIMED, Admission, Cancel, Waiting
from specdemo.session.meter import Meter
from specdemo.session.text import Message, with_answer
from specdemo.trace.events import Event, ModelInfo

T = TypeVar("T")
RunUpdate: TypeAlias = Event | Waiting | UserError | None
"""An event of a run, its position in the queue, the error that ended it, or None when it starts."""
Part: TypeAlias = tuple[int, RunUpdate]
"""One result of a `Work` function: the number of a run, and an update of that run."""
Work: TypeAlias = "Callable[..., Iterator[Part]]"
"""A function `(conversation, cancel, **arguments)` of a module that runs where the models are."""


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """One entry of the method menu.

    needs: their descriptions; why_not: a sentence if it is not available
    memory_mb: memory in addition to the target
    no_exact: a sentence if it has no exact mode with the loaded pair, else empty
    policies: the lookahead policies that it implements; empty for all
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
    no_exact: str = ""
    policies: tuple[str, ...] = ()

    @classmethod
    def of(cls, method: Method, why_not: str = "", **more: Any) -> MethodInfo:
        """Return the entry of a method. more: the fields that depend on the loaded pair"""
        needs = tuple(NEEDED[need] for need in method.needs)
        more |= {"lossy": method.lossy, "policies": method.policies}
        texts = method.name, method.title, method.summary, method.options
        return cls(*texts, not why_not, why_not, needs, **more)


@dataclass(frozen=True, slots=True)
class About:
    """The loaded pair and its capabilities.

    target: another value after each load; stop_ids: tokens that end an answer
    remark: code of the page's remark on the target, see `Loaded.remark`; "" for nothing
    recommended: sampling that the target's authors recommend
    machine: the engine's costs: name, verify as [[rows, seconds], ...], draft in seconds or None; None while nothing is measured
    cards: training cards of the methods with trained weights
    audit: proof that `python -m specdemo audit` ran last on the engine's machine; None without one
    """

    target: ModelInfo
    methods: list[MethodInfo]
    stop_ids: frozenset[int] = frozenset()
    remark: str = ""
    recommended: Recommended = field(default_factory=Recommended)
    machine: Json | None = None
    cards: dict[str, Json] = field(default_factory=dict)
    audit: Json | None = None


class Changed(UserError):
    """The loaded model changed after the request."""

    def __init__(self, target: ModelInfo) -> None:
        super().__init__("run.model_changed", model=target.name, precision=target.precision)


class ConversationClient(ABC):
    """One user's conversation: prompts that are answered one after the other.

    host: client that opened it; visitor: its user, who may have several conversations
    messages: may be set, to continue from there
    """

    def __init__(self, host: EngineClient, visitor: str) -> None:
        self.host, self.visitor = host, visitor
        self.messages: list[Message] = []
        self._start = object()  # identity of the conversation: a new object after each reset

    def run(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
    ) -> Generator[Event, None, None]:
        """Answer a prompt with drafts and, if a baseline is requested, by plain decoding beside them. Closing the iterator ends the run.

        every: polling interval in seconds for consumers that may receive events in batches
        Raises UserError before the first event if the user can correct the cause; later errors arrive as RunFailed.
        """
        waited = self.host.admission.waited_by(self.visitor)
        cancel = cancel or threading.Event()
        events = self.events(prompt, settings, cancel, system=system, every=every)
        yield from self.host.meter.watch(events, waited)

    @abstractmethod
    def events(
        self,
        prompt: str,
        settings: RunSettings,
        cancel: threading.Event,
        *,
        system: str = "",
        every: float = 0.0,
    ) -> Generator[Event, None, None]:
        """Yield the same events as `run`, which the host's meter does not count."""

    @abstractmethod
    def perform(
        self, work: Work, arguments: Mapping[str, object], cancel: threading.Event | None = None
    ) -> Iterator[Part]:
        """Work on this conversation's caches, where the models are. Raises UserError."""

    @abstractmethod
    def forget(self) -> None:
        """Clear the drafters' memory of earlier runs."""

    @abstractmethod
    def close(self) -> None:
        """Forget the messages and free the caches."""

    def reset(self) -> None:
        """Start a new conversation. The caches stay, because the next prompt may share a prefix. An active run adds no message to it."""
        self.messages = []
        self._start = object()

    def _store(self, start: object, prompt: str, answer: str) -> None:
        """Add a prompt with its answer, unless the conversation was reset since. start: `_start` when the run began"""
        if self._start is start:
            self.messages = with_answer(self.messages, prompt, answer)


class EngineClient(ABC):
    """The loaded pair, its capabilities and conversations with it. It loads in the background. Thread-safe.

    settings: those of the loaded pair, or those that the client was opened with
    error: why loading failed, or why there is nothing to load; replay_only: why there are no live runs, if there are none
    about: the loaded pair and its capabilities; None while nothing is loaded
    whole: whether requests may go to different engines, so that related work must be one request
    """

    thread_name: ClassVar[str]
    failed: ClassVar[str]  # code of the error for an unexpected failure of loading
    not_loaded: ClassVar[str]  # code of the error while nothing is loaded
    known: Mapping[str, Method] = METHODS  # the methods that settings can name
    about: About | None = None
    whole = False

    def __init__(self, settings: AppSettings, replay_only: UserError | None = None) -> None:
        self.settings = settings
        self.error = self.replay_only = replay_only
        self.meter = Meter()
        self.admission = Admission(
            lambda: settings.runs_at_once * self.replicas(),
            settings.runs_per_visitor,
            limits={TIMED: settings.races_at_once},
            most_waiting=settings.waiting_visitors,
            waited=self.meter.waited,
        )
        self.meter.waiting, self.meter.replicas = lambda: self.admission.waiting, self.replicas
        self._progress = Progress("start", None, "")
        self._lock = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Start loading in a separate thread; a second call has no effect."""
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self.load, name=self.thread_name, daemon=True).start()

    def load(self, report: Callable[[Progress], None] | None = None) -> None:
        """Load and wait. A failure is stored in `error`, and `start` has no effect afterwards."""
        self._started = True
        try:
            self.bring(report or self._report)
        except UserError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - a failure must not end the thread silently
            self.error = UserError(self.failed, error=error)

    def replicas(self) -> int:
        """Return the number of engines that answer now."""
        return 1

    def progress(self) -> Progress | None:
        """Return the progress; None if runs are possible or loading has failed."""
        return None if self.ready or self.error else self._progress

    def _report(self, progress: Progress) -> None:
        self._progress = progress

    @abstractmethod
    def open(self, visitor: str = "") -> ConversationClient:
        """Return a new conversation. visitor: the user, whose caches are freed when the user leaves"""

    @abstractmethod
    def bring(self, report: ProgressCallback) -> None:
        """Load, and wait for it. Raises any error."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether runs are possible."""

    def loaded_about(self) -> About:
        """Return `about`. Raises UserError while nothing is loaded."""
        if about := self.about:
            return about
        raise self.error or UserError(self.not_loaded)

    @property
    def target(self) -> ModelInfo:
        """The loaded target, another value after each load. Raises UserError while there is none."""
        return self.loaded_about().target

    @property
    def recommended(self) -> Recommended:
        """The sampling that the loaded target's authors recommend; greedy while nothing is loaded."""
        return self.about.recommended if self.about else Recommended()

    def methods(self) -> list[MethodInfo]:
        """Return every drafting method, with its availability for the loaded pair."""
        if self.about is None:
            return [MethodInfo.of(method) for method in self.known.values()]
        return self.about.methods

    def last_audit(self) -> Json | None:
        return self.about.audit if self.about else None

    def pairs(self) -> Sequence[Pair]:
        """Return the pairs of the catalogue."""
        return pairs()

    @abstractmethod
    def leave(self, visitor: str) -> None:
        """Free the caches of a user who left."""


def streamed(
    work: Callable[[Callable[[T], None], Cancel], None], cancel: threading.Event
) -> Generator[T, None, None]:
    """Run work in a thread, and yield its values until it ends or is cancelled. Raises its error.

    work: gets a function that passes a value on, and an event that is set when the values are no longer read
    """
    ended = Cancel()
    arrived: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            work(lambda value: arrived.put((value,)), ended)
            arrived.put(None)
        except BaseException as error:  # noqa: BLE001 - raised in the consumer's thread
            arrived.put(error)

    # The thread inherits the context, because the user of the request determines the engine.
    context = copy_context()
    threading.Thread(target=context.run, args=[run], name="specdemo-stream", daemon=True).start()
    try:
        while not cancel.is_set():
            with suppress(Empty):
                item = arrived.get(timeout=LOOK_SECONDS)
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item[0]
    finally:
        ended.set()


def perform(
    door: EngineClient, work: Work, cancel: threading.Event, **arguments: object
) -> Generator[Part, None, None]:
    with closing(door.open()) as chat:
        yield from chat.perform(work, arguments, cancel)
