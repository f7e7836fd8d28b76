"""Inputs and results of the compiled pass: the weights of layers, and rows of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from specdemo.kernels.blocks import BlockMatrix
from specdemo.kernels.job import address
from specdemo.kernels.packing import BLOCK_OUTPUTS, Packed
from specdemo.kernels.plan import Chain, DraftPlan

Matrix = Packed | BlockMatrix
NORMS = ("input_norm", "post_norm", "attended_norm", "gated_norm", "query_norm", "key_norm")
HEAD_DIMS = range(64, 257, 32)  # that the compiled pass takes


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; norms float32, with their offset. See `decoders.layer.LlamaLayer`, whose defaults these are.

    input_norm, post_norm: before attention and before the MLP; attended_norm, gated_norm: of their outputs
    query_norm, key_norm: of each head, or of all heads together, see `Shape.joint_norms`
    rotary: number of its rotary embedding; -1 for none; window: keys that a row looks back at; 0 for all
    """

    input_norm: Tensor | None
    post_norm: Tensor | None
    qkv: Matrix
    output: Matrix
    gate_up: Matrix
    down: Matrix
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None
    attended_norm: Tensor | None = None
    gated_norm: Tensor | None = None
    rotary: int = 0
    window: int = 0

    def write(self, record: Any) -> None:
        """Fill its record, see `job.LAYER`."""
        for name in NORMS:
            setattr(record, name, address(getattr(self, name)))
        for name in ("qkv", "output", "gate_up", "down"):
            getattr(self, name).write(getattr(record, name))
        record.qkv_bias = address(self.qkv.bias)
        record.rotary, record.window = self.rotary, self.window


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a stack of layers.

    inner: width between gate and down; group: inputs that share a scale; epsilon: of the norms; scale: of attention scores
    residual: factor of additions to the residual stream; gelu: gates are GELU (tanh) in place of SiLU
    joint_norms: norms of queries and of keys are of all heads together
    """

    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    inner: int
    group: int
    epsilon: float
    scale: float
    residual: float = 1.0
    gelu: bool = False
    joint_norms: bool = False


def fits(shape: Shape, columns: int = BLOCK_OUTPUTS) -> bool:
    """Whether the compiled pass takes layers of these sizes, and a head of so many columns."""
    attended = shape.heads * shape.head_dim
    inputs = (shape.hidden, shape.inner, attended)
    outputs = (shape.hidden, shape.inner, attended + 2 * shape.kv_heads * shape.head_dim, columns)
    return (
        shape.head_dim in HEAD_DIMS
        and shape.group in (32, 64)
        and all(size % 64 == 0 for size in inputs)
        and all(size % BLOCK_OUTPUTS == 0 for size in outputs)
    )


class Slots(Protocol):
    """The cache of one conversation; see `engine.cache.RollbackCache`."""

    @property
    def length(self) -> int:
        """Tokens that count."""

    @property
    def start(self) -> int:
        """Slot of the next pass's first row."""

    @property
    def capacity(self) -> int:
        """Number of slots."""

    def slots(self, end: int, like: Tensor) -> np.ndarray[Any, Any]:
        """Return (layers, 2) int64 addresses of keys and values, with room up to slot `end`."""


@dataclass(frozen=True, slots=True)
class Injected:
    """States that are added to rows of a conversation before a layer. rows: (n, hidden) float32, for its rows from `first` on"""

    first: int
    rows: Tensor


@dataclass(frozen=True, slots=True)
class ExtraHead:
    """Rows that a conversation has behind those of a 4-bit head. count: how many of them count, the rest only fills a block"""

    matrix: Packed
    count: int


@dataclass(frozen=True, slots=True)
class Drafting:
    """A draft that continues after a pass.

    token_ids: (W,) int64, the token of each column of the logits
    penalised: (n + plan.most,) int64, columns of the text's tokens, each once, and room for those that are drafted
    """

    plan: DraftPlan
    token_ids: Tensor
    penalised: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The rows of one conversation in a pass.

    positions: of each row in the text; the cache writes them into its slots from `start` on
    seen: (rows, start + rows) bool; None where each row sees all slots up to its own
    answers: how many of the last rows need logits
    """

    positions: Sequence[int]
    cache: Slots
    seen: Tensor | None = None
    answers: int = 0
    injected: Injected | None = None
    extra: ExtraHead | None = None
    drafting: Drafting | None = None

    @property
    def more(self) -> int:
        """Rows that a draft reads after these."""
        return self.drafting.plan.most - 1 if self.drafting else 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass.

    x: (rows, hidden) float32; it is overwritten where a sequence drafts
    cos, sin: (rotary embeddings, positions, rotated channels) float32, the sines with their signs; one needs no first axis
    sequences: the conversations of the rows, one after the other
    inject_layer: layer before which the injected states are added
    embedding: (V, hidden) bfloat16 that drafted tokens are read by
    """

    x: Tensor
    cos: Tensor
    sin: Tensor
    sequences: Sequence[SequenceRows]
    inject_layer: int = 0
    embedding: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """Results of a pass.

    logits: (answers, W) float32 of each sequence; final: (rows, hidden) float32 after the last layer, if requested
    chains: the draft of each sequence that drafts
    """

    logits: Sequence[Tensor]
    final: Tensor | None
    chains: Sequence[Chain | None]
