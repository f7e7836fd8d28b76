"""Why a drafted token may end a draft but must not be dropped: DSpark's counter-example, run and enumerated.

The target gives word 0 probability .7 and word 1 .3; the draft draws each with .5. A drawn word x is accepted with
min(1, target[x] / draft[x]): word 0 always, word 1 with .3 / .5 = .6.

Stop after: draw up to and including a word that may fail. Word 0 is drawn first with .5 and accepted. Word 1 is drawn
with .5 and accepted with .6, else replaced by word 0: word 0 comes with .5 + .5 x .4 = .7, as it should.

Look back: the same draws, but a last word that may fail is dropped. Word 0 is drawn with .5 and accepted. Word 1 is
drawn with .5 and dropped, and the target samples by itself, word 0 with .7: word 0 comes with .5 + .5 x .7 = .85. The
target never saw the draws that would have balanced this.

First non-improvement: the length is decided before each draw, from the mean acceptance (.5 x 1 + .5 x .6 = .8): draft
while tokens per second grow. No drawn word influences the decision: exact again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from specdemo.config.settings import Sampling
from specdemo.drafters.draft_model import LookBack
from specdemo.engine.loop import generate
from specdemo.engine.sampling import Shaper, draw
from specdemo.engine.types import Drafter, Limits, Proposal, TargetOutput
from specdemo.session.work.real_bugs import Distribution, RuleRow, as_row, tenths
from specdemo.trace.events import ModelInfo, RunStarted, Verified
from specdemo.trace.metrics import output_ids

GoOn = Callable[[Sequence[int]], bool]  # whether to draw another word after these

TARGET, DRAFT = tenths(7, 3), tenths(5, 5)
SURVIVAL = tuple(min(Fraction(1), p / q) for p, q in zip(TARGET, DRAFT, strict=True))
MEAN_SURVIVAL = sum(q * chance for q, chance in zip(DRAFT, SURVIVAL, strict=True))
DRAFT_COST = Fraction(3, 10)  # cost of a drafted word, in target passes
LOOKAHEAD = 4
THRESHOLD = 0.8


def demonstrate(runs: int = 4_000) -> list[RuleRow]:
    """Run the three schedulers through the real loop, next to their exact results."""
    return [
        _row("stop after an unlikely word", after_unlikely, runs),
        _row("stop at the first non-improvement", first_non_improvement, runs),
        _row("look back", after_unlikely, runs, looks_back=True),
    ]


def after_unlikely(drawn: Sequence[int]) -> bool:
    """Draw on until after a word whose survival is below the threshold."""
    return not drawn or SURVIVAL[drawn[-1]] >= THRESHOLD


def first_non_improvement(drawn: Sequence[int]) -> bool:
    """Draft while one more word raises the expected tokens per second, from the number of words alone."""

    def speed(words: int) -> Fraction:
        expected = 1 + sum(MEAN_SURVIVAL**depth for depth in range(1, words + 1))
        return expected / (1 + DRAFT_COST * words)

    return speed(len(drawn) + 1) > speed(len(drawn))


def first_word(go_on: GoOn, *, looks_back: bool = False) -> Distribution:
    """The exact distribution of the first committed word: every draft, with every fate of its first word."""
    total = [Fraction(0), Fraction(0)]
    left = [max(p - q, Fraction(0)) for p, q in zip(TARGET, DRAFT, strict=True)]
    for drawn, chance in _drafts(go_on, (), Fraction(1)):
        kept = list(drawn)
        while looks_back and kept and SURVIVAL[kept[-1]] < THRESHOLD:
            kept.pop()
        if kept:
            total[kept[0]] += chance * SURVIVAL[kept[0]]
            refused, instead = chance * (1 - SURVIVAL[kept[0]]), [x / sum(left) for x in left]
        else:
            refused, instead = chance, list(TARGET)
        total = [so_far + refused * share for so_far, share in zip(total, instead, strict=True)]
    return total[0], total[1]


def _drafts(
    go_on: GoOn, drawn: tuple[int, ...], chance: Fraction
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    if len(drawn) == LOOKAHEAD or not go_on(drawn):
        yield drawn, chance
        return
    for word, share in enumerate(DRAFT):
        yield from _drafts(go_on, (*drawn, word), chance * share)


def _row(name: str, go_on: GoOn, runs: int, *, looks_back: bool = False) -> RuleRow:
    exact = first_word(go_on, looks_back=looks_back)
    tokens: list[int] = []
    for seed in range(runs):
        drafter: Drafter = Draws(go_on, seed)
        if looks_back:
            drafter = LookBack(drafter, THRESHOLD)
        tokens.append(_first_word_of_a_run(drafter, seed))
    return RuleRow.of(name, TARGET, exact, tokens)


def _first_word_of_a_run(drafter: Drafter, seed: int) -> int:
    """One step of the real loop; the limit leaves room for the longest draft."""
    events = generate(
        FixedTarget(),  # type: ignore[arg-type]
        drafter,
        [0],
        shaper=Shaper(Sampling(temperature=1.0, seed=seed)),
        limits=Limits(LOOKAHEAD + 1),
        started=RunStarted("speculative", "toy", "", {}, ModelInfo("two words")),
    )
    return next(output_ids([event])[0] for event in events if isinstance(event, Verified))


class Draws(Drafter):
    """Draws words from the draft while `go_on` allows it; the confidence of a word is its acceptance probability."""

    def __init__(self, go_on: GoOn, seed: int) -> None:
        self.go_on = go_on
        # The drafter's draws must not be those of the verifier, which counts from the seed itself.
        self._generator = torch.Generator().manual_seed(seed + 1_000_003)

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        drawn: list[int] = []
        while len(drawn) < min(budget, LOOKAHEAD) and self.go_on(drawn):
            drawn.append(draw(as_row(DRAFT), self._generator))
        return Proposal.chain(
            drawn,
            draft_probs=as_row(DRAFT).expand(len(drawn), -1),
            confidences=tuple(float(SURVIVAL[word]) for word in drawn),
            lookahead=LOOKAHEAD,
        )


class FixedTarget:
    """A replacement of a cached model: two fixed probabilities for every text."""

    vocabulary_size = len(TARGET)

    def __init__(self) -> None:
        self.length = 0

    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Count the tokens. returns: (2,) logits"""
        self.length += len(token_ids)
        return as_row(TARGET).log()

    def rollback(self, length: int) -> None:
        self.length = length

    def forward(self, pending_id: int, proposal: Proposal) -> TargetOutput:
        """The same row for each: (1 + N, 2) logits."""
        return TargetOutput(as_row(TARGET).log().expand(1 + len(proposal), -1))

    def keep(self, path: Sequence[int]) -> None:
        self.length += 1 + len(path)
