"""Drafters that guess several tokens in one pass: Medusa's heads, DSpark's parallel stage with Markov and confidence heads, and JetSpec's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.models.devices import mixed_precision
from specdemo.trace import metrics
from specdemo.training.data import Row, padded
from specdemo.training.networks import MedusaHeads
from specdemo.training.trainer import SCORED_ROWS, Start, Tally, Task

KL_WEIGHT, L1_WEIGHT = 0.1, 0.9
TEMPERATURES = tuple(0.4 * 1.06**step for step in range(40))


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Positions of blocks in a batch of texts. B texts, the longest of L tokens; n guesses in all.

    On a draft model, a text and then its M guessed positions run through the layers, Q = L + M. Blocks of DFlash are
    all of the Q = M rows, behind the states of L tokens.

    token_ids: (B, L), or (B, Q) for DFlash; where: (B, Q) position of each row; seen: (B, 1, Q, L + M) bool
    here: (n,) row of the flattened batch that guesses; there: (n,) index of the target's state
    place: (n,) 1 = the token after the last known one
    previous: (n,) token id before the guessed one; block: (n,) which block a guess belongs to
    anchors, ahead: (B, M) last known token of each row of a block, and the row's index in its block
    """

    token_ids: np.ndarray
    where: np.ndarray
    seen: np.ndarray
    here: np.ndarray
    there: np.ndarray
    place: np.ndarray
    previous: np.ndarray
    block: np.ndarray
    anchors: np.ndarray
    ahead: np.ndarray


def plan_blocks(
    batch: Sequence[Row],
    depth: int,
    offsets: Sequence[int],
    *,
    causal: bool,
    mask: int | None = None,
) -> BlockPlan:
    """Lay out blocks of `depth` guesses one after another through each answer, from an offset on.

    The last known token itself makes the first guess of a block, masks after it make the others.
    mask: token id; then the rows are those of blocks alone, each with one for its last known token and `depth` masks
    """
    texts, alone = padded(batch), mask is not None
    length, blocks = texts.shape[1], []  # (line, anchor, guesses, rows)
    counts = [0] * len(batch)
    for line, (row, offset) in enumerate(zip(batch, offsets, strict=True)):
        start, stop = max(row.first, 1), len(row.token_ids)
        # An offset that is longer than the answer counts from its start again.
        for anchor in range(start + offset % max(1, stop - start), stop, depth):
            guesses = min(depth, stop - anchor)
            rows = depth + 1 if alone else guesses - 1
            blocks.append((line, anchor, guesses, rows))
            counts[line] += rows
    width = length + max(counts)
    token_ids = np.full((len(batch), width - length), mask) if alone else texts
    anchors, ahead = (np.zeros((len(batch), width - length), np.int64) for _ in range(2))
    where = np.zeros((len(batch), width), np.int64)
    where[:, :length] = np.arange(length)
    seen = np.zeros((len(batch), width, width), bool)
    seen[:, :length, :length] = np.tri(length, dtype=bool)
    seen[:, length:, 0] = True  # unused rows must see something too
    skipped = length if alone else 0  # rows of the texts, which blocks alone leave out
    found: list[tuple[int, int, int, int, int]] = []
    ends = [length] * len(batch)
    for number, (line, anchor, guesses, rows) in enumerate(blocks):
        row, begin = batch[line], ends[line]
        end = ends[line] = begin + rows
        first, guessing = anchor + 1, [anchor, *range(begin, end)]
        if alone:
            first, guessing = anchor, list(range(begin + 1, begin + 1 + guesses))
            token_ids[line, begin - length] = row.token_ids[anchor]
        where[line, begin:end] = np.arange(first, first + rows)
        anchors[line, begin - length : end - length] = anchor
        ahead[line, begin - length : end - length] = np.arange(rows)
        seen[line, begin:end, :first] = True
        seen[line, begin:end, begin:end] = np.tri(rows, dtype=bool) if causal else True
        for place, at in enumerate(guessing):
            found.append((
                line * (width - skipped) + at - skipped, row.start + anchor + place, place + 1,
                int(row.token_ids[anchor + place]), number,
            ))  # fmt: skip
    here, there, places, previous, block = map(np.array, zip(*found, strict=True))
    where, seen = where[:, skipped:], seen[:, None, skipped:]
    return BlockPlan(token_ids, where, seen, here, there, places, previous, block, anchors, ahead)


