"""Compares outputs with the target's own distributions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdemo.config.settings import Sampling

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.target import PrefixReader


@dataclass(frozen=True, slots=True)
class SamplingAudit:
    """Test of sampled tokens against the target's distributions, each given the tokens before it.

    samples: tested tokens; impossible: those to which the target, read again, gives no probability
    p_uniform, p_independent: p-values of the values of `specdemo.session.work.statistics.transform`
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
    import torch

    from specdemo.session.work.statistics import independence_p, overrated, transform, uniformity_p

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
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.types import Proposal

    reader.prepare(prompt_ids[:-1])
    output = reader.model.forward(prompt_ids[-1], Proposal.chain(ids[:-1]))  # type: ignore[attr-defined]
    paths = [ids[:position] for position in range(len(ids))]
    return Shaper(sampling).probs(output.logits, prompt_ids, paths).cpu()
