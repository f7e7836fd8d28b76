"""The protocol of another program's server: detect it, describe it, and stream an answer as rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specdemo.attach.client import Client, Reply
from specdemo.attach.rounds import Generation, Round
from specdemo.config.settings import Sampling

Message = dict[str, str]  # role and content
Part = Generation | Round
Pages = Callable[[str], Reply]  # of a server that is being detected, by path


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


def ask(prompt: str, tokens: int, sampling: Sampling | None = None) -> Request:
    """Return the request of one message, greedy by default."""
    return Request([{"role": "user", "content": prompt}], tokens, sampling or Sampling())


def whole_answer(server: Server, request: Request) -> Generation:
    """Return the whole answer of a server. Raises UserError."""
    *_, answer = server.stream(request, threading.Event())
    assert isinstance(answer, Generation)
    return answer
