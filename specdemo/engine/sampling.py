"""Logits to probabilities to tokens: one rule, applied alike to the target and to every drafter.

Order as in transformers: repetition penalty (Keskar 1909.05858), temperature, top-k, top-p (Holtzman 1904.09751).

A token is drawn with a generator, or with tickets: noise that depends on seed, position and token alone, so that a
seed gives the same text with every drafter (drafter-invariant sampling; Daliri, Musco, Suresh 2408.07978). Each token has
a ticket at each position, a standard Gumbel number, and the token with the largest log probability + ticket is drawn.
It has exactly the distribution that the probabilities are of. Target and drafter use the same tickets, so both draw the
same token wherever their distributions are alike; the target accepts a drafted token if it is the one that it draws itself.

    probs    a .6   b .3   c .1
    tickets  a -.2  b .9   c .4      log prob + ticket: a -.71, b -.30, c -1.90; b is drawn

The numbers come from a hash (SplitMix64, Steele 2014) on the CPU: the same in every backend and on every machine.
"""

from __future__ import annotations

import math
from array import array
from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from specdemo.config.settings import COUPLED, RunSettings, Sampling
from specdemo.kernels import runtime
from specdemo.kernels.plan import DraftPlan, StopRule

GOLDEN = 0x9E3779B97F4A7C15  # SplitMix64's step from one number to the next
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_BITS = 53  # random bits in a uniform number
# Largest uniform number: the next one is 1, and the logarithm of 1 - 1 does not exist.
_LARGEST = 1 - 2.0**-_BITS
_SLACK = 1 + 1e-12  # rounding of a quotient and a product
LIKELY, LOWER = 1e-3, 8.0  # first floor of the search for top-p, and the divisor of the next floor
_BLOCK = 16_384  # tokens whose numbers fit into a processor's cache together: a third of the time for 152,000 tokens

Bits = TypeVar("Bits", int, np.ndarray)


class Tickets:
    """The tickets of one seed. noise: 64 bits, from which those of all positions follow"""

    def __init__(self, seed: int) -> None:
        self.noise = _mixed(seed)

    def key(self, position: int) -> int:
        """Return the 64 bits that start the sequence of a position's numbers, one for each token id."""
        return _mixed(self.noise + position * GOLDEN & _MASK)

    def winner(self, probs: Tensor, position: int, word_ids: Tensor | None = None) -> int:
        """Return the column that is drawn at a position: the largest log probability + ticket.

        probs: (W,) float32 on the CPU, contiguous, whose sum does not matter
        word_ids: (W,) int64, contiguous, the token of each column; None for all tokens

        A ticket is -log(-log(1 - uniform)), so the largest sum is the smallest -log(1 - uniform) / probability. That
        quotient is at least uniform / probability, so few tokens need a logarithm. Compiled code does the same in a fraction
        of the time, if it is loaded.
        """
        if compiled := runtime.loaded("winner_at"):
            words = 0 if word_ids is None else word_ids.data_ptr()
            column: int = compiled(probs.data_ptr(), probs.shape[0], self.key(position), words)
            return column
        row, ids = probs.numpy(), None if word_ids is None else word_ids.numpy()
        columns = np.flatnonzero(row > 0)
        if not len(columns):  # nothing is left of a distribution, or it has no numbers
            return 0
        best, least = int(row.argmax()), math.inf
        blocks = [columns[at : at + _BLOCK] for at in range(0, len(columns), _BLOCK)]
        for some in [np.array([best]), *blocks]:  # the most likely token is a bound for the others
            chances = row[some].astype(np.float64)
            uniforms = self._uniforms(position, some if ids is None else ids[some])
            near = np.flatnonzero(uniforms <= least * _SLACK * chances)
            waits = -np.log1p(-uniforms[near]) / chances[near]
            if len(near) and waits.min() < least:
                best, least = int(some[near[waits.argmin()]]), float(waits.min())
        return best

    def ticket(self, position: int, token_id: int) -> float:
        number = _mixed(self.key(position) + token_id * GOLDEN & _MASK) >> 64 - _BITS
        return -math.log(-math.log1p(-min((number + 0.5) * 2.0**-_BITS, _LARGEST)))

    def _uniforms(self, position: int, token_ids: np.ndarray) -> np.ndarray:
        """Return uniform numbers between 0 and 1, without both, for token ids, (N,) int64. returns: (N,) float64"""
        numbers = _mixed(self.key(position) + token_ids.astype(np.uint64) * GOLDEN)
        uniforms: np.ndarray = (numbers >> 64 - _BITS).astype(np.float64)
        uniforms += 0.5
        uniforms *= 2.0**-_BITS
        np.minimum(uniforms, _LARGEST, out=uniforms)
        return uniforms


