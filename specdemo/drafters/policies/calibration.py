"""Acceptance rate of drafted tokens by confidence, learned from the run itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdemo.engine.types import Outcome
from specdemo.kernels.plan import TENTHS

BINS = TENTHS
PRIOR_WEIGHT = 6.0  # tokens that the prior counts for, per bin
FADE = 0.98  # decay of older evidence per tested token of the same bin


Chance = Callable[
    [float], float
]  # confidence of a token to its chance of acceptance, once it is tested


@dataclass(frozen=True, slots=True)
class Prior:
    """Acceptance rates that are assumed until the run has measured its own.

    first: of a parent's first child
    later: of a sibling after a rejected one, by its confidence among the rest; by default as of the first
    """

    first: Chance
    later: Chance | None = None


@dataclass(frozen=True, slots=True)
class Priors:
    """Acceptance rates of a method's confidences.

    greedy, sampled: without and with sampling; coupled: if target and drafter draw with the same noise, by default as sampled
    """

    greedy: Prior
    sampled: Prior
    coupled: Prior | None = None


def _drawn(confidence: float) -> float:
    """A drawn token is accepted with min(1, target / draft): often even when it was unlikely."""
    return 0.32 + 0.62 * confidence


def _drawn_later(confidence: float) -> float:
    """A further draw after a rejected one: the target then prefers the very tokens that are unlikely under the draft."""
    return 0.1 + 0.5 * confidence


MODEL_DRAFT = Priors(
    # A chosen token is right somewhat more often than its probability, for only the target's most likely token counts.
    # The next choice after a rejected one is about as often right as its confidence among the rest.
    greedy=Prior(
        lambda sure: 0.03 + sure + 0.3 * sure * (1 - sure), lambda sure: 0.05 + 0.8 * sure
    ),
    sampled=Prior(_drawn, _drawn_later),
    # With shared noise (1 - TV) / (1 + TV) of the drawn tokens are accepted, where rejection sampling accepts 1 - TV.
    coupled=Prior(lambda sure: _drawn(sure) / (2 - _drawn(sure)), _drawn_later),
)
STATED = Prior(lambda sure: sure)  # of a drafter that was trained to estimate the chance


class Calibration:
    """Converts a drafter's confidence into the chance that the target accepts the token, once it is tested.

    A table of bins over confidence, each a decaying count that starts with a prior; one table for first
    children, one for their later siblings, which are tested only after a rejection. The priors are
    fits to runs of the embedded pair on a few dozen instructions; evidence of the run soon outweighs them.
    """

    def __init__(self, prior: Prior = MODEL_DRAFT.greedy) -> None:
        self._first = _Table(prior.first)
        self._later = _Table(prior.later or prior.first)

    @property
    def mean(self) -> float:
        """Fraction of recent first children that was accepted."""
        return self._first.mean

    def chance(self, confidence: float | None, *, sibling: bool = False) -> float:
        """Return the chance of acceptance once the token is tested; the mean if the drafter has no confidence.

        sibling: an older child of the same parent is rejected first
        """
        table = self._later if sibling else self._first
        return table.mean if confidence is None else table.rate(confidence)

    def child_chances(self, confidences: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return the chance of each sibling that it is accepted once its parent is: all before it are rejected first.

        confidences: of siblings, for each of several parents
        """
        return [self._siblings(row) for row in confidences]

    @property
    def rates(self) -> list[float]:
        """`chance` of first children in the middle of each tenth of confidence, see `kernels.plan.StopRule`."""
        return self._first.rates

    def observe(self, outcome: Outcome) -> None:
        if not len(outcome.proposal):
            return
        proposal, kept, parents = outcome.proposal, set(outcome.verdict.path), set[int]()
        for node, chance in enumerate(outcome.verdict.accept_probs):
            table = self._later if proposal.parents[node] in parents else self._first
            parents.add(proposal.parents[node])
            if chance is not None:
                confidence = proposal.confidences[node] if proposal.confidences else None
                table.count(confidence, node in kept)

    def _siblings(self, confidences: Sequence[float]) -> list[float]:
        reached, chances = 1.0, []
        for rank, confidence in enumerate(confidences):
            chance = self.chance(confidence, sibling=rank > 0)
            chances.append(reached * chance)
            reached *= 1 - chance
        return chances


class _Table:
    """Decaying counts of accepted and tested tokens by confidence."""

    def __init__(self, prior: Chance) -> None:
        middles = [(place + 0.5) / BINS for place in range(BINS)]
        self._kept = [PRIOR_WEIGHT * min(0.99, prior(middle)) for middle in middles]
        self._seen = [PRIOR_WEIGHT] * BINS
        self._total = [PRIOR_WEIGHT * min(0.99, prior(0.6)), PRIOR_WEIGHT]

    @property
    def mean(self) -> float:
        return self._total[0] / self._total[1]

    @property
    def rates(self) -> list[float]:
        return [kept / seen for kept, seen in zip(self._kept, self._seen, strict=True)]

    def rate(self, confidence: float) -> float:
        return sum(
            share * self._kept[place] / self._seen[place] for place, share in _shares(confidence)
        )

    def count(self, confidence: float | None, kept: bool) -> None:  # noqa: FBT001
        self._total = [FADE * self._total[0] + kept, FADE * self._total[1] + 1]
        for place, share in _shares(confidence) if confidence is not None else ():
            fade = 1 - (1 - FADE) * share
            self._kept[place] = fade * self._kept[place] + share * kept
            self._seen[place] = fade * self._seen[place] + share


def _shares(confidence: float) -> list[tuple[int, float]]:
    """The two bins around a confidence and their shares: a straight line, so that a policy sees no jumps."""
    place = min(max(confidence * BINS - 0.5, 0.0), BINS - 1.0)
    low = min(int(place), BINS - 2)
    return [(low, low + 1 - place), (low + 1, place - low)]
