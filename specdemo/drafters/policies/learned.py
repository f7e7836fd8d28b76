"""A lookahead that was learnt from recorded runs: stop when the draft has probably lost the target already.

A logistic classifier reads features of the draft step (DISCO, Mamou 2405.04304); drafting stops when the chance
that every drafted token survives falls below a threshold, which is the optimal kind of rule (SpecDec++ 2405.19715).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.engine.types import Outcome
from specdemo.trace.events import Reason

FEATURES = (
    "confidence",  # log-odds of the token's own probability under the drafter
    "survival",  # log of the product of all probabilities so far
    "lowest",  # log-odds of the least likely token so far
    "position",  # log of the token's place in the draft, from 1
    "accepted_share",  # of the tokens tested in recent steps, fading
    "kept_whole",  # whether the previous draft was kept whole
    "greedy",  # tokens are chosen, not drawn
    "greedy_confidence",  # confidence where greedy, 0 otherwise: a drawn token's own probability says less
)
LEAST, MOST = 1e-4, 1 - 1e-4  # probabilities are cut to these before their log-odds
FADE = 0.8  # what the counts behind `accepted_share` keep from step to step


@dataclass(frozen=True, slots=True)
class LookaheadWeights:
    """A trained classifier and the survival below which drafting stops.

    mean, scale, weights: one number a feature; the classifier sees (feature - mean) / scale
    trained_on: facts for the reader, such as the number of runs
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    threshold: float
    features: tuple[str, ...] = FEATURES
    trained_on: dict[str, object] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> LookaheadWeights:
        """Read a JSON file; UserError when it is not one of these."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            rows = {name: tuple(map(float, data[name])) for name in ("mean", "scale", "weights")}
            made = cls(
                **rows,
                bias=float(data["bias"]),
                threshold=float(data["threshold"]),
                features=tuple(data["features"]),
                trained_on=dict(data["trained_on"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unusable(path, "unreadable") from error
        return made._checked(path)

    def write(self, path: str | Path) -> None:
        """Write a JSON file that `read` gives back as it was."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    def _checked(self, path: str | Path) -> LookaheadWeights:
        if self.features != FEATURES:
            raise _unusable(path, "features")
        rows = (self.mean, self.scale, self.weights)
        numbers = [*self.mean, *self.scale, *self.weights, self.bias]
        whole = all(len(row) == len(FEATURES) for row in rows)
        if not (whole and all(map(math.isfinite, numbers)) and min(self.scale) > 0):
            raise _unusable(path, "numbers")
        if not 0 <= self.threshold <= 1:
            raise _unusable(path, "threshold")
        return self


class DraftFeatures:
    """The features of a draft as it grows, and the memory of the steps before it."""

    def __init__(self, *, greedy: bool) -> None:
        self.greedy = greedy
        self._accepted, self._tested = 1.0, 2.0  # one of two, until steps say more
        self._kept_whole = 0.0
        self.begin()

    def begin(self) -> None:
        """A new draft: nothing is drafted yet."""
        self.drafted = 0
        self._survival = 0.0
        self._lowest = math.inf

    def add(self, confidence: float) -> tuple[float, ...]:
        """returns: the values of FEATURES for a token of this probability, drafted next."""
        confidence = min(MOST, max(LEAST, confidence))
        odds = math.log(confidence / (1 - confidence))
        self.drafted += 1
        self._survival += math.log(confidence)
        self._lowest = min(self._lowest, odds)
        return (
            odds,
            self._survival,
            self._lowest,
            math.log(self.drafted),
            self._accepted / self._tested,
            self._kept_whole,
            float(self.greedy),
            odds if self.greedy else 0.0,
        )

    def end(self, accepted: int, drafted: int) -> None:
        """A draft was judged: `accepted` of its tokens were kept, and the next one refused if there was one."""
        if not drafted:
            return
        whole = accepted == drafted
        self._accepted = FADE * self._accepted + accepted
        self._tested = FADE * self._tested + accepted + (not whole)
        self._kept_whole = float(whole)


class Learned:
    """Stops after a token when the chance that the whole draft survives falls below the learnt threshold.

    The chance of a draft is the product of the classifier's answers, each given that all before were kept.
    """

    def __init__(self, weights: LookaheadWeights, most: int, *, greedy: bool) -> None:
        self.threshold = weights.threshold
        self.most = most
        self.features = DraftFeatures(greedy=greedy)
        self.survival = 1.0
        self._slopes = tuple(map(float.__truediv__, weights.weights, weights.scale))
        self._bias = weights.bias - sum(map(float.__mul__, self._slopes, weights.mean))
        self.reason = Reason("learned", {"threshold": weights.threshold})
        self.rule = None

    def allowed(self, committed: Sequence[int]) -> int:
        """At most this many, however likely the draft survives."""
        self.features.begin()
        self.survival = 1.0
        self.reason = Reason("learned_whole", {"most": self.most, "threshold": self.threshold})
        return self.most

    def go_on(self, confidence: float) -> bool:
        """While the draft is likely enough to survive as a whole."""
        self.survival *= self.chance(self.features.add(confidence))
        if self.survival >= self.threshold:
            return True
        drafted = self.features.drafted
        chances = {"survival": self.survival, "threshold": self.threshold}
        self.reason = Reason("learned_stop", {"drafted": drafted, **chances})
        return False

    def chance(self, values: Sequence[float]) -> float:
        """The classifier: probability that a token is kept, given that all before it were."""
        odds = self._bias + sum(map(float.__mul__, self._slopes, values))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))

    def observe(self, outcome: Outcome) -> None:
        """Remember how much of the draft was kept."""
        self.features.end(len(outcome.verdict.path), len(outcome.proposal))


def _unusable(path: str | Path, reason: str) -> UserError:
    return UserError(f"policy.weights_{reason}", name=Path(path).name)
