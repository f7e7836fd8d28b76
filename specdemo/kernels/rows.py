"""What goes through a pass, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specdemo.engine.cache import RollbackCache
from specdemo.engine.draft_plan import Chain, DraftPlan
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.kernels.packing import Packed


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
    """A draft that goes on from a pass. words: the token that each column of the logits stands for"""

    plan: DraftPlan
    words: ReducedVocabulary


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The rows of one conversation in a pass.

    positions: of each row in the text; the cache writes them into its slots from `start` on
    seen: (rows, start + rows) bool; None where each row sees all slots up to its own
    answers: how many of the last rows need logits
    """

    positions: Sequence[int]
    cache: RollbackCache
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
    """Rows that go through layers together.

    x: (rows, hidden) float32; it is overwritten where a sequence drafts
    cos, sin: (positions, head_dim) float32, the sines with their signs
    sequences: whose rows they are, one after the other
    inject_layer: before which what is injected is added
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
    """What a pass gave.

    logits: (answers, W) float32 of each sequence; final: (rows, hidden) float32 behind the last layer, if it was wanted
    chains: the draft of each sequence that drafts
    """

    logits: Sequence[Tensor]
    final: Tensor | None
    chains: Sequence[Chain | None]
