"""The plan of a chain that a model drafts in one call."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

TENTHS = 10


@dataclass(frozen=True, slots=True)
class StopRule:
    """The end of a draft, in numbers, so that compiled code can follow it.

    A draft ends after a token of confidence c when c < least, or when the product of the rates of all tokens so far is not
    above the floor of its position in the draft.

    numbers: 11 + most float64: the rate in the middle of each tenth of confidence, straight lines between; least;
        and a floor for each token
    """

    numbers: array[float]

    @classmethod
    def of(
        cls, floors: Sequence[float], rates: Sequence[float] = (1.0,) * TENTHS, least: float = 0.0
    ) -> StopRule:
        """The rule of these numbers."""
        return cls(array("d", (*rates, least, *floors)))

    @classmethod
    def never(cls, most: int, least: float = 0.0) -> StopRule:
        """No survival is too low."""
        return cls.of([-1.0] * most, least=least)

    def floor(self, taken: int) -> float:
        """The survival above which a draft of so many tokens goes on."""
        return self.numbers[TENTHS + taken]

    def chance(self, confidence: float) -> float:
        """The rate of a token."""
        place = min(max(confidence * TENTHS - 0.5, 0.0), TENTHS - 1.0)
        low = min(int(place), TENTHS - 2)
        return self.numbers[low] * (low + 1 - place) + self.numbers[low + 1] * (place - low)

    def goes_on(self, taken: int, confidence: float, survival: float) -> bool:
        """Whether a draft goes on after a token. taken: tokens with it; survival: product of their rates"""
        return confidence >= self.numbers[TENTHS] and survival > self.floor(taken)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """Parameters of a draft.

    most: tokens at most; rule: where it ends before that
    uniforms: (most,) float64 on the CPU, for drawing tokens, see `sampling.draw_at`; None chooses the most likely
    noise: 64 bits, to draw with the noise of `sampling.Tickets` instead; None if it is not used
    temperature, top_k, top_p: of the rows, when tokens are drawn; top_k 0 and top_p 1 are off
    penalty: of tokens in the text and of drafted ones, in any case; 1 for none
    """

    most: int
    rule: StopRule
    uniforms: Tensor | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    noise: int | None = None


@dataclass(slots=True)
class Chain:
    """A draft: N tokens as columns of a model's vocabulary.

    rows: N of (W,) float32, the distributions from which they were drawn or chosen
    survival: product of the rates of the plan's rule
    step_seconds: duration of each token after the first, if known; divided by the runs that shared it
    runs: how many those were
    """

    columns: list[int] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    survival: float = 1.0
    step_seconds: float | None = None
    runs: int = 1

    def add(self, column: int, row: Tensor) -> None:
        """Append a token that was drawn or chosen from a distribution, (W,)."""
        self.columns.append(column)
        self.rows.append(row)
        self.confidences.append(float(row[column]))
