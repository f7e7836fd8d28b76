"""The protocol of another program's server, and an answer as rounds of drafts: what the server tells, and no more.

A value that the server does not give is None. Streams, logs and pasted files create generations; traces, tables, the doctor
and the tuner read them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from specdemo.attach.client import Client, Reply
from specdemo.config.settings import Sampling
from specdemo.trace.events import Choice, Knowledge


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the answer. token_id: None if the server sends only text, of which a piece may be several tokens"""

    text: str
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One draft and its verification.

    committed: the accepted tokens, then the target's own one; the last round of a generation may be cut
    drafted, accepted: numbers of tokens; drafted is 0 in a round of plain decoding
    seconds: time of the round by the server's clock; draft_seconds: the part in which it drafted
    candidates: for each drafted place the tokens that the draft model considered, with its own probabilities, the drafted one
        first; only from a log. One place more than `drafted` if the draft ended there because its candidate was too improbable
    """

    committed: tuple[Piece, ...]
    drafted: int | None = None
    accepted: int | None = None
    seconds: float | None = None
    draft_seconds: float | None = None
    candidates: tuple[tuple[Choice, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer of a server.

    server, version: program and its version, "" if unknown; model: name of the target; method: the server's drafting method
    first: tokens of the pass that read the prompt, before the first round
    prompt_tokens: whole length; cached_tokens: how many of them the server reused
    prefill_seconds, decode_seconds: by the server's clock
    finish: stop, length, cancelled or "" if unknown
    drafted, accepted: the server's own sums
    positions: see `Record.by_position`
    reported_tokens: the server's own count of the answer's tokens, of which a piece may contain several
    """

    server: str
    version: str
    knowledge: Knowledge
    first: tuple[Piece, ...] = ()
    rounds: tuple[Round, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    finish: str = ""
    drafted: int | None = None
    accepted: int | None = None
    positions: tuple[tuple[int, int, int], ...] = ()
    reported_tokens: int | None = None
    model: str = ""
    method: str = ""
    prompt: str = ""

    @property
    def pieces(self) -> list[Piece]:
        """Return the whole answer."""
        return [*self.first, *(piece for each in self.rounds for piece in each.committed)]

    @property
    def text(self) -> str:
        """Return the text of the answer."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        """Return the number of pieces of the answer."""
        return len(self.pieces)

    @property
    def contradictory(self) -> bool:
        """Whether the rounds' sums differ from the server's own, or a round has other tokens than the accepted ones and one more.

        Only the last may have fewer: a limit or a stop cut it.
        """
        known = [each for each in self.rounds if each.accepted is not None]
        drafted, accepted = (sum(getattr(each, name) or 0 for each in known) for name in ("drafted", "accepted"))  # fmt: skip
        right = self.drafted in (None, drafted) and self.accepted in (None, accepted)
        missing = [(each.accepted or 0) + 1 - len(each.committed) for each in known]
        return bool(known) and (not right or any(missing[:-1]) or missing[-1] < 0)


Message = dict[str, str]  # role and content
Part = Generation | Round
Pages = Callable[[str], Reply]  # of a server that is being detected, by path


@dataclass(frozen=True, slots=True)
class Request:
    """Messages to be answered, the largest number of new tokens, and how they are drawn."""

    messages: Sequence[Message]
    max_new_tokens: int
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class Server(ABC):
    """A server of another program.

    about: facts that are known before the first answer, without rounds
    drafting: whether it drafts; None if only an answer can show it
    """

    client: Client
    about: Generation
    drafting: bool | None = None

    @abstractmethod
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
