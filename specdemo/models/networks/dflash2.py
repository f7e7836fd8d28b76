"""What DFlash 2 (Inco and Z Lab, 2026) adds to a block drafter: convolutions along the block, and a choice of candidates.

A place reads the places before it without another pass. Two taps, "on" pending:

    block     on   #1   #2          out(#1) = k0(#1) x #1 + k1(#1) x on     the kernel depends on the place
    out(on) = k0(on) x on           nothing is before the pending token
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdemo.models.networks.four_bit import Linear


@dataclass(frozen=True, slots=True)
class Convolution:
    """One around a part of a layer: over what goes in, and with kernels from the same rows over what comes out.

    base: (2, taps, H), of what goes in and of what comes out; project: H to 2 x taps x groups, what a row adds to them
    """

    base: Tensor
    project: Linear

    def before(self, x: Tensor, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """What goes in, and the kernels for what comes out. x: (rows, H), blocks of so many rows after each other"""
        _, taps, hidden = self.base.shape
        added = self.project(x).view(len(x), 2, taps, -1)
        kernels = self.base + added.repeat_interleave(hidden // added.shape[-1], dim=-1)
        return _along(x, kernels[:, 0], counts), kernels[:, 1]

    @staticmethod
    def after(x: Tensor, kernels: Tensor, counts: Sequence[int]) -> Tensor:
        """What comes out. kernels: (rows, taps, H), as `before` gave them"""
        return _along(x, kernels, counts)


def _along(x: Tensor, kernels: Tensor, counts: Sequence[int]) -> Tensor:
    """Each row and those before it in its block, each times its tap. x: (rows, H); kernels: (rows, taps, H)"""
    out = kernels[:, 0] * x
    place = torch.cat([torch.arange(count) for count in counts]).to(x.device)[:, None]
    for tap in range(1, kernels.shape[1]):
        out += kernels[:, tap] * x.roll(tap, dims=0) * (place >= tap)
    return out


@dataclass(frozen=True, slots=True)
class Selector:
    """Chooses among a place's likeliest words by the word before it; implements `Corrector`.

    before, after: (V, R) each, a word as the one before and as a candidate; project: H to R; most: candidates
    """

    before: Tensor
    after: Tensor
    project: Linear
    most: int
    by_token = True

    @torch.inference_mode()
    def corrected(self, logits: Tensor, previous: int, state: Tensor) -> Tensor:
        """See `Corrector`; no other word than a candidate can be said."""
        best, words = logits[0].topk(self.most)
        context = self.before[previous] * self.project(state[None])[0]
        scores = best + (self.after[words] @ context).float()
        return torch.full_like(logits, -torch.inf).index_copy(1, words, scores[None])

    def survival(self, guess: int, state: Tensor, previous: int) -> float | None:
        """Nothing is said of it."""
        return None