def _mixed(number: Bits) -> Bits:
    """Return the output of SplitMix64 after a state: 64 bits that differ wherever the states do. number: an int, or an array of uint64"""
    number = number + GOLDEN & _MASK
    number = (number ^ number >> 30) * FIRST_FACTOR & _MASK
    number = (number ^ number >> 27) * SECOND_FACTOR & _MASK
    return number ^ number >> 31


@dataclass(frozen=True, slots=True)
class ReducedVocabulary:
    """A reduced vocabulary: the token of each column of a drafter's rows.

    ids: (W,) int64 on the CPU, each token once; size: V; tokens: the same ids; column_of: the column of each token
    """

    ids: Tensor
    size: int
    tokens: array[int] = field(default_factory=lambda: array("q"), repr=False, compare=False)
    column_of: MutableMapping[int, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Store both directions, for access by token."""
        if not self.tokens:
            tokens = array("q", self.ids.tolist())
            object.__setattr__(self, "tokens", tokens)
            columns = {token: column for column, token in enumerate(tokens)}
            object.__setattr__(self, "column_of", columns)

    def extended(self, tokens: Sequence[int]) -> ReducedVocabulary:
        """These words and some more, none of which is among them."""
        more = {token: column for column, token in enumerate(tokens, len(self.tokens))}
        # A copy of a dictionary or a tuple would touch the object of each word.
        every = self.tokens + array("q", tokens)
        ids = torch.frombuffer(every, dtype=torch.int64)
        return ReducedVocabulary(ids, self.size, every, ChainMap(more, self.column_of))

    def token(self, column: int) -> int:
        return self.tokens[column]

    def columns(self, tokens: Iterable[int]) -> list[int]:
        """The columns of those of some tokens that are among the words, in the tokens' order."""
        return [self.column_of[token] for token in tokens if token in self.column_of]

    def widen(self, rows: Tensor) -> Tensor:
        """Probabilities of the words, (N, W) float32, to (N, V) on the CPU: none for other tokens."""
        wide = torch.zeros(len(rows), self.size)
        # numpy's assignment takes half of torch's on a CPU.
        wide.numpy()[:, self.ids.numpy()] = rows.cpu().numpy()
        return wide


class TextTokens:
    """The distinct tokens of a growing text, to which a repetition penalty applies."""

    def __init__(self, token_ids: Iterable[int]) -> None:
        self._known: set[int] = set()
        self._ids = array("q")
        self.add(token_ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def add(self, token_ids: Iterable[int]) -> None:
        for token in token_ids:
            if token not in self._known:
                self._known.add(token)
                self._ids.append(token)

    def with_path(self, path: Sequence[int]) -> array[int]:
        """Return int64 ids of the text's tokens and those of a path of drafted ones, each once."""
        more = {token for token in path if token not in self._known}
        return self._ids + array("q", more) if more else self._ids


@dataclass(frozen=True, slots=True)
class Shaper:
    """Turns logits into the distribution from which a token is drawn.

    The repetition penalty of a row depends only on the tokens before that row, so a
    refused branch leaves no trace: there is no state to roll back.

    tickets: noise that decides which token is drawn from it; None to draw with a generator
    """

    sampling: Sampling
    tickets: Tickets | None = None

    @classmethod
    def of(cls, settings: RunSettings) -> Shaper:
        """Return the shaper of a run: with the seed's tickets if target and drafter draw with the same noise."""
        sampling = settings.sampling
        coupled = settings.verification == COUPLED and not sampling.greedy
        return cls(sampling, Tickets(sampling.seed) if coupled else None)

    def plan(self, most: int, rule: StopRule, uniforms: Tensor | None) -> DraftPlan:
        """Return the plan of a draft whose rows compiled code shapes as `probs` does."""
        one, noise = self.sampling, self.tickets.noise if self.tickets else None
        return DraftPlan(
            most, rule, uniforms, one.temperature, one.top_k, one.top_p, one.repetition_penalty, noise
        )  # fmt: skip

    def logits(
        self,
        logits: Tensor,
        committed: Iterable[int],
        paths: Sequence[Sequence[int]],
        words: ReducedVocabulary | None = None,
    ) -> Tensor:
        """Shape rows of logits.

        logits: (R, V) — row r answers the text `committed + paths[r]`
        words: the vocabulary of the columns; None if they are all tokens
        returns: (R, V) float32 — minus infinity where top-k or top-p rule a token out
        """
        shaped = logits.float()
        if self.sampling.repetition_penalty != 1:
            shaped = self._penalised(shaped, committed, paths, words)
        if self.sampling.greedy:
            return shaped
        if self.sampling.temperature != 1:
            shaped = shaped / self.sampling.temperature
        if self.sampling.top_k:
            shaped = _keep_top_k(shaped, self.sampling.top_k)
        if self.sampling.top_p < 1:
            shaped = _keep_top_p(shaped, self.sampling.top_p)
        return shaped

    def probs(
        self,
        logits: Tensor,
        committed: Iterable[int],
        paths: Sequence[Sequence[int]],
        words: ReducedVocabulary | None = None,
    ) -> Tensor:
        """Shaped probabilities, (R, V) float32. When greedy: of temperature 1, for pictures and policies."""
        return torch.softmax(self.logits(logits, committed, paths, words), dim=-1)

    def compiled(self, logits: Tensor, text: TextTokens, path: Sequence[int] = ()) -> Tensor | None:
        """Turn a row of logits on the CPU, (V,), into probabilities of the text `text + path`, in a fraction of the time.

        returns: (V,) float32, in the memory of logits that are float32 and contiguous; None if no compiled code is loaded, or
            if V is no multiple of 16
        """
        shape, width = runtime.loaded("shape_row_at"), logits.shape[0]
        if shape is None or width % 16:  # it shapes 16 float32 at a time
            return None
        one, penalty = self.sampling, self.sampling.repetition_penalty
        penalised = text.with_path(path) if penalty != 1 else array("q")
        row, (marked, count) = logits.float().contiguous(), penalised.buffer_info()
        shape(
            row.data_ptr(), width, penalty, marked, count, 1 / one.temperature, one.top_k, one.top_p
        )
        return row

    def _penalised(
        self,
        logits: Tensor,
        committed: Iterable[int],
        paths: Sequence[Sequence[int]],
        words: ReducedVocabulary | None,
    ) -> Tensor:
        """Apply the penalty once to each token of a row's text: to those of all rows together, and then to each row's own."""
        shaped, width, penalty = logits.clone(), logits.shape[-1], self.sampling.repetition_penalty
        base = set(committed)
        places: list[tuple[int | slice, set[int]]] = [(slice(None), base)]
        places += [(row, set(path) - base) for row, path in enumerate(paths)]
        for rows, tokens in places:
            if not tokens:
                continue
            found = words.columns(tokens) if words else [one for one in tokens if one < width]
            columns = torch.tensor(found, dtype=torch.long, device=shaped.device)
            values = shaped[rows, columns]
            shaped[rows, columns] = torch.where(values > 0, values / penalty, values * penalty)
        return shaped


class TargetRows:
    """The target's rows of a step, shaped when they are first read: those behind a refused token never are.

    rows[r]: probabilities, (V,) float32 on the CPU — row 0 answers the pending token, row 1 + i node i
    """

    def __init__(
        self,
        shaper: Shaper,
        logits: Tensor,
        text: TextTokens,
        paths: Sequence[Sequence[int]],
    ) -> None:
        """logits: as for `Shaper.logits`; they may be overwritten. text, paths: row r answers `text + paths[r]`"""
        self._shaper, self._logits, self._text, self._paths = shaper, logits, text, paths
        self._is_on_cpu = logits.device.type == "cpu"
        self._shaped: dict[int, Tensor] = {}
        self._probs: dict[int, Tensor] = {}
        self._copied: dict[int, Tensor] = {}  # rows of a GPU

    def shaped(self, row: int) -> Tensor:
        """Shaped logits, (V,) float32 on the model's device."""
        if row not in self._shaped:
            # A GPU shapes all rows in the time of one.
            first, end = (row, row + 1) if self._is_on_cpu else (0, None)
            paths = self._paths[first:end]
            found = self._shaper.logits(self._logits[first:end], self._text, paths)
            self._shaped.update(enumerate(found, first))
        return self._shaped[row]

    def probs(self, row: int) -> Tensor:
        """Probabilities, (V,) float32 on the model's device."""
        if row not in self._probs:
            found = None
            if self._is_on_cpu and not self._shaper.sampling.greedy:
                found = self._shaper.compiled(self._logits[row], self._text, self._paths[row])
            self._probs[row] = self.shaped(row).softmax(dim=-1) if found is None else found
        return self._probs[row]

    def __getitem__(self, row: int) -> Tensor:
        if self._is_on_cpu:
            return self.probs(row)
        if row not in self._copied:
            self._copied[row] = self.probs(row).cpu()  # sync: one per accepted token and one more
        return self._copied[row]


def _keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    floor = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < floor, -torch.inf)


def _keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Mask all but the most likely tokens that reach top_p; tokens as likely as the last of them stay too."""
    probs = logits.softmax(dim=-1)
    if probs.device.type == "cpu":
        # numpy's choice takes half of torch's on a CPU.
        rows = probs.numpy()
        floors = np.array([[_least_kept(row, top_p)] for row in rows], dtype=rows.dtype)
        return torch.from_numpy(np.where(rows < floors, rows.dtype.type(-np.inf), logits.numpy()))
    ordered = probs.sort(dim=-1, descending=True).values
    kept = (ordered.cumsum(dim=-1) - ordered < top_p).sum(dim=-1, keepdim=True)
    return logits.masked_fill(probs < ordered.gather(-1, kept.clamp(min=1) - 1), -torch.inf)


def _least_kept(probs: np.ndarray, top_p: float) -> float:
    """Return the smallest probability that top-p accepts; 0 for a row that has no numbers. probs: (V,)

    Only tokens above a floor are sorted, and it is lowered until their total reaches top_p: mostly a few dozen.
    """
    floor = LIKELY
    while True:
        ordered = -np.sort(-probs[probs >= floor])
        total = ordered.cumsum()
        if floor == 0 or (len(total) and total[-1] >= top_p):
            kept = max(int((total - ordered < top_p).sum()), 1)
            return float(ordered[kept - 1]) if len(ordered) else 0.0
        floor = floor / LOWER if floor > 1 / len(probs) ** 2 else 0.0


def likeliest(rows: Tensor) -> Tensor:
    """Index of the largest value of each row, the first of equals. rows: (..., V). returns: (...) int64 on the CPU

    numpy's search takes a tenth of torch's on a CPU.
    """
    return torch.from_numpy(np.asarray(rows.detach().cpu().numpy().argmax(axis=-1)))


def draw(probs: Tensor, generator: torch.Generator) -> int:
    """Draw one index of a distribution (V,) that sums to about one.

    At 49,152 words this takes a twentieth of `torch.multinomial`, which draws a number for each word.
    """
    return draw_at(probs, float(torch.rand((), generator=generator, dtype=torch.float64)))


def draw_at(probs: Tensor, uniform: float) -> int:
    """The index of a distribution (V,) that a number from 0 to 1 falls on, by inverting its cumulative sum."""
    if probs.dtype == torch.float32 and (compiled := runtime.loaded("drawn_at")):
        row = probs.contiguous()  # must live until the call returns
        found: int = compiled(row.data_ptr(), row.shape[0], uniform)
        return found
    cumulative = probs.cumsum(0, dtype=torch.float64).numpy()
    # right: a word of no probability ends where the one before it ends, and is never drawn.
    column = cumulative.searchsorted(uniform * cumulative[-1], side="right")
    return min(int(column), len(probs) - 1)


def residual_of(
    left: Tensor, drawn_from: Tensor, word_ids: Tensor | None, scale: float = 1.0
) -> tuple[Tensor, float]:
    """Return the residual distribution after a refusal, and its sum before it was normalised: max(scale * left - drawn_from, 0), (V,).

    left: (V,); drawn_from: (W,); word_ids: (W,) int64, contiguous, the token of each column; None for all. All are on the CPU.
    Nothing is left only by rounding (the two distributions are equal): `left` itself is right then, and the sum is 0.
    """
    left, drawn_from = left.contiguous(), drawn_from.contiguous()
    both = left.dtype == drawn_from.dtype == torch.float32
    if both and (compiled := runtime.loaded("residual_at")):
        rest, width, num_words = torch.empty_like(left), left.shape[0], drawn_from.shape[0]
        words = 0 if word_ids is None else word_ids.data_ptr()
        total: float = compiled(
            left.data_ptr(), width, scale, drawn_from.data_ptr(), words, num_words, rest.data_ptr()
        )
    else:
        # numpy's indexing takes half of torch's on a CPU.
        had, columns = left.numpy() * scale, slice(None) if word_ids is None else word_ids.numpy()
        had[columns] = np.maximum(had[columns] - drawn_from.numpy(), 0)
        total = float(had.sum())
        rest = torch.from_numpy(had / (total or 1.0))
    return (rest, total) if total else (left, 0.0)
