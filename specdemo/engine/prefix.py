"""A language model that is asked about whole texts and reads only what it has not read yet."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import pad

from specdemo.engine.draft_plan import Chain, DraftPlan
from specdemo.engine.types import DraftsOn, LanguageModel


class PrefixReader:
    """Keeps a model's cache a prefix of the text it is asked about.

    So the last drafted token, which is never read, needs no special case when everything was accepted,
    and a follow-up prompt reads only its new part.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.cached_ids: list[int] = []

    def logits_after(self, token_ids: Sequence[int]) -> Tensor:
        """returns: (W,) logits that follow a text of at least one token; reads at least its last one."""
        token_ids = list(token_ids)
        shared = self._shared(token_ids[:-1])
        self.model.rollback(shared)
        logits = self.model.read(token_ids[shared:])
        self.cached_ids = token_ids
        return logits

    def draft_on(self, token_ids: Sequence[int], guide: DraftPlan) -> Chain | None:
        """A chain after a text of at least one token; None where the model does not draft on its own."""
        if not isinstance(self.model, DraftsOn):
            return None
        token_ids = list(token_ids)
        shared = self._shared(token_ids[:-1])
        self.model.rollback(shared)
        self.cached_ids = token_ids[:shared]
        chain = self.model.draft_on(token_ids[shared:], guide)
        if chain is not None:
            words = self.model.words
            drafted = [words.token(one) if words else one for one in chain.columns]
            self.cached_ids = token_ids + drafted[:-1]
        return chain

    def probs_after(self, token_ids: Sequence[int], width: int) -> Tensor:
        """What the model says after a text, at temperature 1: (width,) float32 on the CPU, over the first tokens."""
        probs, words = self.logits_after(token_ids).float().softmax(dim=-1).cpu(), self.model.words
        probs = words.widen(probs[None])[0] if words else probs
        return pad(probs[:width], (0, max(0, width - len(probs))))

    def grow(self, token_ids: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Nodes on the text that was asked about last; see `LanguageModel.grow`."""
        return self.model.grow(token_ids, parents)

    def follow(self, committed: Sequence[int]) -> None:
        """A step begins on this text. A model's own words stay read; see `FeatureReader` for one that reads them anew."""

    def prepare(self, token_ids: Sequence[int]) -> None:
        """Read a text ahead of time, so that the first question is cheap."""
        token_ids = list(token_ids)
        shared = self._shared(token_ids)
        self.model.rollback(shared)
        if shared < len(token_ids):
            self.model.read(token_ids[shared:])
        self.cached_ids = token_ids

    def _shared(self, token_ids: list[int]) -> int:
        """Length of the longest common prefix of the cache and a text."""
        if self.cached_ids == token_ids[: len(self.cached_ids)]:
            return len(self.cached_ids)
        pairs = zip(self.cached_ids, token_ids, strict=False)
        return next(
            (place for place, (cached, wanted) in enumerate(pairs) if cached != wanted),
            min(len(self.cached_ids), len(token_ids)),
        )


class FeatureReader(PrefixReader):
    """The same for a model that knows more of a text once the target has read it.

    Drafted tokens were read without the target's states; those that were kept are read again with them.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self._known = 0

    def guess_after(self, token_ids: Sequence[int]) -> Tensor:
        """What a model that guesses blocks expects after a text. returns: (depth, W) float32 logits"""
        token_ids = list(token_ids)
        shared = self._shared(token_ids[:-1])
        self.model.rollback(shared)
        words = self.model.guess(token_ids[shared:])
        self.cached_ids = token_ids
        return words

    def follow(self, committed: Sequence[int]) -> None:
        """Forget what was read while drafting."""
        self.cached_ids = self.cached_ids[: self._known]
        self._known = len(committed)
