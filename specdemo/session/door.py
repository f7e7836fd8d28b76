"""The interface between the page and an engine in this process or another. Only plain values cross it.

`Studio` implements it in this process, `RemoteStudio` for engines in other processes: settings travel as mappings,
events as lines of the trace's codec, and work that needs the models as the name of a function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended, RunSettings
from specdemo.config.strings import Json, JsonView
from specdemo.drafters.methods import METHODS, TRAINED
from specdemo.drafters.methods import NEEDED as NEEDED
from specdemo.files.progress import Progress
from specdemo.session.admission import Admission
from specdemo.session.meter import Meter
from specdemo.trace.events import Event, ModelInfo

if TYPE_CHECKING:
    from specdemo.models.outlook import Offer as Offer  # re-exported for the page
    from specdemo.models.outlook import Outlook as Outlook

Work: TypeAlias = "Callable[..., Iterator[Json]]"
"""A function `(conversation, cancel, **arguments)` of `session.work` that runs where the models are.

Its arguments and results are JSON values; other processes call it by name.
"""


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


@dataclass(frozen=True, slots=True)
class PairInfo:
    """One entry of the menu of pairs: names and titles of both models, their licence and their purpose.

    draft: "auto" without a draft model; draft_title: "" without a trained drafter
    """

    target: str
    draft: str
    title: str
    draft_title: str = ""
    licence: str = ""
    suits: str = ""


class Changed(UserError):
    """The loaded model changed after the request."""

    def __init__(self, target: ModelInfo) -> None:
        super().__init__("run.model_changed", model=target.name, precision=target.precision)


class ConversationClient(Protocol):
    """One user's conversation; see `Conversation`."""

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
        self, work: Work, arguments: Mapping[str, object], cancel: threading.Event | None = None
    ) -> Iterator[Json]:
        """Work on this conversation's caches, where the models are. Raises UserError."""

    def reset(self) -> None:
        """Start over."""

    def forget(self) -> None:
        """Clear the drafters' memory of earlier runs."""

    def close(self) -> None:
        """Free everything after the user left."""


class EngineClient(Protocol):
    """The loaded pair, its capabilities and conversations with it; see `Studio`."""

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
        """Whether requests may go to different engines, so that related work must be one request."""

    @property
    def target(self) -> ModelInfo:
        """The loaded target, another value after each load. Raises UserError while there is none."""

    @property
    def chosen(self) -> str:
        """Reason why `auto` chose the loaded target, see `Loaded.chosen`; "" for a named target."""

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

    def methods(self) -> list[MethodInfo]:
        """Return every drafting method, with its availability for the loaded pair."""

    def pairs(self) -> list[PairInfo]:
        """Return the pairs of the catalogue."""

    def outlooks(self, precision: str) -> Mapping[str, Outlook]:
        """Return the outlook of loading each pair now, by target; empty if none can be loaded."""

    def to_download(self, target: str, draft: str, precision: str) -> int | None:
        """Return the bytes that loading these models would download; None if the size is unknown without the hub."""

    def drafters(self, target: str) -> list[Offer]:
        """Return the catalogue's published drafters for a target, without network access."""

    def drafter(self, name: str, *, ask: bool) -> Offer:
        """Return a published drafter by its hub id or folder. ask: query the hub if it is not on this disk. Raises UserError."""

    def card(self, method: str) -> JsonView | None:
        """Return the training card of a method's weights; None for a method without trained weights."""

    def last_audit(self) -> dict[str, object] | None: ...

    def machine(self) -> Json | None:
        """The engine's costs: name, verify as [[rows, seconds], ...], draft in seconds or None. None while nothing is loaded."""

    def open(self, visitor: str = "") -> ConversationClient: ...

    def leave(self, visitor: str) -> None:
        """Free the caches of a user who left."""


def perform(
    door: EngineClient, work: Work, cancel: threading.Event, **arguments: object
) -> Generator[Json, None, None]:
    with closing(door.open()) as chat:
        yield from chat.perform(work, arguments, cancel)


def method_strings(field: str) -> dict[str, str]:
    """Return a string of each method: its label within a sentence, title or summary."""
    return {name: getattr(method, field) for name, method in METHODS.items()}


def drafter_kinds() -> dict[str, str]:
    """Return a sentence about each kind of trained drafter."""
    abouts = {kind: trained.about for kind, trained in TRAINED.items()}
    return {kind: f"{about[0].upper()}{about[1:]}." for kind, about in abouts.items()}
