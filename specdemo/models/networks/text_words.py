"""Words of a conversation's own text beside a drafter's reduced vocabulary.

A head over few words (FR-Spec 2502.14856) cannot say the rare ones, and these are names above all: three of four are
in the text already when the target says them. So what a text has said can be said again, by rows of the target's own head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn import functional as F

from specdemo.engine.sampling import ReducedVocabulary
from specdemo.kernels.packing import BLOCK, Packed
from specdemo.kernels.runtime import ExtraHead

MOST = 512  # words of a text; later ones are left out


class TextWords:
    """What a drafter of one conversation can say. It is the same for the same text, however that was read.

    words: the reduced vocabulary, then what the text has beside it
    embedding: (V, H), whose rows are the head's; rounded: to the values that the head computes with
    pack: rows as the compiled pass reads them; None where that does not run
    most: words of a text; none for a drafter whose head is not the target's
    """

    def __init__(
        self,
        words: ReducedVocabulary,
        embedding: Tensor,
        rounded: Callable[[Tensor], Tensor],
        pack: Callable[[Tensor], Packed] | None,
        most: int = MOST,
    ) -> None:
        self._most = most
        self.words = self._reduced = words
        self._embedding, self._rounded, self._pack = embedding, rounded, pack
        self._met: list[int] = []  # position of each added word in the text
        self._rows = embedding.new_empty(0, embedding.shape[1])
        self._packed: Packed | None = None

    @property
    def memory_bytes(self) -> int:
        """Of the added rows, as the head reads them."""
        return self._rows.nbytes

    @property
    def extra(self) -> ExtraHead | None:
        """The added rows for the compiled pass."""
        return ExtraHead(self._packed, len(self._met)) if self._packed and self._met else None

    def logits(self, states: Tensor) -> Tensor:
        """(rows, added) of the added words. states: (rows, H), what goes into the head"""
        return F.linear(states, self._rows[: len(self._met)])

    def read(self, start: int, token_ids: Sequence[int]) -> None:
        """The text goes on at position `start`."""
        known = self.words.column_of
        new: dict[int, int] = {}
        for position, token in enumerate(token_ids, start):
            if token not in known and len(self._met) + len(new) < self._most:
                new.setdefault(token, position)
        if not new:
            return
        begin = len(self._met) // BLOCK * BLOCK
        self._met += new.values()
        self.words = self.words.extended(list(new))
        tokens = self.words.tokens[len(self._reduced.tokens) + begin :]
        rows = self._embedding.new_zeros(-(-len(tokens) // BLOCK) * BLOCK, self._embedding.shape[1])
        rows[: len(tokens)] = self._embedding[list(tokens)]
        self._enter(begin, rows)

    def forget(self, length: int) -> None:
        """The text ends at position `length`: what was met later was not met."""
        kept = len(self._met)
        while kept and self._met[kept - 1] >= length:
            kept -= 1
        if kept < len(self._met):
            added = self.words.tokens[len(self._reduced.tokens) :][:kept]
            self._met, self.words = self._met[:kept], self._reduced.extended(added)

    def _enter(self, begin: int, rows: Tensor) -> None:
        """Rows from number `begin` on, whole blocks of them."""
        if not len(self._rows):
            empty = rows.new_zeros(MOST, rows.shape[1])
            self._rows, self._packed = empty, self._pack(empty) if self._pack else None
        self._rows[begin : begin + len(rows)] = self._rounded(rows)
        if self._pack and self._packed:
            packed, blocks = self._pack(rows), slice(begin // BLOCK, (begin + len(rows)) // BLOCK)
            self._packed.codes[blocks] = packed.codes
            for kept, new in (
                (self._packed.scales, packed.scales),
                (self._packed.zeros, packed.zeros),
            ):
                assert kept is not None
                assert new is not None
                kept[blocks] = new
