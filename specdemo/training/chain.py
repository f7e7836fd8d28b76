"""Drafters that guess one token after another: the draft model, the feature drafter and early exit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdemo.training.data import Row, padded, positions
from specdemo.training.evaluate import Tally
from specdemo.training.student import Student, compiled, distilled_loss, normalised_error
from specdemo.training.task import Shared, Task

MID_WEIGHT, MID_UNTIL = 0.5, 0.6
LONGEST_KNOWN, LONGEST_UNKNOWN = 16, 5  # tokens in a row whose features are there, and are not
EVALUATED = 5  # drafted tokens of each draft in the evaluation


class ChainTask(Task):
    """Distils the target's whole distribution into a student that reads a text from left to right.

    A feature drafter has the target's states only up to the token before the pending one, and none of drafted tokens. So it
    is trained on texts in which the features of runs of tokens are missing: there it reads its own states of earlier
    tokens, as at run time, and there is no drift to unlearn.
    """

    def __init__(
        self, student: Student, shared: Shared, *, layers: tuple[int, ...] = (), compile_it: bool
    ) -> None:
        super().__init__(student, shared, layers)
        self.student = student
        self.run = compiled(student.read) if compile_it else student.read

    def loss(self, batch: Sequence[Row], done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        device, hidden = self.shared.device, self.shared.hidden
        final, middle = self._read(batch, self._known(batch))
        here, there = positions(batch, answers_only=True)
        states = final.flatten(0, 1)[torch.from_numpy(here).to(device)].to(torch.bfloat16)
        wanted = hidden.final(there, device)
        own = self.coarse_head if coarse else None
        distance = distilled_loss(states, wanted, self.head, own, along=True)
        loss = distance + normalised_error(states, wanted)
        mid_weight = MID_WEIGHT * max(0.0, 1 - done / MID_UNTIL)
        if mid_weight and not self.layers and len(self.student.layers) > 1:
            here, there = positions(batch, answers_only=False)
            states = middle.flatten(0, 1)[torch.from_numpy(here).to(device)]
            wanted = hidden.rows(hidden.layers[-2], there, device)
            loss = loss + mid_weight * normalised_error(states, wanted)
        return loss, distance.detach()

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add a batch, by position in the draft: position 1 has the features of the token before, later ones none."""
        period = EVALUATED if self.student.inject is not None else 1
        length = max(len(row.token_ids) for row in batch)
        # The drafts of each text start elsewhere, so that one pass contains all positions: of every
        # 3 * period tokens the last `period - 1` are drafted.
        along = (np.arange(length)[None] + np.arange(len(batch))[:, None]) % (3 * period)
        place = (along - 2 * period).clip(min=0)
        final, _ = self._read(batch, place == 0)
        here, there = positions(batch, answers_only=True)
        greedy = np.array([row.temperature == 0 for row in batch])[here // length]
        states = final.flatten(0, 1)[torch.from_numpy(here).to(self.shared.device)]
        wanted = self.shared.hidden.final(there, self.shared.device)
        tally.add(states, wanted, place.flatten()[here] + 1, greedy)

    def _read(self, batch: Sequence[Row], known: np.ndarray) -> tuple[Tensor, Tensor]:
        """The student over a batch. known: (B, L) — where the features of the token before are there"""
        device = self.shared.device
        features = None
        if self.layers:
            shift = int(self.student.own_input)
            features = self.shared.hidden.texts(batch, self.layers, device, shift=shift)
            if self.student.own_input:
                features *= torch.from_numpy(known).to(device)[..., None]
        with torch.autocast(device.type, torch.bfloat16):
            return self.run(torch.from_numpy(padded(batch)).to(device), features)

    def _known(self, batch: Sequence[Row]) -> np.ndarray:
        """(B, L) bool, at random as drafting leaves it."""
        length = max(len(row.token_ids) for row in batch)
        known = np.zeros((len(batch), length), bool)
        if self.student.inject is None:
            return known
        for line in known:
            place = 0
            while place < length:
                run = int(self.random.integers(1, LONGEST_KNOWN + 1))
                line[place : place + run] = True
                place += run + int(self.random.integers(0, LONGEST_UNKNOWN + 1))
        return known
