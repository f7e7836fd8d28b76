"""What a run needs to know of a model before it can go on, and the one way to answer. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdemo.engine.decoder import Answer, Decoder, Pass


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


class Ask:
    """What a run needs of a model before it can go on; whoever drives the run answers it."""

    def __init__(self, decoder: Decoder, one: Pass) -> None:
        self.decoder = decoder
        self.one = one
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def result(self) -> Answer:
        """The answer. Raises what broke the pass."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None, "nobody has answered"
        return self.answer


def answer_together(asks: Sequence[Ask]) -> None:
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
