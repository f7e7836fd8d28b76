"""The weights of a compact draft: a few Llama layers that borrow the target's embedding and speak a reduced vocabulary.

A draft step must cost a small part of a target step. The head over the whole vocabulary would dominate it,
so only the rows of words that the target often says are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.decoders.layer import HeadSizes, LlamaLayer
from specdemo.models.networks.four_bit import FourBitLinear, Linear, pack, rounded
from specdemo.models.networks.text_words import MOST, TextWords

EPSILON = 1e-5  # of the norm over the target's states


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary embedding that is stretched. frequencies: (head_dim / 2,), of each pair; scale: of cosines and sines"""

    frequencies: tuple[float, ...]
    scale: float


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """Shape of a compact draft, as in its config.json. rope: in place of `rope_theta`"""

    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope: Rope | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> CompactConfig:
        """The shape that a config.json of transformers says."""
        return cls(
            hidden_size=config["hidden_size"],
            num_heads=config["num_attention_heads"],
            num_key_value_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            rms_norm_eps=config["rms_norm_eps"],
            rope_theta=config["rope_parameters"]["rope_theta"],
        )

    @property
    def sizes(self) -> HeadSizes:
        """Sizes of its attention."""
        return HeadSizes(
            self.num_heads,
            self.num_key_value_heads,
            self.head_dim,
            self.head_dim**-0.5,
            self.rms_norm_eps,
        )


