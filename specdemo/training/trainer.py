"""The one training loop for any drafter: optimizer, schedule, rounding of weights, early stop and checkpoints.

A task is the module that the loop fits, its loss, and its measures on held-out prompts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig

from specdemo.config.errors import UserError
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.models.networks.four_bit import rounded
from specdemo.models.networks.registry import NetworkKind
from specdemo.training.data import HiddenStates, Row, batches
from specdemo.training.networks import StatesNetwork
from specdemo.training.options import TrainOptions
from specdemo.training.student import DistilledHead

SCORED_ROWS = 256


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a training starts from.

    config, folder: of the target; rows: texts to train on; hidden: the target's states over them
    embedding: (V, H), the target's; word_ids: (W,) int64 — the reduced vocabulary, ascending
    output: (V, H), the target's head, which may be its embedding
    """

    options: TrainOptions
    config: LlamaConfig
    folder: Path
    rows: Sequence[Row]
    hidden: HiddenStates
    embedding: Tensor
    word_ids: Tensor
    output: Tensor

    @property
    def network(self) -> NetworkKind:
        return self.options.network

    @property
    def layers(self) -> tuple[int, ...]:
        """Hidden states of the target that the network reads."""
        return self.hidden.layers[self.network.states]

    @property
    def mask(self) -> int:
        """Token that marks a guessed position: the least likely one in the target's answers."""
        return int(self.hidden.word_mass.argmin())

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def head(self) -> Tensor:
        """(W, H): rows of the target's head for the reduced vocabulary."""
        return self.output[self.word_ids]


Network = TypeVar("Network", bound=nn.Module)


class Task(Generic[Network]):
    """A module and its loss. Parameters that require a gradient are trained.

    layers: hidden states of the target that the module reads
    head, coarse_head: (W, H) as the target and as the drafter's runtime have it
    """

    def __init__(self, module: Network, start: Start) -> None:
        self.start, self.layers = start, start.layers
        # The `to` of transformers' models is typed too narrowly.
        self.module = nn.Module.to(module, start.device)
        self.head, self.coarse_head = start.head, rounded(start.head)
        self.random = np.random.default_rng(start.options.seed)

    def loss(self, batch: Sequence[Row], done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        """Return the loss to learn from and the distance from the target that measures progress, of a batch.

        done: fraction of the training that is over; coarse: the frozen head is also rounded as at run time
        """
        raise NotImplementedError

    def distance(
        self,
        states: Tensor,
        wanted: Tensor,
        weights: Tensor | None = None,
        *,
        coarse: bool,
        along: bool = False,
    ) -> Tensor:
        """Return the loss of `DistilledHead`. states, wanted: (n, H), the drafter's and the target's; coarse: see `loss`"""
        own = self.coarse_head if coarse else None
        loss: Tensor = DistilledHead.apply(states, wanted, self.head, own, weights, along)  # type: ignore[no-untyped-call]
        return loss

    @torch.no_grad()
    def results(self, rows: Sequence[Row]) -> dict[str, float]:
        """Measure validation texts; `package.title` describes each name."""
        tally = Tally(self.start.hidden, self.start.output, self.start.word_ids, self.coarse_head)
        for number, batch in enumerate(batches(rows, self.start.options.batch_tokens)):
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
    """Measures of each row: over all texts, and by position in the draft for greedy and for sampled ones.

    The target is measured as it answered. The stored probability of its most likely token gives the normaliser of all
    logits, so its full head is not needed.

    hidden: the target's states and what it said; a row's index in them is its `there`
    embedding: (V, H); word_ids: (W,) int64, ascending; head: (W, H), as the drafter's runtime has it
    If the target's most likely token is outside the reduced vocabulary, that is a disagreement.
    """

    def __init__(
        self, hidden: HiddenStates, embedding: Tensor, word_ids: Tensor, head: Tensor
    ) -> None:
        self.hidden, self.embedding, self.word_ids, self.head = hidden, embedding, word_ids, head
        self.rows: list[np.ndarray] = []

    def add(self, states: Tensor, there: np.ndarray, places: np.ndarray) -> None:
        """Count rows. states: (n, H), the drafter's; there: (n,); places: (n,) from 1"""
        found = []
        for begin in range(0, len(states), SCORED_ROWS):
            rows = slice(begin, begin + SCORED_ROWS)
            logits = F.linear(states[rows].to(self.head.dtype), self.head).float()
            found.append(self.compare(logits, there[rows]))
        self.count(torch.cat(found), there, places)

    def compare(self, draft_logits: Tensor, there: np.ndarray) -> Tensor:
        """Return loss, overlap, coverage and agreement, (n, 4). draft_logits: (n, W) float32; there: (n,)"""
        device, draft_logs = draft_logits.device, draft_logits.log_softmax(-1)
        wanted = self.hidden.final(there, device).float()
        likeliest = torch.from_numpy(self.hidden.likeliest[there]).to(device)
        chances = torch.from_numpy(self.hidden.chances[there]).to(device)
        logits = F.linear(wanted, self.embedding[self.word_ids].float())
        best = (wanted * self.embedding[likeliest].float()).sum(-1)
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
            ],
            dim=-1,
        )

    def count(self, found: Tensor, there: np.ndarray, places: np.ndarray) -> None:
        """Count the rows that `compare` has measured."""
        self.rows.append(np.column_stack([found.cpu().numpy(), places, self.hidden.greedy[there]]))

    def results(self) -> dict[str, float]:
        """Return the means over rows by name, and the number of rows."""
        if not self.rows:
            return {"tokens": 0}
        loss, overlap, coverage, agree, places, kinds = np.concatenate(self.rows).T
        greedy = kinds > 0
        chosen = {
            "loss": loss,
            "greedy_agreement": agree[greedy],
            "greedy_agreement_all": agree,
            "overlap": overlap,
            "coverage": coverage,
        }
        positions = np.unique(places.astype(int)).tolist()
        if len(positions) > 1:
            for place in positions:
                chosen[f"greedy_agreement_{place}"] = agree[greedy & (places == place)]
            for place in positions:
                chosen[f"overlap_{place}"] = overlap[~greedy & (places == place)]
        means = {name: float(values.mean()) for name, values in chosen.items() if len(values)}
        return means | {"tokens": len(loss)}


