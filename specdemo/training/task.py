"""Shared parts of all trainings: the target's tensors, the task that the trainer fits, and its measures on held-out prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdemo.models.networks.four_bit import rounded
from specdemo.training.data import HiddenStates, Row, batches
from specdemo.training.networks import StatesNetwork

SCORED_ROWS = 256
Told = tuple[Tensor, Tensor]
"""The target's most likely tokens, (n,) int64, and their probabilities, (n,); with them the full head is not needed."""
MEASURES = ("loss", "overlap", "coverage", "agree", "tokens")


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
        if isinstance(self.module, StatesNetwork):
            return self.module.folded()
        return trained_state(self.module)


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's own tensors: all but the embedding, which is the target's."""
    return {
        name: tensor.detach().cpu()
        for name, tensor in module.state_dict().items()
        if not name.startswith("embed_tokens")
    }


class Tally:
    """Sums of measures by position in the draft, for greedy and for sampled texts.

    embedding: (V, H); word_ids: (W,) int64, ascending; head: (W, H), as the drafter's runtime has it
    If the target's most likely token is outside the reduced vocabulary, that is a disagreement.
    """

    def __init__(self, embedding: Tensor, word_ids: Tensor, head: Tensor) -> None:
        self.embedding, self.word_ids, self.head = embedding, word_ids, head
        self.sums: dict[tuple[int, bool], np.ndarray] = {}

    def add(
        self,
        states: Tensor,
        wanted: Tensor,
        places: np.ndarray,
        greedy: np.ndarray,
        told: Told | None = None,
    ) -> None:
        """Count rows. states, wanted: (n, H), the drafter's and the target's; places: (n,) from 1; greedy: (n,) bool"""
        found = []
        for begin in range(0, len(states), SCORED_ROWS):
            rows = slice(begin, begin + SCORED_ROWS)
            logits = F.linear(states[rows].to(self.head.dtype), self.head).float()
            some = (told[0][rows], told[1][rows]) if told else None
            found.append(self.compare(logits, wanted[rows], some))
        self.count(torch.cat(found).cpu().numpy(), places, greedy)

    def compare(self, draft_logits: Tensor, wanted: Tensor, told: Told | None = None) -> Tensor:
        """(n, 5) measures of MEASURES. draft_logits: (n, W) float32; wanted: (n, H)"""
        draft_logs = draft_logits.log_softmax(-1)
        if told is None:
            target_logits = F.linear(wanted, self.embedding).float()
            target_probs = target_logits.softmax(-1)[:, self.word_ids]
            among = target_logits[:, self.word_ids].log_softmax(-1)
            likeliest = target_logits.argmax(-1)
        else:
            # The probability of one token gives the normaliser of all logits.
            likeliest, chances = (one.to(wanted.device) for one in told)
            logits = F.linear(wanted.float(), self.embedding[self.word_ids].float())
            best = (wanted.float() * self.embedding[likeliest].float()).sum(-1)
            total = best - chances.float().log()
            target_probs = (logits - total[:, None]).exp()
            among = logits.log_softmax(-1)
        agree = self.word_ids[draft_logs.argmax(-1)] == likeliest
        return torch.stack(
            [
                (among.exp() * (among - draft_logs)).sum(-1),
                torch.minimum(target_probs, draft_logs.exp()).sum(-1),
                target_probs.sum(-1),
                agree.float(),
                torch.ones(len(wanted), device=wanted.device),
            ],
            dim=-1,
        )

    def count(self, found: np.ndarray, places: np.ndarray, greedy: np.ndarray) -> None:
        for place in np.unique(places):
            for kind in (True, False):
                chosen = (places == place) & (greedy == kind)
                key = int(place), kind
                self.sums[key] = self.sums.get(key, np.zeros(len(MEASURES))) + found[chosen].sum(0)

    def results(self) -> dict[str, float]:
        total = sum(self.sums.values(), np.zeros(len(MEASURES)))
        tokens = max(total[4], 1)
        results = {"loss": total[0] / tokens}
        results |= self._means("greedy_agreement", 3, greedy=True)
        results |= {"greedy_agreement_all": total[3] / tokens}
        results |= {"overlap": total[1] / tokens, "coverage": total[2] / tokens}
        places = sorted({place for place, _ in self.sums})
        if len(places) > 1:
            for place in places:
                results |= self._means(f"greedy_agreement_{place}", 3, greedy=True, place=place)
            for place in places:
                results |= self._means(f"overlap_{place}", 1, greedy=False, place=place)
        return {name: float(value) for name, value in results.items()} | {"tokens": int(total[4])}

    def _means(
        self, name: str, measure: int, *, greedy: bool, place: int | None = None
    ) -> dict[str, float]:
        sums = sum(
            (
                sums
                for (at, kind), sums in self.sums.items()
                if kind == greedy and place in (None, at)
            ),
            np.zeros(len(MEASURES)),
        )
        return {name: sums[measure] / sums[4]} if sums[4] else {}
