"""The compiled pass as a decoder: one compiled function computes the rows of several conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.module_decoder import chunk_of
from specdemo.engine.passes import ForwardInput, ForwardOutput
from specdemo.kernels.packing import Packed
from specdemo.kernels.runtime import CompiledLayers, Rows, SequenceRows


class CompiledDecoder:
    """Implements `Decoder`. A row's result is the same, bit for bit, in any pass and next to any other rows.

    tables: cosines and signed sines of at least so many positions, (positions, head_dim) float32 each
    """

    def __init__(
        self,
        config: Any,
        layers: CompiledLayers,
        embedding: Tensor,
        norm: Callable[[Tensor], Tensor],
        tables: Callable[[int], tuple[Tensor, Tensor]],
    ) -> None:
        self.config, self.chunk = config, chunk_of(config, embedding.device)
        self._layers, self._embedding, self._norm, self._tables = layers, embedding, norm, tables

    @property
    def head(self) -> Packed:
        """The output head as it is read."""
        return self._layers.head

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        """Compute passes of different conversations in one call; their `depth` must be the same."""
        depth = passes[0].depth
        last = self.config.num_hidden_layers
        embedded = self._embedding[[token for one in passes for token in one.token_ids]]
        cos, sin = self._tables(max(max(one.positions) for one in passes) + 1)
        sequences = [
            SequenceRows(one.positions, one.cache, one.seen, one.answers if depth is None else 0)
            for one in passes
        ]
        wanted = {layer for one in passes for layer in one.reads}
        inner = {layer: torch.empty_like(embedded) for layer in wanted if 0 < layer < last}
        rows = Rows(embedded.float(), cos, sin, sequences)
        final = depth is not None or last in wanted
        found = self._layers.run(rows, 0, depth, states=inner, final=final)
        counts = [len(one.token_ids) for one in passes]
        if depth is not None:
            assert found.final is not None
            parts = found.final.to(embedded.dtype).split(counts)
            return [ForwardOutput(torch.empty(0), (part,)) for part in parts]
        states = {0: embedded} | inner
        if found.final is not None:
            states[last] = self._norm(found.final.to(embedded.dtype))
        by_layer = {layer: states[layer].split(counts) for layer in wanted}
        return [
            ForwardOutput(logits, tuple(by_layer[layer][number] for layer in one.reads))
            for number, (one, logits) in enumerate(zip(passes, found.logits, strict=True))
        ]
