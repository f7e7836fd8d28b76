"""An engine for other processes: a studio that gets plain values as requests and answers with lines of JSON."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from pydantic import TypeAdapter

from specdemo.config.errors import UserError, decode_error, encode_error
from specdemo.config.settings import RunSettings
from specdemo.config.strings import Json, JsonView
from specdemo.session.door import About, Part, Work
from specdemo.session.studio import Conversation, Studio
from specdemo.session.work import batch, proposals, race
from specdemo.trace.codec import decode, encode
from specdemo.trace.events import Event

MOST_VISITORS = 512  # conversations that are stored; the longest unused one is closed first
Given = ParamSpec("Given")
REFUSED, BROKE, PART = "refused", "broke", "part"  # kinds of lines that are no events


def reporting(
    work: Callable[Given, Iterator[str]],
) -> Callable[Given, Generator[str, None, None]]:
    """Let a function that yields lines yield one more, with the error, if an error ends it."""

    @wraps(work)
    def lines(*given: Given.args, **named: Given.kwargs) -> Generator[str, None, None]:
        try:
            yield from work(*given, **named)
        except UserError as error:
            yield line(REFUSED, **encode_error(error))
        except Exception as error:  # noqa: BLE001 - raised again in the client
            yield line(BROKE, message=str(error))

    return lines


class Engine:
    """Serves runs and work of any number of users. All of its state can be rebuilt.

    Each run contains the user's earlier messages; conversations are stored only for their caches.
    """

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._conversations: OrderedDict[str, tuple[Conversation, int]] = OrderedDict()
        self._lock = threading.Lock()

    def about(self) -> Json:
        """Return the loaded target and its capabilities. Raises UserError while nothing is loaded."""
        about = replace(self.studio.loaded_about(), audit=self.studio.last_audit())
        plain: Json = TypeAdapter(About).dump_python(about, mode="json")
        return plain

    @reporting
    def run(self, request: JsonView, cancel: threading.Event) -> Iterator[str]:
        """Yield the events of a run as lines.

        request: visitor, messages (role and content each), prompt, system, settings, every (polling interval in seconds)
            and lesson, a number that grows when the drafters' memory must be cleared
        """
        conversation = self.conversation(request["visitor"], request["lesson"])
        conversation.messages = list(request["messages"])
        events = conversation.run(
            request["prompt"],
            RunSettings.from_values(request["settings"]),
            system=request["system"],
            cancel=cancel,
            every=request["every"],
        )
        yield from map(encode, events)

    @reporting
    def perform(self, request: JsonView, cancel: threading.Event) -> Iterator[str]:
        """Yield the results of a function of `session.work` as lines. request: visitor, lesson, work (its name), arguments"""
        conversation = self.conversation(request["visitor"], request["lesson"])
        work = find_work(request["work"])
        yield from map(encode_part, conversation.perform(work, request["arguments"], cancel))

    def leave(self, visitor: str) -> None:
        """Free the caches of a user who left or is served by another engine now."""
        with self._lock:
            conversation, _ = self._conversations.pop(visitor, (None, 0))
        if conversation:
            conversation.close()

    def conversation(self, visitor: str, lesson: int) -> Conversation:
        """Return the conversation of a user, opened on first use. lesson: see `run`"""
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


def line(kind: str, **values: object) -> str:
    return json.dumps({"type": kind, **values}, separators=(",", ":"))


def encode_part(part: Part) -> str:
    name, found = part
    error = encode_error(found) if isinstance(found, UserError) else None
    return line(
        PART, run=name, event=encode(found) if isinstance(found, Event) else "", error=error
    )


def decode_part(line: str) -> Part:
    part = json.loads(line)
    if part["error"]:
        return part["run"], decode_error(part["error"])
    return part["run"], decode(part["event"]) if part["event"] else None


def raise_reported(line: str) -> None:
    """Raise the error that a line reports; do nothing for any other line."""
    if not line.startswith((f'{{"type":"{REFUSED}"', f'{{"type":"{BROKE}"')):
        return
    report = json.loads(line)
    if report["type"] == REFUSED:
        raise decode_error(report)
    raise RuntimeError(report["message"])


# Functions of `session.work` that other processes call by their names.
WORKS: dict[str, Work] = {
    work.__name__: work for work in (race.race_lanes, batch.answers, proposals.steps_of_all)
}


def find_work(name: str) -> Work:
    """Return the function of `session.work` that has this name. Raises UserError for any other name."""
    if work := WORKS.get(name):
        return work
    raise UserError("engine.unknown_work")
