"""What the page remembers of one visitor: a conversation, its turns and the text on screen."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specdemo.settings import RunSettings
from specdemo.ui.present import Turn

if TYPE_CHECKING:
    from specdemo.session import Conversation, Studio


@dataclass(slots=True)
class Order:
    """A run that was asked for: waiting, running or over."""

    prompt: str
    system: str
    settings: RunSettings
    cancel: threading.Event = field(default_factory=threading.Event)
    running: bool = False


@dataclass(slots=True)
class Visitor:
    """One visitor. `stream` is the text of the view; `fresh` means that the next run starts over."""

    conversation: Conversation
    stream: str = ""
    turns: list[Turn] = field(default_factory=list)
    order: Order | None = None
    fresh: bool = False

    def key(self) -> str:
        """A name for a new stream."""
        return uuid.uuid4().hex

    def begin_anew(self) -> None:
        """Forget the conversation, if that was asked for."""
        if self.fresh:
            self.conversation.reset()
            self.turns.clear()
            self.fresh = False

    def stop(self) -> None:
        """Ask the run, waiting or under way, to end at its next step."""
        if self.order:
            self.order.cancel.set()

    def leave(self) -> None:
        """Stop and free everything."""
        self.stop()
        self.conversation.close()


class Visitors:
    """Visitors by browser session, so that a closed tab is noticed at once."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._lock = threading.Lock()
        self._known: dict[str, Visitor] = {}

    def of(self, session: str | None) -> Visitor:
        """The visitor of a browser session, welcomed if new."""
        with self._lock:
            key = session or ""
            if key not in self._known:
                self._known[key] = Visitor(self._studio.open())
            return self._known[key]

    def leave(self, session: str | None) -> None:
        """Free what a browser session held."""
        with self._lock:
            visitor = self._known.pop(session or "", None)
        if visitor:
            visitor.leave()

    def __len__(self) -> int:
        return len(self._known)
