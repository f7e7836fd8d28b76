"""What both models expected at the positions that a step reached: for views, computed outside of what is timed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.engine.types import Proposal, Verdict
from specdemo.trace.events import Choice, Place


def places(
    proposal: Proposal, verdict: Verdict, shaped: Tensor, path: Sequence[int], most: int
) -> tuple[Place, ...]:
    """The pending token's position and those of the kept nodes, root first.

    shaped: (1 + N, V) float32 — row 0 answers the pending token, row 1 + i node i
    path: committed nodes, root first; most: choices to keep of each distribution
    """
    after = (-1, *path)
    rows = shaped[[node + 1 for node in after]]
    target = _likeliest(rows.softmax(dim=-1), most)
    found = []
    for node, choices in zip(after, target, strict=True):
        child = next(iter(proposal.children(node)), None)
        thought = None if child is None else proposal.all_probs(child)
        residual = verdict.residual if node == after[-1] else None
        found.append(
            Place(
                node,
                choices,
                () if thought is None else _likeliest(thought[None], most)[0],
                () if residual is None else _likeliest(residual[None], most)[0],
            )
        )
    return tuple(found)


def _likeliest(probs: Tensor, most: int) -> list[tuple[Choice, ...]]:
    """The largest entries of each row, (R, V), without those of no probability."""
    top = torch.topk(probs, min(most, probs.shape[-1]))
    return [
        tuple(Choice(token, prob) for token, prob in zip(ids, values, strict=True) if prob > 0)
        for ids, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
