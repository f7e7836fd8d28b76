"""A layer for multi-token prediction (DeepSeek-V3 2412.19437): one more layer of the target behind its last.

It reads what the target knew of a token together with the token after it. "sat" is pending:

    token        cat   sat
    state of     the   cat      of the target, behind its last norm; its own state where that has not read so far
    says         sat   on
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.module_decoder import additive, finish
from specdemo.engine.passes import ForwardOutput
from specdemo.models.networks.chain import CompactDecoder, CompactWeights, DraftInput

Fuse = Callable[[Tensor, Tensor], Tensor]
"""Embeddings and states, (rows, H) each, as what goes into the layer: (rows, H)."""


class MtpDecoder(CompactDecoder):
    """Implements `Decoder`, one conversation after the other.

    weights: embedding and head, without layers; what goes into the head is what the layer gives
    block: a transformers model of that one layer and the norm behind it, without head
    """

    def __init__(self, weights: CompactWeights, fuse: Fuse, block: Any) -> None:
        super().__init__(weights, compiled=False)
        self.config = SimpleNamespace(num_hidden_layers=1, vocab_size=len(weights.embedding))
        self.fuse, self.block = fuse, block

    def normed(self, final: Tensor) -> Tensor:
        """What goes into the head: it is behind the norm already."""
        return final

    def _run_torch(self, inputs: Sequence[DraftInput], x: Tensor) -> list[ForwardOutput]:
        rows = self.fuse(x, self._states(inputs, x)).split([len(one.token_ids) for one in inputs])
        finals = [self._final(one, part) for one, part in zip(inputs, rows, strict=True)]
        finish(x.device)
        return [
            ForwardOutput(self._logits(one, final), (final,))
            for one, final in zip(inputs, finals, strict=True)
        ]

    def _final(self, one: DraftInput, rows: Tensor) -> Tensor:
        """(answers, H): what the layer gives."""
        assert one.seen is not None
        output = self.block(
            inputs_embeds=rows[None],
            position_ids=torch.tensor([list(one.positions)], device=rows.device),
            attention_mask=additive(one.seen, rows.dtype, rows.device),
            past_key_values=one.cache,
            use_cache=True,
        )
        final: Tensor = output.last_hidden_state[0, -one.answers :]
        return final
