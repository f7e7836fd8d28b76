"""A language model for whole texts that reads only their new part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor
from torch.nn.functional import pad

from specdemo.engine.types import BlockModel, LanguageModel
from specdemo.kernels.plan import Chain, DraftPlan
from specdemo.trace.metrics import same_prefix


class PrefixReader:
    """Reads a text with a model, whose cache always contains a prefix of the latest text.

    So the last drafted token, which is never read, needs no special case when everything was accepted,
    and a follow-up prompt reads only its new part.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.cached_ids: list[int] = []

    def room(self, length: int, most: int) -> int:
        """Return how many tokens it can draft after a text of `length` tokens within its context, at most `most`."""
        context = self.model.context
        return most if context is None else max(0, min(most, context - length + 1))

    def logits_after(self, token_ids: Sequence[int]) -> Tensor:
        """returns: (W,) logits that follow a text of at least one token; reads at least its last one."""
        token_ids = list(token_ids)
        return self._read(token_ids, self._roll_back(token_ids, keep_last=False))

    def chain_after(self, token_ids: Sequence[int], plan: DraftPlan) -> Chain | None:
        """A chain after a text of at least one token; None where the model does not draft on its own."""
        token_ids = list(token_ids)
        new_ids = self._roll_back(token_ids, keep_last=False)
        chain = self.model.draft(new_ids, plan)
        if chain is not None:
            words = self.model.words
            drafted = [words.token(one) if words else one for one in chain.columns]
            self.cached_ids = token_ids + drafted[:-1]
        return chain

    def probs_after(self, token_ids: Sequence[int], width: int) -> Tensor:
        """Return the model's distribution after a text, at temperature 1: (width,) float32 on the CPU, of the first tokens."""
        logits = self.logits_after(token_ids)
        probs, words = logits.float().softmax(dim=-1).cpu(), self.model.words
        probs = words.widen(probs[None])[0] if words else probs
        return pad(probs[:width], (0, max(0, width - len(probs))))

    def logits_below(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Read nodes after the latest text; see `LanguageModel.grow`."""
        return self.model.grow(token_ids, parents)

    def follow(self, committed: Sequence[int]) -> None:
        """Start a step on this text. Drafted tokens stay cached; `FeatureReader` reads them again."""

    def prepare(self, token_ids: Sequence[int]) -> None:
        """Read a text ahead of time, so that the first question is cheap."""
        token_ids = list(token_ids)
        if new_ids := self._roll_back(token_ids, keep_last=True):
            self._read(token_ids, new_ids)

    def _read(self, token_ids: list[int], new_ids: list[int]) -> Tensor:
        """Read the rest of a text; if that breaks off, the chunks that were read stay."""
        try:
            return self.model.read(new_ids)
        finally:
            self.cached_ids = token_ids[: self.model.length]

    def _roll_back(self, token_ids: list[int], *, keep_last: bool) -> list[int]:
        """Drop the cached tokens after the common prefix with a text. returns: the rest of the text, to be read

        keep_last: whether the text's last token may stay in the cache
        """
        wanted = token_ids if keep_last else token_ids[:-1]
        shared = len(self.cached_ids)
        if self.cached_ids != wanted[:shared]:
            shared = same_prefix(self.cached_ids, wanted)
        self.model.rollback(shared)
        # The cache is a prefix of this text until it is read, also when reading breaks off.
        self.cached_ids = token_ids[:shared]
        return token_ids[shared:]


class FeatureReader(PrefixReader):
    """The same for a model that also reads the target's hidden states.

    Drafted tokens are read without these states; accepted ones are read again with them.
    """

    def __init__(self, model: BlockModel | LanguageModel) -> None:
        # A block model only serves `block_after`.
        super().__init__(cast("LanguageModel", model))
        self._known = 0

    def block_after(self, token_ids: Sequence[int]) -> Tensor:
        """Return the block after a text, from a model that guesses blocks: (depth, W) float32 logits."""
        token_ids = list(token_ids)
        new_ids = self._roll_back(token_ids, keep_last=False)
        model = cast("BlockModel", self.model)
        logits = model.guess(new_ids)
        self.cached_ids = token_ids
        return logits

    def follow(self, committed: Sequence[int]) -> None:
        """Drop the tokens that were read while drafting."""
        self.cached_ids = self.cached_ids[: self._known]
        self._known = len(committed)
