"""A small language model drafts a chain (Leviathan 2211.17192, Chen 2302.01318)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.drafters.lookahead import Lookahead
from specdemo.engine.prefix import PrefixReader
from specdemo.engine.sampling import Shaper, draw
from specdemo.engine.types import Outcome, Proposal


class DraftModel:
    """Drafts token by token with a model of its own, shaped exactly as the target is."""

    def __init__(
        self, reader: PrefixReader, lookahead: Lookahead, shaper: Shaper, vocabulary_size: int
    ) -> None:
        self.reader = reader
        self.lookahead = lookahead
        self.shaper = shaper
        self.vocabulary_size = vocabulary_size
        self._generator = torch.Generator()

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Read the prompt but for its last token."""
        # The drafter's draws must not be those of the verifier, which counts from the seed itself.
        self._generator.manual_seed(self.shaper.sampling.seed + 1_000_003)
        self.reader.prepare(prompt_ids[:-1])

    def propose(self, committed: Sequence[int], budget: int) -> Proposal:
        """Draft a chain until the policy or the budget says stop."""
        allowed = min(budget, self.lookahead.allowed())
        reason = self.lookahead.reason
        text = list(committed)
        rows: list[Tensor] = []
        confidences: list[float] = []
        while len(rows) < allowed:
            probs = self._probs(text, committed)
            token_id = (
                int(probs.argmax()) if self.shaper.sampling.greedy else draw(probs, self._generator)
            )
            text.append(token_id)
            rows.append(probs)
            confidences.append(float(probs[token_id]))
            if not self.lookahead.go_on(confidences[-1]):
                break
        drawn = torch.stack(rows) if rows and not self.shaper.sampling.greedy else None
        return Proposal.chain(
            text[len(committed) :],
            draft_probs=drawn,
            confidences=tuple(confidences),
            lookahead=allowed,
            reason=reason,
        )

    def observe(self, outcome: Outcome) -> None:
        """Tell the policy; the cache catches up at the next proposal."""
        self.lookahead.observe(outcome)

    def _probs(self, text: Sequence[int], committed: Sequence[int]) -> Tensor:
        """The distribution that the next draft is drawn from: (V,) float32, as wide as the target's."""
        logits = self._fit(self.reader.logits_after(text))
        return self.shaper.probs(logits[None], committed, [text[len(committed) :]])[0].cpu()

    def _fit(self, logits: Tensor) -> Tensor:
        """Cut or pad padded vocabularies to the target's width (Qwen: 151936 and 152064)."""
        missing = self.vocabulary_size - logits.shape[-1]
        if missing <= 0:
            return logits[: self.vocabulary_size]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
