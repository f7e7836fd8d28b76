"""A small language model drafts a chain (Leviathan 2211.17192, Chen 2302.01318)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.drafters.lookahead import Lookahead
from specdemo.engine.sampling import Shaper, draw
from specdemo.engine.types import LanguageModel, Outcome, Proposal


class DraftModel:
    """Drafts token by token with a model of its own, shaped exactly as the target is.

    Its cache is always some prefix of what is committed; `propose` first reads what is missing. So the
    last drafted token, which is never read, needs no special case when everything was accepted.
    """

    def __init__(self, model: LanguageModel, lookahead: Lookahead, shaper: Shaper, vocabulary_size: int) -> None:
        self.model = model
        self.lookahead = lookahead
        self.shaper = shaper
        self.vocabulary_size = vocabulary_size
        self._cached: list[int] = []
        self._generator = torch.Generator().manual_seed(shaper.sampling.seed + 1)

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Read the prompt but for its last token; what an earlier run left in the cache is forgotten."""
        self.model.rollback(0)
        self._cached = []
        self._generator.manual_seed(self.shaper.sampling.seed + 1)
        if len(prompt_ids) > 1:
            self._read(prompt_ids[:-1])

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Draft a chain until the policy or the budget says stop."""
        allowed = min(budget, self.lookahead.allowed())
        reason = self.lookahead.reason
        ids: list[int] = []
        rows: list[Tensor] = []
        confidences: list[float] = []
        if allowed:
            self._forget_after(committed)
            logits = self._read(committed[len(self._cached) :])
        while len(ids) < allowed:
            probs = self._probs(logits, committed, ids)
            token_id = int(probs.argmax()) if self.shaper.sampling.greedy else draw(probs, self._generator)
            ids.append(token_id)
            confidences.append(float(probs[token_id]))
            rows.append(probs)
            if len(ids) == allowed or not self.lookahead.go_on(confidences[-1]):
                break
            logits = self._read([token_id])
        drawn = torch.stack(rows) if rows and not self.shaper.sampling.greedy else None
        return Proposal.chain(
            ids, draft_probs=drawn, confidences=tuple(confidences), lookahead=allowed, reason=reason
        )

    def observe(self, outcome: Outcome) -> None:
        """Tell the policy; the cache catches up at the next proposal."""
        self.lookahead.observe(outcome)

    def _probs(self, logits: Tensor, committed: Sequence[int], ids: Sequence[int]) -> Tensor:
        """The distribution that the next draft is drawn from: (V,) float32, as wide as the target's."""
        probs = self.shaper.probs(self._fit(logits)[None], committed, [ids])[0]
        return probs.cpu()

    def _fit(self, logits: Tensor) -> Tensor:
        """Cut or pad padded vocabularies to the target's width (Qwen: 151936 and 152064)."""
        missing = self.vocabulary_size - logits.shape[-1]
        if missing <= 0:
            return logits[: self.vocabulary_size]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)

    def _read(self, token_ids: Sequence[int]) -> Tensor:
        logits = self.model.read(token_ids)
        self._cached += token_ids
        return logits

    def _forget_after(self, committed: Sequence[int]) -> None:
        """Roll the cache back to the longest prefix that it shares with `committed[:-1]`."""
        shared = 0
        limit = min(len(self._cached), len(committed) - 1)
        while shared < limit and self._cached[shared] == committed[shared]:
            shared += 1
        del self._cached[shared:]
        self.model.rollback(shared)