WEIGHT_DECAY, BETAS = 0.05, (0.9, 0.95)
DECAY_SHARE, LAST_RATE = 0.9, 0.01
REPORT_STEPS, SMOOTHING = 10, 0.96
CHECK_SHARE, CHECK_ROWS = (
    0.1,
    64,
)  # interval of early stopping as a fraction, and number of validation texts

# Values of a checkpoint besides weights and optimizer.
SAVED = ("step", "tokens_seen", "seconds", "average", "losses", "checks")


class Trainer:
    """Fits one task. After an interruption it continues from its checkpoint."""

    def __init__(self, options: TrainOptions, task: Task[Any], checkpoint: Path) -> None:
        self.options, self.task, self.checkpoint = options, task, checkpoint
        self.parameters = [p for p in task.module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, options.learning_rate, BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self.step = self.tokens_seen = self.resumed_at = 0
        self.seconds = self.average = 0.0
        self.losses: list[tuple[int, float]] = []
        self.checks: list[tuple[int, float]] = []
        self.stopped_early = False

    @property
    def done(self) -> float:
        """Fraction of the training that is over, 0 to 1."""
        if self.options.steps:
            return min(1.0, self.step / self.options.steps)
        return min(1.0, self.seconds / (60 * self.options.minutes))

    def fit(self, rows: Sequence[Row], held: Sequence[Row], progress: ProgressCallback) -> None:
        """Train until the time is over or validation texts no longer improve, and save checkpoints."""
        self._resume()
        self.task.module.train()
        plan, saved = self._batches(rows), self.seconds
        try:
            while self.done < 1 and not self.stopped_early:
                begun = time.monotonic()
                self._learn(next(plan))
                self.seconds += time.monotonic() - begun
                if held and self.done >= CHECK_SHARE * (len(self.checks) + 1):
                    self._check(held)
                if self.seconds - saved > self.options.checkpoint_seconds:
                    self._save()
                    saved = self.seconds
                if self.step % REPORT_STEPS == 0:
                    self.losses.append((self.step, self.average))
                detail = f"step {self.step}, loss {self.average:.3f}, {self.tokens_seen:,} tokens"
                if self.checks:
                    detail += f", held out {self.checks[-1][1]:.3f}"
                progress(Progress("train", self.done, detail))
        except KeyboardInterrupt:
            self._save()
            raise
        self._save()

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Return batches for ever, each epoch in its own order; those of earlier calls are passed over."""
        first_seed = (self.options.seed + 1) * 1000
        epochs = (batches(rows, self.options.batch_tokens, seed) for seed in count(first_seed))
        return islice(chain.from_iterable(epochs), self.resumed_at, None)

    @property
    def _coarse(self) -> bool:
        return self.done >= 1 - self.options.quantised_share

    def _learn(self, batch: list[Row]) -> None:
        """Take one step. The rate warms up, stays, and falls linearly to a hundredth over the time."""
        done = self.done
        warm = min(1.0, (self.step + 1) / max(1, self.options.warm_up_steps))
        rate = (
            self.options.learning_rate * warm * max(LAST_RATE, min(1.0, (1 - done) / DECAY_SHARE))
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with rounding(self.parameters if self._coarse else []):
            loss, divergence = self.task.loss(batch, done, coarse=self._coarse)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        value = float(divergence)  # sync: one per step
        self.average = SMOOTHING * self.average + (1 - SMOOTHING) * value if self.step else value
        self.step += 1
        self.tokens_seen += sum(len(row.token_ids) for row in batch)

    @torch.no_grad()
    def _check(self, held: Sequence[Row]) -> None:
        """Measure validation texts; training ends when they have not improved for `patience` checks."""
        self.task.module.eval()
        total = rows = 0.0
        with rounding(self.parameters if self._coarse else []):
            for batch in batches(held[:CHECK_ROWS], self.options.batch_tokens):
                divergence = self.task.loss(batch, 1.0, coarse=self._coarse)[1]
                total, rows = total + len(batch) * float(divergence), rows + len(batch)
        self.task.module.train()
        self.checks.append((self.step, total / rows))
        values = [value for _, value in self.checks]
        self.stopped_early = len(values) - 1 - values.index(min(values)) >= self.options.patience

    def _save(self) -> None:
        value = {name: getattr(self, name) for name in SAVED} | {
            "state": trained_state(self.task.module), "optimizer": self.optimizer.state_dict(),
        }  # fmt: skip
        torch.save(value, self.checkpoint.with_suffix(".part"))
        self.checkpoint.with_suffix(".part").replace(self.checkpoint)

    def _resume(self) -> None:
        if not self.checkpoint.is_file():
            return
        try:
            saved = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises errors of many kinds for a damaged file
            raise UserError(
                "training.damaged_checkpoint",
                file=self.checkpoint.name,
                folder=self.checkpoint.parent,
            ) from error
        self.task.module.load_state_dict(saved["state"], strict=False)
        self.optimizer.load_state_dict(saved["optimizer"])
        for name in SAVED:
            setattr(self, name, saved[name])
        self.resumed_at = self.step


@contextmanager
def rounding(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within it, matrices have the values that the 4-bit kernel will compute with.

    The gradient found there is applied to the exact values (a straight-through estimator, Bengio 1308.3432),
    so weights settle where rounding hurts little.
    """
    matrices = [p for p in parameters if p.ndim == 2]
    exact = [p.data for p in matrices]
    for parameter in matrices:
        parameter.data = rounded(parameter.data)
    try:
        yield
    finally:
        for parameter, data in zip(matrices, exact, strict=True):
            parameter.data = data
