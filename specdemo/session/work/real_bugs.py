"""Two bugs that were found in other engines: each biases the text a little, and a test must draw enough tokens to see it.

Shared noise (vLLM pull requests 47386 and 54282): the drafted token and the one drawn after a refusal used the same noise, under
the rule that accepts with min(1, target / draft). The noise that made the draft draw x says something about the noise
of the other tokens, so the second draw is not independent. With two tokens nothing is left to draw; with three:

    target (.1, .4, .5)   draft (.6, .1, .3)   result (.1, .452, .448)

Another distribution reported (transformers issue 47932): the draft draws from one distribution and the rule divides by another.

    target (.7, .3)   drawn from (.5, .5)   reported (.6, .4)
    token 1 is accepted with .3 / .4 instead of .3 / .5: token 0 comes with .5 + .5 x .25 = .625 instead of .7
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch
from torch import Tensor

from specdemo.engine.sampling import draw
from specdemo.engine.tickets import Tickets
from specdemo.engine.types import Proposal
from specdemo.engine.verify import verify_sampling
from specdemo.session.work.statistics import chi_square_p, overrated, transform, uniformity_p

Distribution = tuple[Fraction, ...]
# Noncentrality that a chi-square test of level 0.01 finds in nine of ten cases, by degrees of freedom.
NEEDED = {1: 14.88, 2: 17.43}
CONTROL_EFFECT = 60.0  # expected chi-square of the audit's controls beyond chance


def tenths(*counts: int) -> Distribution:
    """Return a distribution by tenths."""
    return tuple(Fraction(count, 10) for count in counts)


@dataclass(frozen=True, slots=True)
class RuleRow:
    """Effect of one rule on the first token.

    exact: probability of each token, by enumeration; measured: its frequency in `runs` runs
    p_target, p_exact: probability of such counts if the token came from the target, or from `exact`
    """

    rule: str
    target: Distribution
    exact: Distribution
    measured: tuple[float, ...]
    runs: int
    p_target: float
    p_exact: float

    @classmethod
    def of(
        cls, rule: str, target: Distribution, exact: Distribution, tokens: Sequence[int]
    ) -> RuleRow:
        """Count tokens."""
        runs = len(tokens)
        counts = [tokens.count(token) for token in range(len(target))]
        by_target, by_exact = (
            chi_square_p(counts, [runs * float(prob) for prob in probs])
            for probs in (target, exact)
        )
        measured = tuple(count / runs for count in counts)
        return cls(rule, target, exact, measured, runs, by_target, by_exact)

    @property
    def lossless(self) -> bool:
        """Whether the token is distributed exactly as the target's."""
        return self.exact == self.target

    @property
    def needed(self) -> int | None:
        """Tokens after which a test finds the bias, see NEEDED; None without a bias."""
        return None if self.lossless else math.ceil(NEEDED[len(self.target) - 1] / self.effect)

    @property
    def effect(self) -> float:
        """What one token adds to the expected chi-square."""
        return float(sum((e - t) ** 2 / t for e, t in zip(self.exact, self.target, strict=True)))


@dataclass(frozen=True, slots=True)
class Control:
    """What the tests of the audit find about a wrong rule. p_uniform, p_draft: see `judges.SamplingAudit`"""

    name: str
    samples: int
    p_uniform: float
    p_draft: float

    def found(self, limit: float) -> bool:
        """Whether a p-value is below the limit."""
        return min(self.p_uniform, self.p_draft) < limit


@dataclass(frozen=True, slots=True)
class Bug:
    """A rule on a few tokens. exact: the distribution of its result; drawn: a token by a seed"""

    name: str
    target: Distribution
    draft: Distribution
    exact: Distribution
    drawn: Callable[[int], int]

    def run(self, runs: int) -> RuleRow:
        """Draw tokens by the rule."""
        tokens = [self.drawn(seed) for seed in range(runs)]
        return RuleRow.of(self.name, self.target, self.exact, tokens)

    def audited(self) -> Control:
        """Test tokens of the rule as `judges.judge_sampling` tests those of a method, so many that the bias shows."""
        count = math.ceil(
            CONTROL_EFFECT / RuleRow.of(self.name, self.target, self.exact, [0]).effect
        )
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


def as_row(distribution: Distribution) -> Tensor:
    """(V,) float32"""
    return torch.tensor([float(share) for share in distribution])


def with_shared_noise(target: Distribution, draft: Distribution) -> Distribution:
    """Return the exact distribution of three tokens if a refused draft and its replacement are drawn with the same noise."""
    left = [max(p - q, Fraction(0)) for p, q in zip(target, draft, strict=True)]
    found = [min(p, q) for p, q in zip(target, draft, strict=True)]
    for refused in range(3):
        missing = max(draft[refused] - target[refused], Fraction(0))
        one, other = (token for token in range(3) if token != refused)
        for token, rest in ((one, other), (other, one)):
            if missing and left[token]:
                found[token] += missing * _wins(refused, token, rest, draft, left)
    return tuple(found)


def _wins(
    refused: int, token: int, rest: int, draft: Distribution, left: Sequence[Fraction]
) -> Fraction:
    """Return the probability that `token` wins in `left`, given that `refused` won in `draft` with the same noise.

    A token's quotient is wait / probability with an exponential wait. With t the wait of `refused`, the others wait at least
    one = draft[token] / draft[refused] and two = draft[rest] / draft[refused] times t; `rest` waits at least `ratio` times as
    long as `token`. The integral over t and the wait of `token` has two cases.
    """
    if not left[rest]:
        return Fraction(1)
    one, two = (draft[word] / draft[refused] for word in (token, rest))
    ratio = left[rest] / left[token]
    if two <= one * ratio:
        won = 1 / (1 + ratio) / (1 + one * (1 + ratio))
    else:
        until = 1 + two + two / ratio
        won = 1 / (1 + one + two) - 1 / until + 1 / ((1 + ratio) * until)
    return won * (1 + one + two)  # given that `refused` won


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


def bugs() -> Iterator[Bug]:
    """Yield both bugs."""
    target, draft = tenths(1, 4, 5), tenths(6, 1, 3)
    p, q = as_row(target), as_row(draft)
    yield Bug(
        "shared noise, accept with p / q", target, draft,
        with_shared_noise(target, draft), lambda seed: _shared(p, q, seed),
    )  # fmt: skip
    two, drawn, reported = tenths(7, 3), tenths(5, 5), as_row(tenths(6, 4))
    t, d = as_row(two), as_row(drawn)
    exact = Fraction(5, 8), Fraction(3, 8)
    yield Bug(
        "another draft distribution reported", two, drawn, exact,
        lambda seed: _reported(t, d, reported, seed),
    )  # fmt: skip


@cache
def controls() -> tuple[Control, ...]:
    """Return what the audit's tests find about both bugs: always the same, because the seeds are."""
    return tuple(bug.audited() for bug in bugs())
