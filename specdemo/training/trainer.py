"""The one training loop: optimizer, schedule, rounding of weights, early stop and checkpoints of any drafter."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from specdemo.config.errors import UserError
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.models.networks.four_bit import rounded
from specdemo.training.data import Row, batches
from specdemo.training.options import TrainOptions
from specdemo.training.task import Task, trained_state

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

    def __init__(self, options: TrainOptions, task: Task, checkpoint: Path) -> None:
        self.options, self.task, self.checkpoint = options, task, checkpoint
        self.parameters = [p for p in task.module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=options.learning_rate, weight_decay=WEIGHT_DECAY, betas=BETAS
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
        """Batches for ever, each epoch in its own order; those of earlier calls are passed over."""
        epoch, passed = 0, 0
        while True:
            for batch in batches(
                rows, self.options.batch_tokens, (self.options.seed + 1) * 1000 + epoch
            ):
                passed += 1
                if passed > self.resumed_at:
                    yield batch
            epoch += 1

    @property
    def _coarse(self) -> bool:
        return self.done >= 1 - self.options.quantised_share

    def _learn(self, batch: list[Row]) -> None:
        """One step. The rate warms up, stays, and falls linearly to a hundredth over the time."""
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
def rounding(parameters: Sequence[Any]) -> Iterator[None]:
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