@dataclass(frozen=True, slots=True)
class Injection:
    """What joins a draft's states from the target's, of the token before (after EAGLE-3, Li 2503.01840).

    gain: (states x H,), of a norm over each state; None for no norm; project: states x H to H
    together: the norm is over all states as one; epsilon: of the norm
    """

    gain: Tensor | None
    project: Linear
    together: bool = False
    epsilon: float = EPSILON

    def of(self, states: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """(rows, H). states: (rows, states x H) of `count` layers; dtype: of the weights"""
        if self.gain is not None:
            parts = states if self.together else states.unflatten(-1, (count, -1))
            normed = F.rms_norm(parts, parts.shape[-1:], eps=self.epsilon)
            states = normed.reshape(states.shape).to(self.gain.dtype) * self.gain
        return self.project(states.to(dtype))


@dataclass(frozen=True, slots=True)
class Beside:
    """A first layer that reads a state beside the embedding, and not added to it: twice the inputs (EAGLE-3).

    norm: (H,) of the state; normed: what goes past attention is the state behind that norm, not before it
    """

    norm: Tensor
    normed: bool


class Corrector(Protocol):
    """What a block drafter makes of a place once the word before it is known. Words are columns of its vocabulary."""

    @property
    def by_token(self) -> bool:
        """Whether the word before is named as a token of the target, and not as a column."""

    def corrected(self, logits: Tensor, previous: int, state: Tensor) -> Tensor:
        """A place's logits as new values. logits: (1, W); state: (H,), what went into the head there"""

    def survival(self, guess: int, state: Tensor, previous: int) -> float | None:
        """How sure it is that a guess will be kept. guess: its number, from 0; None where it does not say"""


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """DSpark's sequential stage. Words are columns of the reduced vocabulary, W standing for any other.

    token: (W + 1, R), or (V, R) by token; bias: R to W
    confidence: (H + R,), and its constant; None where it does not say how sure it is; temperatures: (depth,)
    by_token: rows of `token` are tokens of the target
    """

    token: Tensor
    bias: Linear
    confidence: Tensor | None
    constant: float
    temperatures: tuple[float, ...]
    by_token: bool = False

    def corrected(self, logits: Tensor, previous: int, state: Tensor) -> Tensor:
        """See `Corrector`."""
        logits = logits.clone()
        with torch.inference_mode():
            added = self.bias(self.token[previous : previous + 1])
            logits[:, : added.shape[-1]] += added
        return logits

    def survival(self, guess: int, state: Tensor, previous: int) -> float | None:
        """See `Corrector`."""
        if self.confidence is None:
            return None
        inputs = torch.cat([state.float(), self.token[previous].float()])
        logit = float(inputs @ self.confidence) + self.constant
        return 1 / (1 + math.exp(-logit / self.temperatures[guess]))


PIECE = 1024  # rows that are made together


class MixedEmbedding:
    """Embeddings multiplied by a drafter's own matrix, each when its token is first read.

    table: (V, H) bfloat16; rows of tokens that were not read yet are zero and take no memory
    """

    def __init__(self, embedding: Tensor, matrix: Tensor, token_ids: Tensor) -> None:
        """matrix: (H, H) float32; token_ids: (N,), those that may be drafted."""
        self._embedding = embedding
        # In float64 a row is the same whichever rows it is made with. MPS has none.
        precise = torch.float32 if matrix.device.type == "mps" else torch.float64
        self._matrix = matrix.T.to(precise)
        self.table = torch.zeros_like(embedding)
        self._known = torch.zeros(len(embedding), dtype=torch.bool)
        self.read(torch.as_tensor(token_ids))

    def rows(self, token_ids: Sequence[int] | Tensor) -> Tensor:
        """(N, H) bfloat16."""
        index = torch.as_tensor(token_ids)
        self.read(index)
        return self.table[index.to(self.table.device)]

    def read(self, index: Tensor) -> None:
        """Make the table's rows of some tokens, where they are not there yet. index: (N,)"""
        new = index[~self._known[index]].unique()
        if len(new):
            for some in new.to(self.table.device).split(PIECE):
                mixed = self._embedding[some].to(self._matrix) @ self._matrix
                self.table[some] = mixed.to(self.table)
            self._known[new] = True


@dataclass(frozen=True, slots=True)
class CompactWeights:
    """Shared, immutable weights.

    embedding: (V, H), the target's; words: what the head speaks
    mixed: what goes into the first layer in place of embeddings; None for the embeddings themselves
    output: (V, H), the target's own head where that is another matrix; None for the embedding
    extends: how many of the layers are a draft model's, below those that were trained on top of it
    reads: hidden states of the target that go in, by layer; inject: how, between the draft model and the rest
    feedback: (H,), what a token takes over of the drafter's own state before it, for each number of it, where the
        target has not read that far; None for nothing
    feeds_normed: whether that is the state behind the last norm
    beside: how states join the first layer; None where they are added to embeddings
    skips_first: the text begins with its second token, the first that a state stands before
    own_head: the head is no part of the target's, so words of a text cannot be added to it
    depth: positions that it guesses at once; mask: (depth - 1, H), what is added to the last known state for each
    causal: whether guessed positions see only those before them
    """

    config: CompactConfig
    layers: tuple[LlamaLayer, ...]
    norm: Tensor
    embedding: Tensor
    head: Linear
    words: ReducedVocabulary
    extends: int = 0
    reads: tuple[int, ...] = ()
    inject: Injection | None = None
    mixed: MixedEmbedding | None = None
    feedback: Tensor | None = None
    feeds_normed: bool = True
    beside: Beside | None = None
    skips_first: bool = False
    own_head: bool = False
    output: Tensor | None = None
    mask: Tensor | None = None
    depth: int = 1
    causal: bool = True
    markov: Corrector | None = None

    @property
    def compiles(self) -> bool:
        """Whether the compiled pass can compute its layers."""
        plain = all(layer.query_key_norms is None for layer in self.layers)
        return bool(self.layers) and plain and self.beside is None

    def text_words(self, *, packed: bool) -> TextWords:
        """What one conversation's text adds to `words`. packed: also for the compiled pass"""
        four_bit = isinstance(self.head, FourBitLinear)
        rows = self.embedding if self.output is None else self.output
        return TextWords(
            self.words,
            rows,
            rounded if four_bit else _as_is,
            pack if packed else None,
            0 if self.own_head else MOST,
        )


def _as_is(weight: Tensor) -> Tensor:
    return weight
