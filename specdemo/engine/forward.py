"""What a run needs to know of a model before it can go on, and the one way to answer. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.cache import RollbackCache


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who shared a pass.

    runs, rows: how many, of all together; rows is 0 where nobody counted
    seconds: of the pass; waited: until it began, and after its end until the run went on
    """

    runs: int = 1
    rows: int = 0
    seconds: float = 0.0
    waited: float = 0.0


ALONE = Sharing()


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """Rows of one conversation to read at once; they are written after the cached text and not counted.

    positions: place of each row in the text
    seen: (rows, keys) bool — row r looks at key k; None where each row sees all before it and nothing was cached
    cache: the conversation's own
    answers: how many of the last rows need logits
    reads: layers whose hidden states are wanted, as transformers counts them (0 = embedding, the last = after the norm)
    depth: how many of the first layers to run, without norm and head; None for the whole model
    """

    token_ids: Sequence[int]
    positions: Sequence[int]
    seen: Tensor | None
    cache: RollbackCache
    answers: int = 1
    reads: Sequence[int] = ()
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What a pass gave.

    logits: (answers, V), empty when only some layers ran; states: (rows, H) for each wanted layer
    sharing: with whom the pass was shared
    """

    logits: Tensor
    states: tuple[Tensor, ...] = ()
    sharing: Sharing = ALONE


class Decoder(Protocol):
    """Weights that any number of conversations share; keeps nothing of any of them.

    config: the model's own, of its text part; piece: rows in which it likes to read a long text
    """

    config: Any
    piece: int

    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Answer each pass; a decoder that can joins them."""


class ForwardRequest:
    """What a run needs of a model before it can go on; whoever drives the run answers it."""

    def __init__(self, decoder: Decoder, one: ForwardInput) -> None:
        self.decoder = decoder
        self.one = one
        self.answer: ForwardOutput | None = None
        self.error: BaseException | None = None

    def result(self) -> ForwardOutput:
        """The answer. Raises what broke the pass."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "nobody has answered"
        return self.answer


def answer_together(asks: Sequence[ForwardRequest]) -> None:
    """Answer asks of one decoder and depth in one pass; what breaks it is kept with each of them."""
    begun = time.perf_counter()
    try:
        answers = asks[0].decoder.run([ask.one for ask in asks])
        rows, seconds = sum(len(ask.one.token_ids) for ask in asks), time.perf_counter() - begun
        for ask, answer in zip(asks, answers, strict=True):
            ask.answer = replace(answer, sharing=Sharing(len(asks), rows, seconds))
    except Exception as error:  # noqa: BLE001 - raised in each of the runs
        for ask in asks:
            ask.error = error
