"""Rules that change the distribution of the text: two bugs of other engines and a scheduler, each enumerated and run.

Two bugs that were found in other engines: each biases the text a little, and a test must draw enough tokens to see it.

Shared noise (vLLM pull requests 47386 and 54282): the drafted token and the one drawn after a refusal used the same noise, under
the rule that accepts with min(1, target / draft). The noise that made the draft draw x contains information about the
noise of the other tokens, so the second draw is not independent. With two tokens nothing is left to draw; with three:

    target (.1, .4, .5)   draft (.6, .1, .3)   result (.1, .452, .448)
    only token 0 is ever refused, in .6 - .1 = .5 of all runs, and (.3, .2) of the target is left for tokens 1 and 2
    token 1 comes with .1 + .5 x 19/27 instead of .1 + .5 x 3/5: it wins in 19 of 27 runs in which token 0 won in the draft,
    by the integral over the exponential waits, whose quotient wait / probability is lowest for the drawn token

Another distribution reported (transformers issue 47932): the draft draws from one distribution and the rule divides by another.

    target (.7, .3)   drawn from (.5, .5)   reported (.6, .4)
    token 1 is accepted with .3 / .4 instead of .3 / .5: token 0 comes with .5 + .5 x .25 = .625 instead of .7

Why a drafted token may end a draft but must not be dropped: DSpark's counter-example, run and enumerated.

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

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial

import torch
from torch import Tensor

from specdemo.bench.statistics import chi_square_p, overrated, transform, uniformity_p
from specdemo.config.settings import Sampling
from specdemo.drafters.draft_model import LookBack
from specdemo.engine.loop import generate
from specdemo.engine.passes import ForwardOutput
from specdemo.engine.sampling import Shaper, Tickets, draw
from specdemo.engine.types import Drafter, Limits, Proposal
from specdemo.engine.verify import verify_sampling
from specdemo.trace.events import ModelInfo, RunStarted, Verified
from specdemo.trace.metrics import output_ids

Distribution = tuple[Fraction, ...]
# Noncentrality that a chi-square test of level 0.01 finds in nine of ten cases, by degrees of freedom.
NEEDED_EFFECT = {1: 14.88, 2: 17.43}
CONTROL_EFFECT = 60.0  # expected chi-square of the audit's controls beyond chance


def tenths(*counts: int) -> Distribution:
    return tuple(Fraction(count, 10) for count in counts)


@dataclass(frozen=True, slots=True)
class Control:
    """Findings of the audit's tests about a wrong rule. p_uniform, p_draft: see `statistics.SamplingAudit`"""

    name: str
    samples: int
    p_uniform: float
    p_draft: float

    def found(self, limit: float) -> bool:
        return min(self.p_uniform, self.p_draft) < limit


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on a few tokens. exact: the distribution of its result, as derived above; drawn: returns a token for a seed"""

    name: str
    target: Distribution
    draft: Distribution
    exact: Distribution
    drawn: Callable[[int], int]

    @property
    def lossless(self) -> bool:
        """Whether the token is distributed exactly as the target's."""
        return self.exact == self.target

    @property
    def effect(self) -> float:
        """Expected chi-square that one token adds."""
        return float(sum((e - t) ** 2 / t for e, t in zip(self.exact, self.target, strict=True)))

    @property
    def needed(self) -> int | None:
        """Tokens after which a test finds the bias, see NEEDED_EFFECT; None without a bias."""
        if self.lossless:
            return None
        return math.ceil(NEEDED_EFFECT[len(self.target) - 1] / self.effect)

    def run(self, runs: int) -> list[int]:
        """Count how often each token came in so many runs."""
        tokens = [self.drawn(seed) for seed in range(runs)]
        return [tokens.count(token) for token in range(len(self.target))]

    def audited(self) -> Control:
        """Test tokens of the rule as `statistics.judge_sampling` tests those of a method, so many that the bias shows."""
        count = math.ceil(CONTROL_EFFECT / self.effect)
        target, draft = as_row(self.target), as_row(self.draft)
        generator, tokens = torch.Generator().manual_seed(2**40), map(self.drawn, range(count))
        drawn = torch.tensor(list(tokens))
        uniforms = torch.rand(2, count, generator=generator, dtype=torch.float64)
        found: list[float] = []
        for uniform, rank in zip(uniforms, (None, overrated(target, draft)), strict=True):
            # A token's values lie between those of the uniform numbers 0 and 1.
            low, high = (
                torch.tensor([transform(target, token, end, rank) for token in range(len(target))])
                for end in (0.0, 1.0)
            )
            values = low[drawn] + uniform * (high - low)[drawn]
            found.append(uniformity_p(values.tolist()))
        return Control(self.name, count, *found)