class BlockTask(Task[Any]):
    """Trains the parallel stage. causal: JetSpec (2606.18394); else DSpark, with Markov and confidence heads.

    corrects: whether a Markov head corrects guesses by the token before them
    """

    def __init__(self, student: Any, start: Start) -> None:
        super().__init__(student, start)
        self.depth, self.causal = start.options.depth, start.network.kind == "jet"
        self.corrects = getattr(student, "markov", None) is not None
        self.sure: list[np.ndarray] = []
        self.kept: list[np.ndarray] = []
        words = len(start.word_ids)
        self.word_of = torch.full((len(start.embedding),), words, device=start.device)
        self.word_of[start.word_ids] = torch.arange(words, device=start.device)

    def plan(self, batch: Sequence[Row], offsets: Sequence[int]) -> BlockPlan:
        return plan_blocks(batch, self.depth, offsets, causal=self.causal)

    def loss(self, batch: Sequence[Row], _done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        offsets = self.random.integers(0, self.depth, len(batch)).tolist()
        plan = self.plan(batch, offsets)
        states = self._states(plan, batch)
        wanted = self.start.hidden.final(plan.there, self.start.device).to(self.head.dtype)
        place = torch.from_numpy(plan.place).to(self.start.device)
        weights = (-(place - 1) / self.depth).exp()
        if not self.corrects:
            loss = self.distance(states, wanted, weights, coarse=coarse)
            return loss, loss.detach()
        weights = weights / weights.sum()
        logits, confidence = self._guess(states, plan, coarse=coarse)
        said = logits.log_softmax(-1)
        target = F.linear(wanted, self.head).float().log_softmax(-1)
        probs = target.exp()
        divergence = (probs * (target - said)).sum(-1)
        apart = (probs - said.exp()).abs().sum(-1)
        sure = F.binary_cross_entropy_with_logits(
            confidence, 1 - apart.detach() / 2, reduction="none"
        )
        loss = weights * (KL_WEIGHT * divergence + L1_WEIGHT * apart + sure)
        # The loss also measures validation texts: KL alone rises while L1 falls.
        return loss.sum(), loss.sum().detach()

    @torch.no_grad()
    def results(self, rows: Sequence[Row]) -> dict[str, float]:
        """Measure validation texts, and calibrate the confidences of DSpark."""
        self.sure, self.kept = [], []
        results = super().results(rows)
        if self.sure:
            results |= self._calibrate(np.concatenate(self.sure), np.concatenate(self.kept))
        return results

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add a batch, by position in the block; the tokens before it are the text's."""
        offsets = [(number + line) % self.depth for line in range(len(batch))]
        plan = self.plan(batch, offsets)
        states, there = self._states(plan, batch), plan.there
        if not self.corrects:
            tally.add(states, there, plan.place)
            return
        logits, confidence = self._guess(states, plan, coarse=True)
        cuts = range(SCORED_ROWS, len(there), SCORED_ROWS)
        parts = zip(logits.split(SCORED_ROWS), np.split(there, cuts), strict=True)
        found = torch.cat([tally.compare(*pair) for pair in parts])
        tally.count(found, there, plan.place)
        ends = (plan.place == self.depth) & ~self.start.hidden.greedy[there]
        whole = [np.flatnonzero(plan.block == block) for block in np.unique(plan.block[ends])]
        if whole:
            index = np.stack(whole)
            self.sure.append(confidence.cpu().numpy()[index])
            self.kept.append(found[:, 1].cpu().numpy()[index])

    def _calibrate(self, sure: np.ndarray, kept: np.ndarray) -> dict[str, float]:
        """Fit temperatures from left to right to the product so far. sure: (n, depth) logits; kept: (n, depth) 1 - TV

        Half of the blocks choose the temperatures, the other half measures them.
        """
        truth = kept.cumprod(axis=1)
        chosen, before = np.ones((len(sure),)), sure.copy()
        for place in range(self.depth):
            options = [chosen * _sigmoid(sure[:, place] / t) for t in TEMPERATURES]
            errors = [calibration_error(o[::2], truth[::2, place]) or 0.0 for o in options]
            best = int(np.argmin(errors))
            self.module.temperatures[place] = TEMPERATURES[best]
            chosen, before[:, place] = options[best], sure[:, place] / TEMPERATURES[best]
        raw, cooled = (_sigmoid(x).cumprod(axis=1)[1::2] for x in (sure, before))
        found = {
            "calibration_error_raw": calibration_error(raw.ravel(), truth[1::2].ravel()),
            "calibration_error": calibration_error(cooled.ravel(), truth[1::2].ravel()),
        }
        return {name: error for name, error in found.items() if error is not None}

    def _states(self, plan: BlockPlan, batch: Sequence[Row]) -> Tensor:
        """Return the student's states at all guesses, (n, H)."""
        with mixed_precision(self.start.device):
            final = self._read(plan, batch)
        (here,) = self._placed(plan.here)
        return final.flatten(0, 1)[here].to(self.head.dtype)

    def _read(self, plan: BlockPlan, batch: Sequence[Row]) -> Tensor:
        """Return the student's states at all rows, (B, Q, H)."""
        hidden = self.start.hidden
        features = hidden.texts(batch, hidden.layers, self.start.device, shift=1)
        token_ids, where, seen, anchors, ahead = self._placed(
            plan.token_ids, plan.where, plan.seen, plan.anchors, plan.ahead
        )
        unseen = torch.zeros(seen.shape, dtype=features.dtype, device=self.start.device)
        unseen.masked_fill_(~seen, torch.finfo(features.dtype).min)
        states: Tensor = self.module.read(token_ids, features, where, unseen, anchors, ahead)[0]
        return states

    def _placed(self, *arrays: np.ndarray) -> list[Tensor]:
        return [torch.from_numpy(array).to(self.start.device) for array in arrays]

    def _guess(self, states: Tensor, plan: BlockPlan, *, coarse: bool) -> tuple[Tensor, Tensor]:
        """Return DSpark's logits (n, W) given the token before, and confidence logits (n,), both float32."""
        previous = self.word_of[torch.from_numpy(plan.previous).to(states.device)]
        head = self.coarse_head if coarse else self.head
        logits, confidence = self.module.markov(states, F.linear(states, head), previous)
        return logits.float(), confidence.float()


class DFlashTask(BlockTask):
    """Distils the target's distributions into blocks; guesses are not corrected afterwards."""

    def plan(self, batch: Sequence[Row], offsets: Sequence[int]) -> BlockPlan:
        mask = self.module.mask
        return plan_blocks(batch, self.depth, offsets, causal=self.causal, mask=mask)

    def _read(self, plan: BlockPlan, batch: Sequence[Row]) -> Tensor:
        features = self.start.hidden.texts(batch, self.layers, self.start.device)
        places = self._placed(plan.token_ids, plan.where, plan.seen)
        states: Tensor = self.module.read(features, *places)
        return states


class MedusaTask(Task[MedusaHeads]):
    """Head k learns the target's distribution k tokens after the one that its state is followed by."""

    def __init__(self, start: Start) -> None:
        super().__init__(MedusaHeads(start.options.depth, start.embedding.shape[1]), start)

    def loss(self, batch: Sequence[Row], _done: float, *, coarse: bool) -> tuple[Tensor, Tensor]:
        losses = []
        for number, (states, there) in enumerate(self._pairs(batch), start=1):
            wanted = self.start.hidden.final(there, self.start.device)
            losses.append(self.distance(states, wanted, coarse=coarse) / number)
        if not losses:  # each answer has one token, and the first head guesses the second
            nothing = torch.zeros((), device=self.start.device, requires_grad=True)
            return nothing, nothing.detach()
        total = torch.stack(losses)
        return total.sum(), total.mean().detach()

    def count(self, tally: Tally, batch: Sequence[Row], number: int) -> None:
        """Add a batch, by head; a head does not read the tokens between."""
        for head, (states, there) in enumerate(self._pairs(batch), start=1):
            tally.add(states, there, np.full(len(states), head))

    def _pairs(self, batch: Sequence[Row]) -> list[tuple[Tensor, np.ndarray]]:
        """Return for each head its states, and the indices of the target's states at the positions that it guesses."""
        hidden, device = self.start.hidden, self.start.device
        pairs = []
        for number in range(1, len(self.module.heads) + 1):
            rows = [row for row in batch if len(row.token_ids) - number > max(row.first, 1)]
            if not rows:
                continue
            spans = [
                row.start + np.arange(max(row.first, 1), len(row.token_ids) - number)
                for row in rows
            ]
            there = np.concatenate(spans)
            states = hidden.final(there, device)
            with mixed_precision(device):
                guess = self.module.guess(number - 1, states).to(states.dtype)
            pairs.append((guess, there + number))
        return pairs


def calibration_error(said: np.ndarray, true: np.ndarray) -> float | None:
    """Return the expected calibration error of the probability of each guess, see `metrics`; None without any."""
    bins = np.minimum((said * metrics.TENTHS).astype(int), metrics.TENTHS - 1)
    counted = (
        np.bincount(bins, weights, metrics.TENTHS).tolist() for weights in (None, said, true)
    )
    return metrics.calibration_error(zip(*counted, strict=True))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    chances: np.ndarray = 1 / (1 + np.exp(-x))
    return chances
