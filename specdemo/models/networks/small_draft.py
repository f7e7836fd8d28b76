"""A draft model of transformers with a smaller output head: fewer bits, or only the words that the target's own answers use.

Of a small model on a graphics card the head is half of what a step reads. Any head is lossless: the target judges what is
drafted. A word that the head has not cannot be drafted, so the list comes from the target's answers (FR-Spec 2502.14856).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdemo.config.errors import UserError
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.engine.target import CachedModel
from specdemo.models.decoders.small_heads import with_head

if TYPE_CHECKING:
    from specdemo.engine.forward import Decoder
    from specdemo.models.loading import LoadedModel

BLOCK = 32  # rows of a head that are laid out together


class ReducedModel(CachedModel):
    """One conversation of a model whose logits are of some words only."""

    def __init__(self, decoder: Decoder, words: ReducedVocabulary) -> None:
        super().__init__(decoder)
        self.words = words


def smaller(
    draft: LoadedModel, bits: str, most: int, answers: np.ndarray | None, vocabulary_size: int
) -> tuple[LoadedModel, ReducedVocabulary | None]:
    """A draft with the head that is asked for, and the words it can draft; None means all. Raises UserError.

    bits: 16, 8 or 4; "auto" leaves the head as it is, or takes 16 for some words
    most: words, 0 for all; answers: (n,) token ids that the target has written, ids beyond its vocabulary are no words
    vocabulary_size: of the target
    """
    word_ids = None
    if most:
        word_ids = common_words(answers, most, min(vocabulary_size, draft.vocabulary_size))
    if word_ids is None and bits == "auto":
        return draft, None
    number = 16 if bits == "auto" else int(bits)
    decoder = with_head(draft.decoder, draft.model, number, word_ids)
    about = f"{number}-bit head" if word_ids is None else f"{number}-bit head of {len(word_ids):,} words"  # fmt: skip
    info = replace(draft.info, kernel=f"{draft.info.kernel}, {about}")
    words = ReducedVocabulary(torch.tensor(word_ids), vocabulary_size) if word_ids else None
    return replace(draft, decoder=decoder, info=info), words


def common_words(answers: np.ndarray | None, most: int, size: int) -> list[int]:
    """The most frequent tokens of the answers, in ascending order, as many as fill whole blocks.

    answers: (n,) token ids; most: tokens; size: of the vocabulary
    Raises UserError if there are too few.
    """
    counts = np.zeros(0, np.int64)
    if answers is not None:
        counts = np.bincount(answers[answers < size].astype(np.int64), minlength=1)
    known = min(most, int((counts > 0).sum())) // BLOCK * BLOCK
    if not known:
        raise UserError("model.no_answers")
    found: list[int] = np.sort(counts.argsort(kind="stable")[::-1][:known]).tolist()
    return found