def p_of(counts: Sequence[int], distribution: Distribution) -> float:
    """Return the p-value of counts of tokens that were drawn from a distribution."""
    return chi_square_p(counts, [sum(counts) * float(prob) for prob in distribution])


def as_row(distribution: Distribution) -> Tensor:
    """Return the probabilities as a tensor, (V,) float32."""
    return torch.tensor([float(share) for share in distribution])


def _shared(target: Tensor, draft: Tensor, seed: int) -> int:
    """Draw a draft and its replacement with the same tickets, under the rule for independent ones."""
    tickets, generator = Tickets(seed), torch.Generator().manual_seed(seed)
    drafted = tickets.winner(draft, 0)
    if float(torch.rand((), generator=generator)) < float(target[drafted] / draft[drafted]):
        return drafted
    return tickets.winner((target - draft).clamp(min=0), 0)


def _reported(target: Tensor, draft: Tensor, reported: Tensor, seed: int) -> int:
    """Draw from one distribution and check with another."""
    generator = torch.Generator().manual_seed(seed)
    proposal = Proposal.chain([draw(draft, generator)], draft_probs=reported[None])
    verdict = verify_sampling(proposal, target.expand(2, -1), generator)
    return proposal.token_ids[0] if verdict.path else verdict.next_id


def bugs() -> Iterator[Rule]:
    """Yield the two bugs that were found in other engines."""
    target, draft = tenths(1, 4, 5), tenths(6, 1, 3)
    p, q = as_row(target), as_row(draft)
    one, other = Fraction(1, 10) + Fraction(19, 54), Fraction(3, 10) + Fraction(8, 54)
    yield Rule(
        "shared noise, accept with p / q", target, draft,
        (Fraction(1, 10), one, other), lambda seed: _shared(p, q, seed),
    )  # fmt: skip
    two, drawn, reported = tenths(7, 3), tenths(5, 5), as_row(tenths(6, 4))
    t, d = as_row(two), as_row(drawn)
    exact = Fraction(5, 8), Fraction(3, 8)
    yield Rule(
        "another draft distribution reported", two, drawn, exact,
        lambda seed: _reported(t, d, reported, seed),
    )  # fmt: skip


@cache
def controls() -> tuple[Control, ...]:
    """Run the tests of the audit on both bugs, which they must find. The results are always the same, because the seeds are fixed."""
    return tuple(bug.audited() for bug in bugs())


GoOn = Callable[[Sequence[int]], bool]  # whether to draw another word after these

TARGET, DRAFT = tenths(7, 3), tenths(5, 5)
SURVIVAL = tuple(min(Fraction(1), p / q) for p, q in zip(TARGET, DRAFT, strict=True))
MEAN_SURVIVAL = sum(q * chance for q, chance in zip(DRAFT, SURVIVAL, strict=True))
DRAFT_COST = Fraction(3, 10)  # cost of a drafted word, in target passes
LOOKAHEAD = 4
THRESHOLD = 0.8


def schedulers() -> Iterator[Rule]:
    """Yield three rules for the length of a draft, which run through the real loop."""
    for name, go_on, looks_back in (
        ("stop after an unlikely word", after_unlikely, False),
        ("stop at the first non-improvement", first_non_improvement, False),
        ("look back", after_unlikely, True),
    ):
        exact = first_word(go_on, looks_back=looks_back)
        yield Rule(name, TARGET, DRAFT, exact, partial(_first_word_of_a_run, go_on, looks_back))


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
    """Return the exact distribution of the first committed word, summed over every draft and every fate of its first word."""
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


def _first_word_of_a_run(go_on: GoOn, looks_back: bool, seed: int) -> int:  # noqa: FBT001 - bound by `partial`
    """Return the first word that one step of the real loop commits. Its limit leaves room for the longest draft."""
    drafts = Draws(go_on, seed)
    events = generate(
        FixedTarget(),  # type: ignore[arg-type]
        LookBack(drafts, THRESHOLD) if looks_back else drafts,
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

    def forward(self, pending_id: int, proposal: Proposal) -> ForwardOutput:
        """Return the same row for each token: (1 + N, 2) logits."""
        return ForwardOutput(as_row(TARGET).log().expand(1 + len(proposal), -1))

    def keep(self, path: Sequence[int]) -> None:
        self.length += 1 + len(path)
