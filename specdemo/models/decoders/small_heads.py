"""An output head in 8 or 4 bits, of all words or of some, for passes that torch computes: on a graphics card, and the lean pass.

The compiled pass has its own, see `heads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.engine.forward import Decoder
from specdemo.models.decoders.compiled import CompiledDecoder
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.models.decoders.heads import head_matrix
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import pack
from specdemo.models.decoders.packed import coding_of

GROUP = 64  # weights of a 4-bit head that share a scale
SLICE = 8192  # rows that are made at a time


class SmallHead:
    """(rows, H) to (rows, W) in fewer bits: whole numbers with a scale for each word in 8, NF4 (Dettmers 2305.14314) in 4.

    Each row is summed up by itself in both, so that a row's answer does not depend on the others' as far as the kernels allow.
    """

    def __init__(self, weight: Tensor, bits: int) -> None:
        """weight: (W, H), H a multiple of GROUP for 4 bits"""
        self.bits, self._shape, self._dtype = bits, weight.shape, weight.dtype
        if bits == 8:
            parts = [_whole_numbers(rows) for rows in weight.detach().split(SLICE)]
            self._codes, self._scales = (torch.cat(kind) for kind in zip(*parts, strict=True))
        else:
            from bitsandbytes.functional import quantize_4bit

            self._codes, self._state = quantize_4bit(
                weight.detach().contiguous(), blocksize=GROUP, quant_type="nf4"
            )
            self._scales = self._state.absmax

    @property
    def nbytes(self) -> int:
        """Of all that a pass reads."""
        return int(self._codes.nbytes + self._scales.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, H). returns: (rows, W)"""
        product: Tensor
        if self.bits == 8:
            product = torch._weight_int8pack_mm(x.contiguous(), self._codes, self._scales)
        else:
            from bitsandbytes import matmul_4bit  # type: ignore[attr-defined]

            product = matmul_4bit(x, self._codes, self._state)
        return product


def _whole_numbers(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as int8, and a scale for each in the rows' dtype."""
    scales = (rows.float().abs().amax(dim=1) / 127).clamp(min=1e-12).to(rows.dtype)
    codes = (rows.float() / scales.float()[:, None]).round_().clamp_(-127, 127)
    return codes.to(torch.int8), scales


def with_head(
    decoder: Decoder, model: Any, bits: int, word_ids: Sequence[int] | None = None
) -> Decoder:
    """The same layers with a head of so many bits. Raises UserError for transformers' own pass, whose head is the module's.

    model: transformers' module, whose head is in 16 bits
    word_ids: tokens that it can say, in whole blocks of 32; None for all
    """
    weight = model.get_output_embeddings().weight
    if word_ids is not None:
        weight = weight[torch.as_tensor(word_ids, device=weight.device)]
    if isinstance(decoder, CompiledDecoder):
        return decoder.with_head(head_matrix(weight, bits, coding_of(model)))
    if isinstance(decoder, (LeanDecoder, GraphDecoder)):
        return decoder.with_head(pack(weight) if bits == 16 else SmallHead(weight, bits))
    raise UserError("model.small_heads")
