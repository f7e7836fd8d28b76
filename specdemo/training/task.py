"""Shared parts of all trainings: the target's tensors, and the task that the trainer fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from specdemo.models.networks.four_bit import rounded
from specdemo.training.data import HiddenStates, Row, batches
from specdemo.training.evaluate import Tally


@dataclass(slots=True)
class Shared:
    """Tensors of the target for every task.

    word_ids: (W,) int64 — the reduced vocabulary, ascending
    output: (V, H), the target's head if it is not its embedding (V, H)
    """

    hidden: HiddenStates
    embedding: Tensor
    word_ids: Tensor
    batch_tokens: int
    seed: int = 0
    output: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Device of the training."""
        return self.embedding.device

    @property
    def head(self) -> Tensor:
        """(W, H): rows of the target's head for the reduced vocabulary."""
        return self.full_head[self.word_ids]

    @property
    def full_head(self) -> Tensor:
        """(V, H): the target's head."""
        return self.embedding if self.output is None else self.output


class Task:
    """A module and its loss. Parameters that require a gradient are trained.

    layers: hidden states of the target that the module reads
    head, coarse_head: (W, H) as the target and as the drafter's runtime have it
    """

    def __init__(self, module: nn.Module, shared: Shared, layers: tuple[int, ...] = ()) -> None:
        self.module, self.shared, self.layers = module, shared, layers
        self.head, self.coarse_head = shared.head, rounded(shared.head)
        self.random = np.random.default_rng(shared.seed)

    def loss(self, batch: Sequence[Row], done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        """Return the loss to learn from and the distance from the target that measures progress, of a batch.

        done: fraction of the training that is over; coarse: the frozen head is also rounded as at run time
        """
        raise NotImplementedError

    @torch.no_grad()
    def results(self, rows: Sequence[Row]) -> dict[str, float]:
        """Measure validation texts; `package.title` describes each name."""
        tally = Tally(self.shared.full_head, self.shared.word_ids, self.coarse_head)
        for number, batch in enumerate(batches(rows, self.shared.batch_tokens)):
            self.count(tally, batch, number)
        return tally.results() | {"prompts": len({row.key for row in rows})}

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add batch `number` to the tally."""
        raise NotImplementedError

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors that are written."""
        return trained_state(self.module)


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's own tensors: all but the embedding, which is the target's."""
    return {
        name: tensor.detach().cpu()
        for name, tensor in module.state_dict().items()
        if not name.startswith("embed_tokens")
    }
