"""Parts that draft networks are made of: sizes, mixed embeddings, inputs from the target's states, vocabularies, and correctors."""

from __future__ import annotations

import math
import mmap
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.config.settings import MAX_LOOKAHEAD
from specdemo.config.strings import JsonView
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.models.decoders.layer import HeadSizes
from specdemo.models.decoders.operators import rms_norm
from specdemo.models.decoders.rotary import RotaryTables, frequency_tables, rotary_frequencies
from specdemo.models.networks.four_bit import Linear

EPSILON = 1e-5  # epsilon of the norm over the target's states
MIXED_ROWS = 1024  # rows of an embedding that are mixed at the same time


Adjust = Callable[[Tensor], Tensor]
"""A session's own correction of the head's inputs, (rows, H) to the same."""


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """Sizes of a draft network's layers, and their rotary embedding.

    frequencies: (head_dim / 2,) of each pair of channels; scale: factor of cosines and sines
    """

    hidden_size: int
    sizes: HeadSizes
    frequencies: Tensor
    scale: float = 1.0

    @classmethod
    def of(cls, config: JsonView) -> CompactConfig:
        """Return the sizes in the config.json that `train` writes, a transformers Llama config."""
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        width, theta = config["head_dim"], config["rope_parameters"]["rope_theta"]
        sizes = HeadSizes(heads, kv_heads, width, width**-0.5, config["rms_norm_eps"])
        return cls(config["hidden_size"], sizes, rotary_frequencies(width, theta))

    def rotary_tables(self, like: Tensor) -> RotaryTables:
        """Return the tables of its rotary embedding. like: a tensor of the dtype and device"""
        return RotaryTables(frequency_tables(self.frequencies, like, self.scale))


