"""Drafters that guess one token after another: the draft model, early exit and the feature drafter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.models.devices import mixed_precision
from specdemo.training.data import Row, batches, padded, positions
from specdemo.training.networks import FeatureNetwork
from specdemo.training.student import EPSILON, Student, normalised_error
from specdemo.training.trainer import Tally, Task

MID_WEIGHT, MID_UNTIL = 0.5, 0.6
EVALUATED = 5  # drafted tokens of each draft in the evaluation
UNROLLED = 3  # drafted tokens in training, the first included
SHARE = 0.5  # fraction of the answers' positions from which drafts are unrolled
FADING = 0.8  # weight of a drafted token next to the one before it
FITTED = 250_000  # positions for the linear fit
RIDGE = 0.003  # relative to the mean square of the inputs, against overfitting
NOISE = 0.1  # relative noise on the states in training, against overfitting


class ChainTask(Task[Student]):
    """Distils the target's whole distribution into a student that reads a text from left to right."""

    def loss(self, batch: Sequence[Row], done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        device, hidden = self.start.device, self.start.hidden
        final, middle = self._read(batch)
        here, there = positions(batch, answers_only=True)
        states = final.flatten(0, 1)[torch.from_numpy(here).to(device)].to(self.head.dtype)
        wanted = hidden.final(there, device)
        distance = self.distance(states, wanted, coarse=coarse, along=True)
        loss = distance + normalised_error(states, wanted)
        mid_weight = MID_WEIGHT * max(0.0, 1 - done / MID_UNTIL)
        if mid_weight and not self.layers and len(self.module.layers) > 1:
            here, there = positions(batch, answers_only=False)
            states = middle.flatten(0, 1)[torch.from_numpy(here).to(device)]
            wanted = hidden.rows(hidden.layers[-2:-1], there, device)
            loss = loss + mid_weight * normalised_error(states, wanted)
        return loss, distance.detach()

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add a batch: each token is the first of a draft, since those before it are the text's."""
        final, _ = self._read(batch)
        here, there = positions(batch, answers_only=True)
        states = final.flatten(0, 1)[torch.from_numpy(here).to(self.start.device)]
        tally.add(states, there, np.ones(len(here), int))

    def _read(self, batch: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Run the student over a batch. A draft model reads the tokens, and early exit the target's states."""
        device = self.start.device
        features = self.start.hidden.texts(batch, self.layers, device) if self.layers else None
        with mixed_precision(device):
            return self.module.read(torch.from_numpy(padded(batch)).to(device), features)


class FeatureTask(Task[FeatureNetwork]):
    """Distils the target's distributions into drafts that continue from the drafter's own states."""

    def loss(self, batch: Sequence[Row], _done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        """Return the loss, and the distance of the token that is drafted first."""
        device = self.start.device
        first = loss = torch.zeros((), device=device)
        _, there = positions(batch, answers_only=True)
        for depth, states, at in self._drafts(batch, UNROLLED, SHARE):
            wanted = self.start.hidden.final(there[at], device)
            states = states.to(wanted.dtype)
            distance = self.distance(states, wanted, coarse=coarse, along=depth == 0)
            loss = loss + FADING**depth * (distance + normalised_error(states, wanted))
            first = distance.detach() if depth == 0 else first
        return loss, first

    @torch.no_grad()
    def fit(self) -> None:
        """Start as the linear map nearest to the target's states, by ridge regression: no training finds it as fast."""
        network, count = self.module, 0
        inputs = wanted = torch.zeros((), device=self.start.device)
        for batch in batches(self.start.rows, self.start.options.batch_tokens, 0):
            texts, features, places = self._begun(batch)
            _, there = positions(batch, answers_only=True)
            states = features.flatten(0, 1)[places].unflatten(-1, (-1, network.inject.hidden_size))
            states = F.rms_norm(states, states.shape[-1:], eps=EPSILON).flatten(-2)
            x = network.linear_inputs(states, texts.flatten()[places])
            y = self.start.hidden.final(there, self.start.device).float()
            y = y / network.norm.get_buffer("base")
            inputs, wanted = torch.addmm(inputs, x.T, x), torch.addmm(wanted, x.T, y)
            count += len(x)
            if count >= FITTED:
                break
        inputs.diagonal().add_(RIDGE * inputs.diagonal().mean())
        found = torch.cholesky_solve(wanted, torch.linalg.cholesky(inputs)).T
        network.begin_linear(found)

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add a batch, by position in the draft; the tokens before it are the text's."""
        _, there = positions(batch, answers_only=True)
        for depth, states, at in self._drafts(batch, EVALUATED, 1.0):
            tally.add(states, there[at], np.full(len(at), depth + 1))

    def _drafts(
        self, batch: Sequence[Row], depths: int, share: float
    ) -> list[tuple[int, Tensor, np.ndarray]]:
        """Draft from all positions of the answers: the first token from each, the next one from a fraction of them, and so on.

        returns: tokens before it in the draft, (n, H) states, and (n,) which of the answers' positions each continues
        """
        here, _ = positions(batch, answers_only=True)
        counts = [len(row.token_ids) - max(row.first, 1) for row in batch]
        left = np.concatenate([np.arange(count)[::-1] for count in counts])
        texts, features, rows = self._begun(batch)
        at = np.arange(len(here))
        going = self.random.random(len(at)) < share
        with mixed_precision(rows.device):  # one context, because each converts the weights
            draft, states = self.module.begin(texts, features, rows)
            drafts = [(0, states, at)]
            for depth in range(1, depths):
                kept = np.flatnonzero(going & (left[at] >= depth))
                if not len(kept):
                    break
                at, going = at[kept], going[kept]
                tokens = texts.flatten()[rows[at] + depth]
                draft, states = self.module.go_on(
                    draft, tokens, torch.from_numpy(kept).to(rows.device)
                )
                drafts.append((depth, states, at + depth))
        return drafts

    def _begun(self, batch: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of `FeatureNetwork.begin`, with drafts from all positions; training disturbs states a little."""
        device = self.start.device
        here, _ = positions(batch, answers_only=True)
        features = self.start.hidden.texts(batch, self.layers, device, shift=1).float()
        if self.module.training:
            features *= 1 + NOISE * torch.randn_like(features)
        texts = torch.from_numpy(padded(batch)).to(device)
        return texts, features, torch.from_numpy(here).to(device)
