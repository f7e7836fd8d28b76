"""What a run needs to know of a model before it can go on, and the one way to answer. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdemo.engine.decoder import Answer, Decoder, Pass


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
    try:
        answers = asks[0].decoder.run([ask.one for ask in asks])
        for ask, answer in zip(asks, answers, strict=True):
            ask.answer = replace(answer, runs=len(asks))
    except Exception as error:  # noqa: BLE001 - raised in each of the runs
        for ask in asks:
            ask.error = error
