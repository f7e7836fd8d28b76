"""What every way to run a model is asked: a text in pieces, a tree, what is kept of it, and first layers alone."""

from __future__ import annotations

import torch

from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal

TEXT = [3, 14, 15, 9, 26, 5, 35, 8]
TREE = Proposal(token_ids=(7, 8, 9, 10, 11, 12), parents=(-1, -1, 0, 0, 2, 1))
ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip


def passes_of(decoder):
    """Logits and states of a text in pieces, a tree, the path kept of it, and a chain after it."""
    target = CachedModel(decoder, reads=(0, 2, 3))
    target.record(wanted=True)
    found = [target.read(TEXT[:5]), target.read(TEXT[5:-1])]
    found += target.forward(TEXT[-1], TREE).logits
    target.keep([0, 2, 4])
    found += target.forward(20, Proposal.chain([1, 2])).logits
    target.keep([0, 1])
    found += target.grow([4, 5, 6], [-1, -1, 0])
    states = target.features.read(0, target.length, (0, 2, 3))
    lower = target.lower(2, [9, 8], [-1, 0], [])
    return torch.stack(found), states, lower
