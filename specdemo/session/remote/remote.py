"""A door to engines elsewhere. A visitor's messages stay here and go along with each run, so a lost engine loses only caches."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended, Sampling
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.admission import page_line
from specdemo.session.door import MethodInfo, PairInfo, Plain
from specdemo.session.loaded import Starting
from specdemo.session.meter import Meter
from specdemo.session.remote.conversation import RemoteConversation
from specdemo.session.remote.link import Link
from specdemo.session.studio import Studio
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from specdemo.models.offers import Offer
    from specdemo.models.outlook import Outlook


class RemoteStudio(Starting):
    """A door to engines in other processes. Safe to use from several threads.

    connect: starts or finds the engines and waits until one answers; reports meanwhile. Raises UserError
    """

    thread_name = "specdemo-connect"
    failed = "engine.unreachable"

    def __init__(
        self, settings: AppSettings, connect: Callable[[Callable[[Progress], None]], Link]
    ) -> None:
        super().__init__()
        self.settings = settings
        self.replay_only: UserError | None = None
        self.meter = Meter()
        self.meter.replicas = self.replicas
        self.admission = page_line(settings, self.meter, self.replicas)
        self._conversations: weakref.WeakSet[RemoteConversation] = weakref.WeakSet()
        self._catalogue = Studio(replace(settings, replay=True))  # what is known without any engine
        self._connect = connect
        self._link: Link | None = None
        self._about: Plain = {}
        self._target: ModelInfo | None = None

    def bring(self, report: ProgressCallback) -> None:
        """Connect, and wait for an engine."""
        link = self._connect(report)
        about = link.about()
        self._about, self._target = about, ModelInfo(**about["target"])
        self._link, self.error = link, None

    @property
    def link(self) -> Link:
        """The way to the engines; raises UserError while there is none."""
        if self._link is None:
            raise self.error or UserError("engine.starting")
        return self._link

    def replicas(self) -> int:
        """Engines that answer now."""
        return self._link.replicas() if self._link else 0

    @property
    def ready(self) -> bool:
        """Whether an engine answers."""
        return self.replicas() > 0

    @property
    def whole(self) -> bool:
        """See `Door.whole`."""
        return self._link is not None and self._link.whole

    @property
    def target(self) -> ModelInfo:
        """What runs as the target; raises UserError while it is not known."""
        assert self.link
        assert self._target
        return self._target

    @property
    def chosen(self) -> str:
        """Why the engines took their target."""
        return str(self._about.get("chosen", ""))

    @property
    def recommended(self) -> Recommended:
        """How the engines' target is let to draw by its authors; greedy while it is not known."""
        known = self._about.get("recommended")
        return (
            Recommended(Sampling(**known["sampling"]), known["origin"]) if known else Recommended()
        )

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer; raises UserError while they are not known."""
        assert self.link
        return frozenset(self._about["stop_ids"])

    def switch(
        self, target: str, draft: str, precision: str, drafter: str | None = None
    ) -> Iterator[Progress]:
        """Raises UserError: the engines' model is chosen when they are started."""
        raise UserError("engine.fixed_model")
        yield

    def methods(self) -> list[MethodInfo]:
        """Every drafting method, and whether the engines can do it."""
        if not self._about:
            return self._catalogue.methods()
        return [
            MethodInfo(
                **{**method, "options": tuple(method["options"]), "needs": tuple(method["needs"])}
            )
            for method in self._about["methods"]
        ]

    def pairs(self) -> list[PairInfo]:
        """The catalogue's pairs."""
        return self._catalogue.pairs()

    def outlooks(self, precision: str) -> dict[str, Outlook]:
        """Empty: the model of the engines is chosen when they start."""
        return {}

    def to_download(self, target: str, draft: str, precision: str) -> int | None:
        """Nothing: no other model is loaded."""
        return 0

    def drafters(self, target: str) -> list[Offer]:
        """None: the drafter of the engines is chosen when they start."""
        return []

    def drafter(self, name: str, *, ask: bool) -> Offer:
        """What this disk tells of it: no other is loaded."""
        return self._catalogue.drafter(name, ask=False)

    def card(self, method: str) -> Mapping[str, Any] | None:
        """How the weights were trained that a method drafts with."""
        card: Mapping[str, Any] | None = self._about.get("cards", {}).get(method)
        return card

    def last_audit(self) -> dict[str, object] | None:
        """The last proof of losslessness on an engine's machine."""
        audit: dict[str, object] | None = self._about.get("audit")
        return audit

    def machine(self) -> Plain | None:
        """An engine's costs."""
        machine: Plain | None = self._about.get("machine")
        return machine

    def open(self, visitor: str = "") -> RemoteConversation:
        """A conversation for one visitor."""
        conversation = RemoteConversation(self, visitor)
        with self._lock:
            self._conversations.add(conversation)
        return conversation

    def leave(self, visitor: str) -> None:
        """A visitor has gone, or seems to have: the engines give their caches back."""
        with self._lock:
            conversations = list(self._conversations)
        for conversation in conversations:
            if conversation.owner == visitor:
                conversation.rest()
