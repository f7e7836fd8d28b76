"""Heads that guess the next but one token, the one after it and so on, from the target's last state (Medusa 2401.10774)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdemo.training.data import Row
from specdemo.training.evaluate import Tally
from specdemo.training.student import distilled_loss
from specdemo.training.task import Shared, Task


class MedusaHeads(nn.Module):
    """One residual block a head; the output matrix is the target's, shared by all."""

    def __init__(self, depth: int, hidden_size: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(depth))
        for parameter in self.heads.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> list[Tensor]:
        """(n, H) to one (n, H) a head."""
        return [states + F.silu(head(states)) for head in self.heads]


class MedusaTask(Task):
    """Head k learns the target's distribution k tokens after the one that its state is followed by."""

    def __init__(self, depth: int, shared: Shared) -> None:
        self.heads = MedusaHeads(depth, shared.embedding.shape[1]).to(shared.device)
        super().__init__(self.heads, shared)

    def loss(self, batch: Sequence[Row], _done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        own = self.coarse_head if coarse else None
        losses = []
        for number, (states, wanted, _) in enumerate(self._pairs(batch), start=1):
            losses.append(distilled_loss(states, wanted, self.head, own) / number)
        total = torch.stack(losses)
        return total.sum(), total.mean().detach()

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add a batch, by head; a head does not read the tokens between."""
        for head, (states, wanted, greedy) in enumerate(self._pairs(batch), start=1):
            tally.add(states, wanted, np.full(len(states), head), greedy)

    def _pairs(self, batch: Sequence[Row]) -> list[tuple[Tensor, Tensor, np.ndarray]]:
        """For each head: its states, the target's states at the positions that it guesses, and whether the text is greedy."""
        hidden, device = self.shared.hidden, self.shared.device
        pairs = []
        for number, head in enumerate(self.heads.heads, start=1):
            rows = [row for row in batch if len(row.token_ids) - number > max(row.first, 1)]
            if not rows:
                continue
            spans = [
                row.start + np.arange(max(row.first, 1), len(row.token_ids) - number)
                for row in rows
            ]
            there = np.concatenate(spans)
            greedy = np.repeat([row.temperature == 0 for row in rows], [len(s) for s in spans])
            states = hidden.final(there, device)
            with torch.autocast(device.type, torch.bfloat16):
                guess = (states + F.silu(head(states))).to(torch.bfloat16)
            pairs.append((guess, hidden.final(there + number, device), greedy))
        return pairs
