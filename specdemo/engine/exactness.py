"""Whether passes of several rows give the logits of passes of one row, bit by bit: then a greedy text cannot depend on drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.engine.cost import CONTEXT, FAR_CONTEXT, fitting
from specdemo.engine.types import Proposal

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.engine.target import CachedModel

MOST_ROWS = 8  # rows to check
CHECKED_TOKENS = 24  # tokens after a text: whole passes of 2, 3, 4, 6 and 8 rows


def exact_rows(target: CachedModel, most: int = MOST_ROWS) -> int:
    """Return the rows up to which a pass gives the bits of passes of one row, over a short and a longer text; 1 for none.

    A sample, no proof. Rows of a tree are not among it, nor passes that runs share. The cache is given back empty.
    """
    found = most
    for context in (fitting(target, one, CHECKED_TOKENS) for one in (CONTEXT, FAR_CONTEXT)):
        text = [
            7919 * place % target.decoder.config.vocab_size
            for place in range(context + CHECKED_TOKENS)
        ]
        prompt, token_ids = text[:context], text[context:]
        alone = read_in_passes(target, prompt, token_ids, 1)
        for rows in range(2, found + 1):
            together = read_in_passes(target, prompt, token_ids, rows)
            if not torch.equal(alone[: len(together)], together):
                found = rows - 1
                break
    target.rollback(0)
    return found


def read_in_passes(
    target: CachedModel, prompt: Sequence[int], token_ids: Sequence[int], rows: int
) -> Tensor:
    """Logits of tokens behind a prompt, read in passes of so many rows with the cache that such passes have written.

    returns: (tokens, V); those of the last tokens are left out where they do not fill a pass
    """
    target.rollback(0)
    target.read(prompt)
    answers = []
    for begin in range(0, len(token_ids) - rows + 1, rows):
        first, *others = token_ids[begin : begin + rows]
        answers.append(target.forward(first, Proposal.chain(others)).logits)
        target.keep(range(len(others)))
    return torch.cat(answers)
