"""The plan of a chain that a model drafts in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

TENTHS = 10


@dataclass(frozen=True, slots=True)
class StopRule:
    """The end of a draft, in numbers, so that compiled code can follow it.

    A draft ends after a token of confidence c when c < least, or when the product of the rates of all tokens so far is not
    above the floor of its position in the draft.

    numbers: (11 + most,) float64: the rate in the middle of each tenth of confidence, straight lines between; least;
        and a floor for each token
    """

    numbers: np.ndarray

    @classmethod
    def of(
        cls, floors: Sequence[float], rates: Sequence[float] = (1.0,) * TENTHS, least: float = 0.0
    ) -> StopRule:
        """The rule of these numbers."""
        import numpy as np

        return cls(np.array([*rates, least, *floors], dtype=np.float64))

    @classmethod
    def never(cls, most: int, least: float = 0.0) -> StopRule:
        """No survival is too low."""
        return cls.of([-1.0] * most, least=least)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """Parameters of a draft.

    most: tokens at most; rule: where it ends before that
    uniforms: (most,) float64 on the CPU, for drawing tokens, see `sampling.draw_at`; None chooses the most likely
    keys: (most,) int64 on the CPU, to draw with the noise of `tickets.Tickets.keys` instead; None if it is not used
    temperature, top_k, top_p: of the rows, when tokens are drawn; top_k 0 and top_p 1 are off
    penalty: of tokens in the text and of drafted ones, in any case; text_ids: the text, if there is a penalty
    """

    most: int
    rule: StopRule
    uniforms: Tensor | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    text_ids: Sequence[int] = ()
    keys: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """A draft: N tokens as columns of a model's vocabulary.

    rows: N of (W,) float32, the distributions from which they were drawn or chosen
    step_seconds: duration of each token after the first, if known; divided by the runs that shared it
    runs: how many those were
    """

    columns: Sequence[int] = ()
    rows: Sequence[Tensor] = ()
    confidences: Sequence[float] = ()
    step_seconds: float | None = None
    runs: int = 1

    def begin(self, tokens: int) -> Chain:
        """Its first tokens."""
        return Chain(self.columns[:tokens], self.rows[:tokens], self.confidences[:tokens])
