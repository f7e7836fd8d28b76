"""An engine for other processes: a studio that gets calls of functions and answers with their results.

Both cross by `pickle`, through the channels of Ray or `spaces` alone: between processes of this program, never from a
browser, a file or another program.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from specdemo.config.errors import UserError
from specdemo.session.door import About, Part, Work
from specdemo.session.studio import Conversation, Studio
from specdemo.session.text import Message

MOST_VISITORS = 512  # conversations that are stored; the longest unused one is closed first
Answer: TypeAlias = Part | Exception
"""A result of a function, or the error that ended it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that an engine calls for a user.

    lesson: a number that grows when the drafters' memory must be cleared
    """

    visitor: str
    lesson: int
    work: Work
    arguments: Mapping[str, Any]


class Engine:
    """Serves calls of any number of users. All of its state can be rebuilt.

    Each run contains the user's earlier messages; conversations are stored only for their caches.
    """

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._conversations: OrderedDict[str, tuple[Conversation, int]] = OrderedDict()
        self._lock = threading.Lock()

    def about(self) -> About:
        """Return the loaded target and its capabilities. Raises UserError while nothing is loaded."""
        return replace(self.studio.loaded_about(), audit=self.studio.last_audit())

    def perform(self, call: Call, cancel: threading.Event) -> Iterator[Answer]:
        """Yield the results of a call, and the error that ends it, if one does."""
        try:
            conversation = self.conversation(call.visitor, call.lesson)
            yield from conversation.perform(call.work, call.arguments, cancel)
        except Exception as error:  # noqa: BLE001 - raised again in the client
            yield portable(error)

    def leave(self, visitor: str) -> None:
        """Free the caches of a user who left or is served by another engine now."""
        with self._lock:
            conversation, _ = self._conversations.pop(visitor, (None, 0))
        if conversation:
            conversation.close()

    def conversation(self, visitor: str, lesson: int) -> Conversation:
        """Return the conversation of a user, opened on first use. lesson: see `Call`"""
        with self._lock:
            conversation, known = self._conversations.pop(visitor, (None, lesson))
            conversation = conversation or self.studio.open(visitor)
            self._conversations[visitor] = conversation, lesson
            last = len(self._conversations) > MOST_VISITORS
            gone = self._conversations.popitem(last=False)[1][0] if last else None
        if gone:
            gone.close()
        if known != lesson:
            conversation.forget()
        return conversation


def portable(error: Exception) -> Exception:
    """Return an error that any process can read: only a UserError keeps its class."""
    return error if isinstance(error, UserError) else RuntimeError(str(error))


def run(
    conversation: Conversation,
    cancel: threading.Event,
    *,
    messages: Sequence[Message],
    **asked: Any,
) -> Iterator[Part]:
    """Yield the events of a run after these messages. asked: the arguments of `Conversation.run`"""
    conversation.messages = list(messages)
    yield from ((0, event) for event in conversation.run(cancel=cancel, **asked))
