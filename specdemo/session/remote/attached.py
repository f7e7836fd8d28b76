"""A server of another program as the engine of the page: it answers prompts, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

from specdemo.attach.detection import attach
from specdemo.attach.events import ATTACHED, events_of
from specdemo.attach.logs import GrowingLog
from specdemo.attach.servers import Part, Request, Round, Server
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import JsonView, load
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.door import About, MethodInfo
from specdemo.session.remote.client import Link, Lost, RemoteStudio
from specdemo.session.remote.server import Answer, Call, run
from specdemo.trace.codec import decode, encode
from specdemo.trace.events import PLAIN, SPECULATIVE, Event, ModelInfo


def answer(
    server: Server,
    plain: Server | None,
    request: JsonView,
    cancel: threading.Event,
    log: Path | None = None,
) -> Generator[Event, None, None]:
    """Yield the events of a prompt: first those of the plain server, if there is one. Raises UserError.

    request: messages, prompt, system and settings, as `run` of the engine gets them; log: of the server, names the refused tokens
    """
    settings: RunSettings = request["settings"]
    system = [{"role": "system", "content": request["system"]}] if request["system"] else []
    messages = [*system, *request["messages"], {"role": "user", "content": request["prompt"]}]
    asked = Request(messages, settings.max_new_tokens, settings.sampling)
    lanes = [(PLAIN, plain)] if plain and settings.baseline else []
    for lane, one in (*lanes, (SPECULATIVE, server)):
        if cancel.is_set():
            return
        parts = one.stream(asked, cancel)
        if log and lane == SPECULATIVE:
            parts = _named(parts, GrowingLog(log), cancel)
        yield from events_of(parts, request["prompt"], settings.to_dict(), lane)


def _named(
    parts: Iterator[Part], log: GrowingLog, cancel: threading.Event
) -> Generator[Part, None, None]:
    for part in parts:
        yield log.named(part, cancel) if isinstance(part, Round) and part.drafted else part


class AttachedLink(Link):
    """The connection to one server, and to a second one that decodes without drafts. log: of the first"""

    def __init__(self, server: Server, plain: Server | None, log: Path | None) -> None:
        self._server, self._plain, self._log = server, plain, log

    def about(self) -> About:
        words = load("servers")["method"]
        method = MethodInfo(ATTACHED, words["title"], words["summary"], (), available=True)
        about = self._server.about
        return About(ModelInfo(about.model or about.server, kernel=about.server), [method])

    def stream(self, call: Call, ended: threading.Event) -> Generator[list[Answer], None, None]:
        if call.work is not run:
            raise UserError("attach.only_play")
        begun = False
        try:
            answered = answer(self._server, self._plain, call.arguments, ended, self._log)
            with closing(answered) as events:
                for event in events:
                    begun = True
                    # Reading it checks each field, because its values come from another program.
                    yield [(0, decode(encode(event)))]
        except UserError as error:
            if not begun:
                raise
            raise Lost(error) from error  # the text so far stays


def attached_client(
    settings: AppSettings,
    url: str,
    plain: str = "",
    key: str = "",
    *,
    log: Path | None = None,
) -> RemoteStudio:
    """Return an engine client for the servers at these addresses; connects to nothing yet. Only this call names addresses."""

    def connect(report: ProgressCallback) -> AttachedLink:
        report(Progress("start", None, url))
        server = attach(url, key)
        return AttachedLink(server, attach(plain, key) if plain else None, log)

    return RemoteStudio(settings, connect)
