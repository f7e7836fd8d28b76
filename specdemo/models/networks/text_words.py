"""Additional tokens of a conversation's own text for a drafter with a reduced vocabulary.

A head over a reduced vocabulary (FR-Spec 2502.14856) lacks rare tokens, mostly those of names, and three of four are
already in the text when the target writes them. So tokens of the text are added, with rows of the target's own head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.kernels.packing import BLOCK_OUTPUTS, Packed
from specdemo.kernels.runtime import ExtraHead

MOST_ADDED = 512  # added tokens of a text; later ones are left out


class TextWords:
    """The vocabulary of a drafter in one conversation. It depends on the text only, not on how that was read.

    words: the reduced vocabulary, then the added tokens
    embedding: (V, H), whose rows are the head's; rounded: to the values that the head computes with
    pack: rows for the compiled pass; None if that is not used
    most: number of added tokens; 0 for a drafter whose head is not the target's
    """

    def __init__(
        self,
        words: ReducedVocabulary,
        embedding: Tensor,
        rounded: Callable[[Tensor], Tensor],
        pack: Callable[[Tensor], Packed] | None,
        most: int = MOST_ADDED,
    ) -> None:
        self._most = most
        self.words = self._reduced = words
        self._embedding, self._rounded, self._pack = embedding, rounded, pack
        self._met: list[int] = []  # position of each added word in the text
        self._rows = embedding.new_empty(0, embedding.shape[1])
        self._packed: Packed | None = None

    @property
    def memory_bytes(self) -> int:
        return self._rows.nbytes

    @property
    def extra(self) -> ExtraHead | None:
        return ExtraHead(self._packed, len(self._met)) if self._packed and self._met else None

    def logits(self, states: Tensor) -> Tensor:
        """(rows, added) logits of the added tokens. states: (rows, H), the head's input"""
        return F.linear(states, self._rows[: len(self._met)])

    def read(self, start: int, token_ids: Sequence[int]) -> None:
        """Add the tokens of the text from position `start` on."""
        known = self.words.column_of
        new: dict[int, int] = {}
        for position, token in enumerate(token_ids, start):
            if token not in known and len(self._met) + len(new) < self._most:
                new.setdefault(token, position)
        if not new:
            return
        begin = len(self._met) // BLOCK_OUTPUTS * BLOCK_OUTPUTS
        self._met += new.values()
        self.words = self.words.extended(list(new))
        tokens = self.words.tokens[len(self._reduced.tokens) + begin :]
        rows = self._embedding.new_zeros(
            -(-len(tokens) // BLOCK_OUTPUTS) * BLOCK_OUTPUTS, self._embedding.shape[1]
        )
        rows[: len(tokens)] = self._embedding[list(tokens)]
        self._enter(begin, rows)

    def forget(self, length: int) -> None:
        """Shorten the text to `length` tokens, and remove tokens that only occurred later."""
        kept = len(self._met)
        while kept and self._met[kept - 1] >= length:
            kept -= 1
        if kept < len(self._met):
            added = self.words.tokens[len(self._reduced.tokens) :][:kept]
            self._met, self.words = self._met[:kept], self._reduced.extended(added)

    def _enter(self, begin: int, rows: Tensor) -> None:
        """Write rows from number `begin` on, in whole blocks."""
        if not len(self._rows):
            empty = rows.new_zeros(MOST_ADDED, rows.shape[1])
            self._rows, self._packed = empty, self._pack(empty) if self._pack else None
        self._rows[begin : begin + len(rows)] = self._rounded(rows)
        if self._pack and self._packed:
            packed, blocks = (
                self._pack(rows),
                slice(begin // BLOCK_OUTPUTS, (begin + len(rows)) // BLOCK_OUTPUTS),
            )
            self._packed.codes[blocks] = packed.codes
            for kept, new in (
                (self._packed.scales, packed.scales),
                (self._packed.zeros, packed.zeros),
            ):
                assert kept is not None
                assert new is not None
                kept[blocks] = new
