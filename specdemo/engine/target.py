"""A transformers model with a cache that can be rolled back: the target, and any draft model from a hub or folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.cache import RollbackCache
from specdemo.engine.tree import ancestor_mask, depths, is_chain
from specdemo.engine.types import Proposal, TargetOutput
from specdemo.errors import UserError

PREFILL_ROWS = 512


class CachedModel:
    """One conversation of a causal language model. The weights are shared; the cache is this object's own."""

    def __init__(self, model: Any, *, hidden: bool = False) -> None:
        check_rollback(model.config)
        self.model = model
        self.hidden = hidden
        self._cache = RollbackCache(model.config.get_text_config().num_hidden_layers)

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._cache.length

    @property
    def vocabulary_size(self) -> int:
        """V: columns of the logits."""
        return int(self.model.config.get_text_config().vocab_size)

    @torch.inference_mode()
    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Append tokens, in pieces. returns: (V,) logits that follow the last of them."""
        logits = torch.empty(0)
        for start in range(0, len(token_ids), PREFILL_ROWS):
            piece = token_ids[start : start + PREFILL_ROWS]
            logits = self._run(piece, range(-1, len(piece) - 1), rows=1).logits[0]
            self._cache.gather(range(len(piece)))
        return logits

    def rollback(self, length: int) -> None:
        """Forget every cached token from position `length` on."""
        self._cache.rollback(length)

    def forward(self, pending_id: int, proposal: Proposal) -> TargetOutput:
        """Answer the pending token and every drafted node in one pass; the cache does not count them yet.

        returns: logits (1 + N, V), row 0 answers the pending token, row 1 + i node i
        """
        parents = [-1, *(parent + 1 for parent in proposal.parents)]
        return self._run([pending_id, *proposal.token_ids], parents, rows=len(parents))

    @torch.inference_mode()
    def keep(self, path: Sequence[int]) -> None:
        """Commit the pending token and the nodes of `path` of the last `forward`; forget its other nodes."""
        self._cache.gather([0, *(node + 1 for node in path)])

    @torch.inference_mode()
    def _run(self, token_ids: Sequence[int], parents: Sequence[int], rows: int) -> TargetOutput:
        """One pass over nodes whose `parents` are indices into `token_ids`; logits of the last `rows` nodes."""
        device = self.model.device
        positions = torch.tensor(
            [[self.length + depth - 1 for depth in depths(parents)]], device=device
        )
        output = self.model(
            input_ids=torch.tensor([list(token_ids)], device=device),
            attention_mask=self._mask(parents),
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=rows,
            **({"output_hidden_states": True} if self.hidden else {}),
        )
        hidden = output.hidden_states[-1][0, -rows:] if self.hidden else None
        return TargetOutput(output.logits[0], hidden)

    def _mask(self, parents: Sequence[int]) -> Tensor | None:
        """Additive (1, 1, rows, length + rows) mask; None where plain causal attention is meant and faster."""
        if len(parents) == 1 or (self.length == 0 and is_chain(parents)):
            return None
        seen = torch.ones((len(parents), self.length + len(parents)), dtype=torch.bool)
        if is_chain(parents):
            seen = seen.tril_(diagonal=self.length)
        else:
            seen[:, self.length :] = ancestor_mask(parents)
        dtype = self.model.dtype
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        return mask[None, None].to(self.model.device)


def check_rollback(config: Any) -> None:
    """Raise UserError for a model whose memory cannot be rolled back token by token."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    window = (
        getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
    )
    sliding = "layer_types" not in vars(text) and bool(window)
    if kinds - {"full_attention"} or sliding or getattr(text, "num_hidden_layers", None) is None:
        names = ", ".join(sorted(kinds - {"full_attention"})) or "sliding-window attention"
        raise UserError(
            f"{config.model_type} uses {names}: what it has read cannot be rolled back, and speculative decoding needs that.",
            unharmed="The model that was loaded before is still there.",
            advice="Choose a model with full attention in every layer, such as Llama, SmolLM2 or Qwen.",
        )