@dataclass(frozen=True, slots=True)
class Injection:
    """Projects the target's states of the previous token to one vector (after EAGLE-3, Li 2503.01840).

    gain: (states x H,) of a norm over each state, None for no norm; project: states x H to H
    joint: one norm covers all states; epsilon: of the norm
    """

    gain: Tensor | None
    project: Linear
    joint: bool = False
    epsilon: float = EPSILON

    def of(self, states: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """(rows, H). states: (rows, states x H) of `count` layers; dtype: of the weights"""
        if self.gain is not None:
            parts = (1 if self.joint else count, -1)
            gain = self.gain.unflatten(-1, parts)
            states = rms_norm(states.unflatten(-1, parts), gain, self.epsilon).flatten(1)
        return self.project(states.to(dtype))


class Corrector(Protocol):
    """Corrects the logits of a guessed position once the token before it, `previous`, is known."""

    def corrected(self, logits: Tensor, previous: int, state: Tensor) -> Tensor:
        """Return new logits of a position. logits: (1, W); state: (H,), the head's input there"""

    def survival(self, guess: int, state: Tensor, previous: int) -> float | None:
        """Return the probability that guess number `guess` is accepted; None if it is not estimated."""


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """DSpark's sequential stage: a low-rank matrix from the previous token to logits, and a confidence.

    token: (W + 1, R) by column, the last row for all other tokens, or (V, R) by token; bias: R to W
    words: the vocabulary of these columns, None for rows by token
    confidence: (H + R,), None if there is none; constant: (1,), added to it; temperatures: (depth,)
    """

    token: Tensor
    bias: Linear
    confidence: Tensor | None
    constant: Tensor
    temperatures: tuple[float, ...]
    words: ReducedVocabulary | None = None

    def corrected(self, logits: Tensor, previous: int, state: Tensor) -> Tensor:
        logits, row = logits.clone(), self._row(previous)
        with torch.inference_mode():
            added = self.bias(self.token[row : row + 1])
            logits[:, : added.shape[-1]] += added
        return logits

    def survival(self, guess: int, state: Tensor, previous: int) -> float | None:
        if self.confidence is None:
            return None
        inputs = torch.cat([state.float(), self.token[self._row(previous)].float()])
        logit = float(inputs @ self.confidence) + float(self.constant)
        return 1 / (1 + math.exp(-logit / self.temperatures[guess]))

    def _row(self, token_id: int) -> int:
        if self.words is None:
            return token_id
        columns = self.words.column_of
        return columns.get(token_id, len(columns))


@dataclass(frozen=True, slots=True)
class Selector:
    """DFlash 2's choice among the most likely tokens of a position by the token before it; a `Corrector`.

    before, after: (V, R) each, the vectors of a token as the previous one, and as a candidate; project: H to R
    most: number of candidates
    """

    before: Tensor
    after: Tensor
    project: Linear
    most: int

    @torch.inference_mode()
    def corrected(self, logits: Tensor, previous: int, state: Tensor) -> Tensor:
        """Return new logits, minus infinity for all but the candidates."""
        best, columns = logits[0].topk(self.most)
        context = self.before[previous] * self.project(state[None])[0]
        scores = best + (self.after[columns] @ context).float()
        return torch.full_like(logits, -torch.inf).index_copy(1, columns, scores[None])

    def survival(self, guess: int, state: Tensor, previous: int) -> float | None:
        return None


class MixedEmbedding:
    """Embeddings multiplied by a drafter's own matrix, each when its token is first read.

    table: (V, H) bfloat16; rows of tokens that were not read yet are zero and need no memory
    """

    def __init__(self, embedding: Tensor, matrix: Tensor, token_ids: Sequence[int]) -> None:
        """Mix the rows that may be drafted. embedding: (V, H); matrix: (H, H) float32; token_ids: of these rows"""
        self._embedding = embedding
        # In float64 a row does not depend on the other rows of the product. MPS has no float64.
        precise = torch.float32 if matrix.device.type == "mps" else torch.float64
        self._matrix = matrix.T.to(precise)
        self.table = _sparse_zeros(embedding)
        self._known = set[int]()
        self.read(token_ids)

    def read(self, token_ids: Sequence[int]) -> None:
        """Compute the missing rows of some tokens."""
        new = sorted(set(token_ids) - self._known)
        if new:
            for some in torch.tensor(new, device=self.table.device).split(MIXED_ROWS):
                mixed = self._embedding[some].to(self._matrix) @ self._matrix
                self.table[some] = mixed.to(self.table)
            self._known.update(new)


def _sparse_zeros(like: Tensor) -> Tensor:
    """Return zeros of which only written pages take memory, where the system can do that: torch writes all of its zeros."""
    if like.device.type != "cpu" or sys.platform != "linux":
        return torch.zeros_like(like)
    memory = mmap.mmap(-1, like.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # with pages of 2 MB nearly all would be written
    return torch.frombuffer(memory, dtype=like.dtype).view_as(like)


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """Medusa's heads (Cai 2401.10774): a residual block each on the target's last state, and one output matrix.

    blocks: the residual block of each head, H to H
    head: H to W, shared by all heads
    words: the reduced vocabulary; reads: the layer whose state the heads read; dtype: of that state
    """

    blocks: tuple[Linear, ...]
    head: Linear
    words: ReducedVocabulary
    reads: tuple[int, ...]
    dtype: torch.dtype = torch.bfloat16

    def open(self, _: CachedModel) -> MedusaWeights:
        """Return itself: the heads store nothing of a conversation."""
        return self

    @torch.inference_mode()
    def guess(self, state: Tensor) -> Tensor:
        """Return the logits of each head, (depth, W) float32. state: (1, H), of the token before the pending one

        Row k is for the token k + 1 positions after the pending one.
        """
        guesses = [state + F.silu(block(state)) for block in self.blocks]
        return self.head(torch.cat(guesses)).float()


MOST_ADDED = 512  # added tokens of a text; later ones are left out


class TextWords:
    """The vocabulary of a drafter in one conversation. It depends on the text only, not on how that was read.

    A head over a reduced vocabulary (FR-Spec 2502.14856) lacks rare tokens, mostly those of names, and three of four are
    already in the text when the target writes them. So tokens of the text are added, with rows of the target's own head.

    words: the reduced vocabulary, then the added tokens
    marked: columns of the text's tokens, `num_marked` of them, each once, and room for those of a draft
    rows: (V, H), the target's head
    most: number of added tokens; 0 for a drafter whose head is not the target's
    """

    def __init__(self, words: ReducedVocabulary, rows: Tensor, most: int = MOST_ADDED) -> None:
        self._most = most
        self.words = self._reduced = words
        self._rows = rows
        self._kept: Tensor | None = None  # rows of the added tokens, set at first use
        self._more: dict[int, int] = {}  # column of each added token
        self._places: dict[int, int] = {}  # position of each marked column in the text, ascending
        self.marked = array("q", bytes(8 * (len(words.tokens) + most + MAX_LOOKAHEAD)))

    @property
    def num_marked(self) -> int:
        return len(self._places)

    @property
    def memory_bytes(self) -> int:
        kept = 0 if self._kept is None else self._kept.nbytes
        return kept + self.marked.itemsize * len(self.marked)

    @property
    def added(self) -> Tensor | None:
        """The added tokens, (added,) int64; None for none."""
        return self.words.ids[len(self._reduced.tokens) :] if self._more else None

    def logits(self, states: Tensor) -> Tensor:
        """(rows, added) logits of the added tokens. states: (rows, H), the head's input"""
        if self._kept is None:
            self._kept = self._rows[list(self._more)]
        return F.linear(states, self._kept)

    def read(self, start: int, token_ids: Sequence[int]) -> None:
        """Add the tokens of the text from position `start` on, and mark their columns."""
        known, more = self._reduced.column_of, self._more
        before = len(more)
        for position, token in enumerate(token_ids, start):
            column = known.get(token, more.get(token))
            if column is None and len(more) < self._most:
                column = more[token] = len(known) + len(more)
            if column is not None:
                self.mark(column, position)
        if len(more) > before:
            self._set_words()

    def mark(self, column: int, position: int) -> None:
        """Mark the column of a token of the text."""
        if column not in self._places:
            self.marked[len(self._places)] = column
            self._places[column] = position

    def _set_words(self) -> None:
        """Make the vocabulary the reduced one, followed by the added tokens."""
        self.words, self._kept = self._reduced.extended(list(self._more)), None

    def forget(self, length: int) -> None:
        """Shorten the text to `length` tokens, and remove tokens that only occurred later."""
        before = len(self._more)
        while self._places and self._places[self.marked[self.num_marked - 1]] >= length:
            column, _ = self._places.popitem()
            if column >= len(self._reduced.tokens):  # of an added token, at its first position
                self._more.popitem()
        if len(self._more) < before:
            self._set_words()
