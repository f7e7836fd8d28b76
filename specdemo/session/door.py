"""What the page and the scenarios use of an engine, wherever it runs. Only plain values need to cross this door.

`Studio` is the door to an engine in this process. Another one may talk to engines in other processes: settings go
there as mappings, events come back as the lines of the trace's codec, and work that needs the models themselves is a
function that is named there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended, RunSettings
from specdemo.drafters.methods import METHODS, NEEDED, TRAINED
from specdemo.files.progress import Progress
from specdemo.session.admission import Admission
from specdemo.session.meter import Meter
from specdemo.trace.events import Event, ModelInfo

if TYPE_CHECKING:
    from specdemo.models.offers import Offer
    from specdemo.models.outlook import Outlook

Plain: TypeAlias = dict[str, Any]
"""What JSON holds: texts, numbers, truth values, None, and lists and mappings of them."""


Work: TypeAlias = "Callable[..., Iterator[Plain]]"
"""A function `(conversation, cancel, **arguments)` of a module of `scenarios`, which works where the models are.

Its arguments and what it yields are plain; elsewhere it is known by its name.
"""


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """One entry of the method menu.

    needs: in words; why_not: a sentence when it is not available
    memory_mb: what it takes beside the target
    no_exact: why it has no exact mode with the loaded pair, as a sentence; empty where it has one
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


@dataclass(frozen=True, slots=True)
class PairInfo:
    """One entry of the menu of pairs: names of both models, titles of both, their licence and what they suit.

    draft: "auto" where no other model drafts; draft_title: "" where nothing is trained to draft
    """

    target: str
    draft: str
    title: str
    draft_title: str = ""
    licence: str = ""
    suits: str = ""


class Changed(UserError):
    """Another model answers now than the one that was asked."""

    def __init__(self, target: ModelInfo) -> None:
        super().__init__("run.model_changed", model=target.name, precision=target.precision)


class Chat(Protocol):
    """One visitor's conversation; see `Conversation`."""

    def run(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
    ) -> Iterator[Event]:
        """Answer a prompt. Closing the iterator ends the run."""

    def perform(
        self, work: Work, arguments: Mapping[str, Any], cancel: threading.Event | None = None
    ) -> Iterator[Plain]:
        """Work on this conversation's caches, where the models are. Raises UserError."""

    def reset(self) -> None:
        """Start over."""

    def forget(self) -> None:
        """Drop what earlier runs have taught the drafters of this visitor."""

    def close(self) -> None:
        """The visitor has gone."""


class Door(Protocol):
    """What is loaded, what it can do, and conversations with it; see `Studio`."""

    meter: Meter
    admission: Admission
    error: UserError | None

    @property
    def replay_only(self) -> UserError | None: ...

    @property
    def settings(self) -> AppSettings: ...

    @property
    def ready(self) -> bool: ...

    @property
    def whole(self) -> bool:
        """Whether each request may get an engine of its own: what belongs together is then asked for in one."""

    @property
    def target(self) -> ModelInfo:
        """The loaded target, another value after each load. Raises UserError while there is none."""

    @property
    def chosen(self) -> str:
        """Why `auto` chose the loaded target, see `Loaded.chosen`; "" for a target that was named."""

    @property
    def recommended(self) -> Recommended:
        """The sampling that the loaded target's authors recommend; greedy while nothing is loaded."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer. Raises UserError while nothing is loaded."""

    def start(self) -> None: ...

    def progress(self) -> Progress | None: ...

    def switch(
        self, target: str, draft: str, precision: str, drafter: str | None = None
    ) -> Iterator[Progress]: ...

    def methods(self) -> list[MethodInfo]: ...

    def pairs(self) -> list[PairInfo]: ...

    def outlooks(self, precision: str) -> Mapping[str, Outlook]:
        """What loading each of the pairs would mean now, by its target; empty where none can be loaded."""

    def to_download(self, target: str, draft: str, precision: str) -> int | None:
        """Bytes that loading these models would download; None where only the hub knows."""

    def drafters(self, target: str) -> list[Offer]:
        """Published drafters that the catalogue knows for a target. Nothing is asked of the network."""

    def drafter(self, name: str, *, ask: bool) -> Offer:
        """A published drafter by its hub id or folder. ask: the hub, where it is not here. Raises UserError."""

    def card(self, method: str) -> Mapping[str, Any] | None: ...

    def last_audit(self) -> dict[str, object] | None: ...

    def machine(self) -> Plain | None:
        """The engine's costs: name, verify as [[rows, seconds], ...], draft in seconds or None. None while nothing is loaded."""

    def open(self, visitor: str = "") -> Chat: ...

    def leave(self, visitor: str) -> None:
        """A visitor has gone, or seems to have: their caches are given back."""


def perform(
    door: Door, work: Work, cancel: threading.Event, **arguments: Any
) -> Generator[Plain, None, None]:
    """Work in a conversation of its own."""
    with closing(door.open()) as chat:
        yield from chat.perform(work, arguments, cancel)


def method_labels() -> dict[str, str]:
    """What each method is called within a sentence."""
    return {name: method.label for name, method in METHODS.items()}


def method_titles() -> dict[str, str]:
    """What each method is called in menus."""
    return {name: method.title for name, method in METHODS.items()}


def method_summaries() -> dict[str, str]:
    """What each method does, in a sentence."""
    return {name: method.summary for name, method in METHODS.items()}


def method_needs() -> dict[str, str]:
    """What methods cannot do without, in words, by name."""
    return dict(NEEDED)


def drafter_kinds() -> dict[str, str]:
    """What each kind of drafter is that can be trained, as a sentence."""
    abouts = {kind: trained.about for kind, trained in TRAINED.items()}
    return {kind: f"{about[0].upper()}{about[1:]}." for kind, about in abouts.items()}
