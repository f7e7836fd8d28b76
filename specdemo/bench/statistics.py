"""Tests of whether tokens were drawn from the distributions that they should come from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdemo.config.settings import Sampling
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import PrefixReader
from specdemo.engine.types import Proposal

LEAST_EXPECTED = 5.0  # smallest expected count per cell for the chi-square approximation


def chi_square_p(observed: Sequence[float], expected: Sequence[float], *, fitted: int = 0) -> float:
    """Return the p-value of a chi-square test: the probability of counts at least as far from the expected ones, if these are right.

    observed, expected: counts per cell, in the same order; small cells are pooled, smallest first
    fitted: number of parameters of `expected` that were estimated from the observed counts
    returns: 0 if an impossible cell was observed; 1 with too few counts for a test
    """
    cells = sorted(zip(expected, observed, strict=True))
    if any(seen > 0 for wanted, seen in cells if wanted <= 0):
        return 0.0
    pooled_wanted = pooled_seen = 0.0
    kept: list[tuple[float, float]] = []
    for wanted, seen in cells:
        if wanted < LEAST_EXPECTED or 0 < pooled_wanted < LEAST_EXPECTED:
            pooled_wanted, pooled_seen = pooled_wanted + wanted, pooled_seen + seen
        else:
            kept.append((wanted, seen))
    if pooled_wanted > 0:
        kept.append((pooled_wanted, pooled_seen))
    freedom = len(kept) - 1 - fitted
    if freedom < 1:
        return 1.0
    statistic = sum((seen - wanted) ** 2 / wanted for wanted, seen in kept)
    halves = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def uniformity_p(samples: Sequence[float], cells: int = 10) -> float:
    """Return the probability of values at least this uneven, if they are uniform on 0 to 1. Few samples get fewer cells."""
    cells = max(2, min(cells, int(len(samples) / LEAST_EXPECTED)))
    counts = torch.bincount(_cells(samples, cells), minlength=cells)
    return chi_square_p(counts.tolist(), [len(samples) / cells] * cells)


def independence_p(samples: Sequence[float], cells: int = 5) -> float:
    """Return the probability of neighbours at least this dependent, if each value is independent of the previous one.

    Counts every consecutive pair and compares with the product of the margins. The pairs overlap, but the chi-square law
    of independent pairs applies (Anderson and Goodman 1957, order 0 against order 1).
    """
    cells = max(2, min(cells, math.isqrt(int(len(samples) / (2 * LEAST_EXPECTED)))))
    where = _cells(samples, cells)
    before, after = where[:-1], where[1:]
    counts = torch.bincount(before * cells + after, minlength=cells * cells).reshape(cells, cells)
    expected = torch.outer(counts.sum(1), counts.sum(0)).double() / max(1, len(before))
    return chi_square_p(
        counts.flatten().tolist(), expected.flatten().tolist(), fitted=2 * (cells - 1)
    )


def transform(probs: Tensor, token_id: int, uniform: float, rank: Tensor | None = None) -> float:
    """Transform a token to a number that is uniform if the token was sampled from its distribution.

    probs: (V,) — the expected distribution; uniform: a random number from 0 to 1
    rank: (V,) — an order of the tokens, highest first, that does not depend on the token; None: most likely first
    returns: probability of all tokens before this one + `uniform` x its own probability

    The values of all tokens of a text are then independent too, because each row follows the tokens before it
    (Rosenblatt 1952): one test of the whole joint distribution, whatever the size of the vocabulary.

        probs (.5, .3, .2)  token 1  uniform .5  ->  .5 + .5 x .3 = .65
    """
    probs = probs.double()
    rank = probs if rank is None else rank
    own = rank[token_id]
    before = probs[rank > own].sum() + probs[:token_id][rank[:token_id] == own].sum()
    return min(1.0, float(before + uniform * probs[token_id]))


def overrated(probs: Tensor, draft_probs: Tensor) -> Tensor:
    """Rank tokens by how much the draft overrates them, the order that reveals a bias towards the draft best.

    probs, draft_probs: (V,) — distributions of the target and the draft
    returns: (V,) — draft / target; tokens that are impossible for the target come last

    In the order of probability alone a bias can average out: one likely token is drawn too often, another too rarely.
    In the order of the ratio it cannot (Neyman and Pearson).
    """
    return torch.where(probs > 0, draft_probs / probs, -1.0)


def _cells(samples: Sequence[float], cells: int) -> Tensor:
    """Return the number of the equal part of 0 to 1 that each sample falls into, of `cells` parts: (samples,) int64."""
    values = torch.tensor(samples, dtype=torch.float64)
    return (values * cells).long().clamp_(0, cells - 1)


@dataclass(frozen=True, slots=True)
class SamplingAudit:
    """Test of sampled tokens against the target's distributions, each given the tokens before it.

    samples: tested tokens; impossible: those to which the target, read again, gives no probability
    p_uniform, p_independent: p-values of the values of `transform`
    p_draft: the same, ordered by how much the draft overrates a token; None without a draft
    held: no p-value is below the limit
    """

    condition: str
    samples: int
    impossible: int
    p_uniform: float
    p_independent: float
    p_draft: float | None
    held: bool


def judge_sampling(
    reader: PrefixReader,
    draft: PrefixReader | None,
    condition: str,
    sampling: Sampling,
    answers: Iterable[tuple[Sequence[int], Sequence[int]]],
    limit: float,
) -> SamplingAudit:
    """Test sampled outputs against the target's own distributions.

    reader: a new one of the target's weights, independent of the engine's own passes
    draft: a new one of the pair's draft; the most likely error of drafting is a bias towards it
    answers: prompt ids and new ids of each run
    """
    generator = torch.Generator().manual_seed(2**40)  # no run has this seed
    values: list[float] = []
    by_draft: list[float] = []
    impossible = 0
    for prompt_ids, ids in answers:
        rows = reread(reader, prompt_ids, ids, sampling)
        for position, (probs, token_id) in enumerate(zip(rows, ids, strict=True)):
            uniforms = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
            values.append(transform(probs, token_id, uniforms[0]))
            text = [*prompt_ids, *ids[:position]]
            if draft is not None and draft.room(len(text), 1):
                guess = draft.probs_after(text, len(probs))
                by_draft.append(transform(probs, token_id, uniforms[1], overrated(probs, guess)))
            impossible += not probs[token_id] > 0
    p_uniform, p_independent = uniformity_p(values), independence_p(values)
    p_draft = uniformity_p(by_draft) if draft is not None else None
    held = min(p for p in (p_uniform, p_independent, p_draft) if p is not None) >= limit
    return SamplingAudit(
        condition, len(values), impossible, p_uniform, p_independent, p_draft, held
    )


def reread(
    reader: PrefixReader, prompt_ids: Sequence[int], ids: Sequence[int], sampling: Sampling
) -> Tensor:
    """Return the distribution from which each token of an output should have been sampled, in one pass over the output.

    reader: of a CachedModel, whose cache is reused for a shared prompt
    returns: (len(ids), V) float32 — row t follows the prompt and the first t new tokens
    """
    reader.prepare(prompt_ids[:-1])
    output = reader.model.forward(prompt_ids[-1], Proposal.chain(ids[:-1]))
    paths = [ids[:position] for position in range(len(ids))]
    return Shaper(sampling).probs(output.logits, prompt_ids, paths).cpu()
