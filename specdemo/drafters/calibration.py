"""How often a drafted token of a given confidence is really kept: learned from the run itself."""

from __future__ import annotations

from specdemo.engine.types import Outcome

BINS = 10
PRIOR_WEIGHT = 4.0  # tokens that the prior counts for, per bin
FADE = 0.98  # what is left of older evidence after each tested token of the same bin


class Calibration:
    """Turns a drafter's confidence into the chance that the target keeps the token, its parent being kept.

    A table of bins over confidence, each a fading count with a prior in which drafters are somewhat modest
    in the low bins: a greedy match needs the likeliest token only, and sampling keeps min(1, target / draft).
    """

    def __init__(self) -> None:
        self._kept = [PRIOR_WEIGHT * _prior((place + 0.5) / BINS) for place in range(BINS)]
        self._seen = [PRIOR_WEIGHT] * BINS
        self._total = [PRIOR_WEIGHT * 0.6, PRIOR_WEIGHT]

    @property
    def mean(self) -> float:
        """Share of recent tested tokens that was kept."""
        return self._total[0] / self._total[1]

    def chance(self, confidence: float | None) -> float:
        """Chance to be kept; the mean where the drafter names no confidence."""
        if confidence is None:
            return self.mean
        return sum(
            share * self._kept[place] / self._seen[place] for place, share in _shares(confidence)
        )

    def observe(self, outcome: Outcome) -> None:
        """Learn from every tested node."""
        kept = set(outcome.verdict.path)
        for node, chance in enumerate(outcome.verdict.accept_probs):
            if chance is None:
                continue
            confidence = outcome.proposal.confidences[node] if outcome.proposal.confidences else None
            self._total = [FADE * self._total[0] + (node in kept), FADE * self._total[1] + 1]
            for place, share in _shares(confidence) if confidence is not None else ():
                fade = 1 - (1 - FADE) * share
                self._kept[place] = fade * self._kept[place] + share * (node in kept)
                self._seen[place] = fade * self._seen[place] + share


def _shares(confidence: float) -> list[tuple[int, float]]:
    """The two bins around a confidence and their shares: a straight line, so that a policy sees no jumps."""
    place = min(max(confidence * BINS - 0.5, 0.0), BINS - 1.0)
    low = min(int(place), BINS - 2)
    return [(low, low + 1 - place), (low + 1, place - low)]


def _prior(confidence: float) -> float:
    return 0.25 + 0.7 * confidence
