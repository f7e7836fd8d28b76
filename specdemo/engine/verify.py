"""Which drafted tokens the target keeps. Pure: tensors and a random generator in, a Verdict out.

Both walks start at the pending token and go down the tree of drafted nodes; a chain is a tree of width one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from specdemo.engine.sampling import ReducedVocabulary, draw, likeliest
from specdemo.engine.types import Proposal, Verdict
from specdemo.trace.events import Status


def verify_greedy(proposal: Proposal, shaped_logits: Tensor) -> Verdict:
    """Keep what the target would have chosen itself; the output equals plain greedy decoding.

    shaped_logits: (1 + N, V) float32 — row 0 answers the pending token, row 1 + i node i
    """
    choices = likeliest(shaped_logits).to(shaped_logits.device)
    top_probs, node_probs = _probs_to_show(proposal, shaped_logits, choices)
    choices_list = choices.tolist()  # sync: one per step
    accept: list[float | None] = [None] * len(proposal)
    path: list[int] = []
    node, refused = -1, False
    while True:
        choice = choices_list[node + 1]
        match, refused = None, False
        for child in proposal.children(node):
            accept[child] = float(proposal.token_ids[child] == choice)
            if accept[child]:
                match = child
                break
            refused = True
        if match is None:
            break
        path.append(match)
        node = match
    return Verdict(
        tuple(path),
        choice,
        _kind(proposal, refused),
        tuple(accept),
        (None,) * len(proposal),
        node_probs,
        top_probs[node + 1],
    )


def verify_sampling(
    proposal: Proposal, target_probs: Tensor, generator: torch.Generator
) -> Verdict:
    """Keep drafted tokens so that what is committed is distributed exactly as the target's own draws.

    target_probs: (1 + N, V) float32 — row 0 answers the pending token, row 1 + i node i

    Speculative sampling (Leviathan 2211.17192, Chen 2302.01318), extended to siblings (SpecInfer 2305.09781).
    `left` is what the target still has to give at a node. A child is kept with probability
    min(1, left[x] / drawn_from[x]); when refused, `left` becomes normalised max(left - drawn_from, 0).
    A chosen node was "drawn" from a distribution with all its weight on it.

        left = (.5, .3, .2)   drawn_from = (.2, .6, .2)   drafted x = 1
        kept with .3 / .6 = 1/2; when refused, left = (.3, 0, 0) / .3 = (1, 0, 0)
    """
    probs = target_probs.float().cpu()  # sync: one per step
    drawn_from, words = proposal.drawn_from, proposal.words
    accept: list[float | None] = [None] * len(proposal)
    draws: list[float | None] = [None] * len(proposal)
    path: list[int] = []
    node = -1
    while True:
        left, match, refused = probs[node + 1], None, False
        for child in proposal.children(node):
            token = proposal.token_ids[child]
            drawn = drawn_from[child] if drawn_from is not None else None
            column = words.column_of[token] if words else token
            chance = float(left[token]) / (float(drawn[column]) if drawn is not None else 1.0)
            accept[child] = chance = min(1.0, chance)
            draws[child] = uniform = float(torch.rand((), generator=generator))
            if uniform < chance:
                match = child
                break
            refused = True
            left = _residual(left, drawn, token, words)
        if match is None:
            break
        path.append(match)
        node = match
    next_id = draw(left, generator)
    node_probs = tuple(
        float(probs[parent + 1, token])
        for token, parent in zip(proposal.token_ids, proposal.parents, strict=True)
    )
    return Verdict(
        tuple(path),
        next_id,
        _kind(proposal, refused),
        tuple(accept),
        tuple(draws),
        node_probs,
        float(probs[node + 1, next_id]),
        left if refused else None,
    )


def _residual(
    left: Tensor, drawn_from: Tensor | None, token: int, words: ReducedVocabulary | None = None
) -> Tensor:
    """What the target still has to give after `token` was refused: (V,) that sums to one.

    drawn_from: over `words`, or over all tokens
    """
    rest = left.clone()
    if drawn_from is None:
        rest[token] = 0
    else:
        # numpy's indexing takes half of torch's on a CPU.
        had, columns = rest.numpy(), words.ids.numpy() if words else slice(None)
        had[columns] = np.maximum(had[columns] - drawn_from.numpy(), 0)
    total = rest.sum()
    # Nothing is left only by rounding (the two distributions are equal): the target's own row is right then.
    return rest / total if total > 0 else left


def _kind(proposal: Proposal, refused: bool) -> Status:  # noqa: FBT001 - two facts, one answer
    if not len(proposal):
        return Status.PLAIN
    return Status.CORRECTION if refused else Status.BONUS


def _probs_to_show(
    proposal: Proposal, logits: Tensor, choices: Tensor
) -> tuple[list[float], tuple[float, ...]]:
    """Probabilities of each row's choice and of each node, at temperature 1."""
    probs = logits.softmax(dim=-1)
    top = probs.gather(1, choices[:, None])[:, 0].tolist()
    if not len(proposal):
        return top, ()
    rows = torch.tensor(proposal.parents, dtype=torch.int64, device=logits.device) + 1
    ids = torch.tensor(proposal.token_ids, dtype=torch.int64, device=logits.device)
    return top, tuple(probs[rows, ids].tolist())
