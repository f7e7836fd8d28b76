"""How often a drafted token of a given confidence is really kept: learned from the run itself."""

from __future__ import annotations

from collections.abc import Callable

from specdemo.engine.types import Outcome

BINS = 10
PRIOR_WEIGHT = 6.0  # tokens that the prior counts for, per bin
FADE = 0.98  # what is left of older evidence after each tested token of the same bin


Prior = Callable[[float], float]


def greedy_model(confidence: float) -> float:
    """A draft model's choice: right somewhat more often than it says, for only the target's likeliest token counts."""
    return 0.03 + confidence + 0.3 * confidence * (1 - confidence)


def sampled_model(confidence: float) -> float:
    """A drawn token is kept with min(1, target / draft): often even when it was unlikely."""
    return 0.32 + 0.62 * confidence


def ngram_copy(confidence: float) -> float:
    """A copy of the same text."""
    return max(0.05, 1.2 * confidence - 0.15)


def retrieved_copy(confidence: float) -> float:
    """A copy of another text: shares among few matches promise more than they hold."""
    return 0.05 + 0.8 * confidence**2


class Calibration:
    """Turns a drafter's confidence into the chance that the target keeps the token, its parent being kept.

    A table of bins over confidence, each a fading count that begins with a prior. The priors above are fits
    to runs of the embedded pair on a few dozen instructions; evidence of the run soon outweighs them.
    """

    def __init__(self, prior: Prior = greedy_model) -> None:
        middles = [(place + 0.5) / BINS for place in range(BINS)]
        self._kept = [PRIOR_WEIGHT * min(0.99, prior(middle)) for middle in middles]
        self._seen = [PRIOR_WEIGHT] * BINS
        self._total = [PRIOR_WEIGHT * min(0.99, prior(0.6)), PRIOR_WEIGHT]

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
