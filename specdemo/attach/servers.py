"""The protocol of another program's server: detect it, describe it, and stream an answer as rounds."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specdemo.attach.client import Client, Reply
from specdemo.attach.rounds import Generation, Round
from specdemo.config.settings import Sampling

Message = dict[str, str]  # role and content
Part = Generation | Round
OLLAMA = "Ollama"  # name of the server that hides the drafts of a llama-server of its own


@dataclass(frozen=True, slots=True)
class Request:
    """What a server shall answer. seed: None for the server's choice"""

    messages: Sequence[Message]
    max_new_tokens: int
    sampling: Sampling = field(default_factory=Sampling)


class Server(Protocol):
    """A server of another program."""

    @property
    def client(self) -> Client: ...

    @property
    def about(self) -> Generation:
        """What is known before the first answer, without rounds."""

    @property
    def drafting(self) -> bool | None:
        """Whether it drafts; None if only an answer can show it."""

    def stream(self, request: Request, cancel: threading.Event) -> Iterator[Part]:
        """Yield a generation without rounds once the prompt is read, its rounds, and the whole generation.

        A cancelled or broken stream ends with the rounds that came. Raises UserError.
        """


class Pages:
    """Pages of a server that is being detected, each requested once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Reply] = {}

    def __getitem__(self, path: str) -> Reply:
        if path not in self._known:
            self._known[path] = self._client.get(path)
        return self._known[path]


def whole_answer(server: Server, request: Request) -> Generation:
    """Return the whole answer of a server. Raises UserError."""
    *_, answer = server.stream(request, threading.Event())
    assert isinstance(answer, Generation)
    return answer
