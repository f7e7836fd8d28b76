"""Quantise to NF4 (QLoRA, Dettmers 2305.14314) with the same bits as bitsandbytes on a CPU, several times faster."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 64  # weights that share a scale
AT_ONCE = 1 << 17  # weights whose numbers stay in the processor's own memory
Numbers = np.ndarray[Any, Any]


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes, two in a byte, and the scale of each block of 64 weights. Runs in the calling thread alone.

    weight: any shape; returns: ((n + 1) // 2, 1) uint8, and (blocks,) float32, as `quantize_4bit` does
    """
    from bitsandbytes.functional import quantize_4bit

    flat = weight.reshape(-1)
    whole = len(flat) // BLOCK * BLOCK
    codes = np.empty(whole // 2, dtype=np.uint8)
    scales = np.empty(whole // BLOCK, dtype=np.float32)
    for first in range(0, whole, AT_ONCE):
        part = slice(first, min(first + AT_ONCE, whole))
        blocks = flat[part].float().numpy().reshape(-1, BLOCK)
        found = codes[part.start // 2 : part.stop // 2]
        _blocks(blocks, found, scales[part.start // BLOCK : part.stop // BLOCK])
    parts = [(torch.from_numpy(codes)[:, None], torch.from_numpy(scales))]
    if whole < len(flat):
        code, state = quantize_4bit(flat[whole:], blocksize=BLOCK, quant_type="nf4")
        parts.append((code, state.absmax))
    return torch.cat([code for code, _ in parts]), torch.cat([scale for _, scale in parts])


def state_of(scales: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Return bitsandbytes' description of quantised weights. scales: (blocks,) float32; dtype: of the weights before"""
    from bitsandbytes.functional import QuantState, get_4bit_type

    return QuantState(
        scales, shape=torch.Size(shape), code=get_4bit_type("nf4", "cpu"),
        blocksize=BLOCK, quant_type="nf4", dtype=dtype,
    )  # fmt: skip


@cache
def _bounds() -> Numbers:
    """Return the bounds between codes: the means of neighbouring code values. (15,) float32"""
    from bitsandbytes.functional import get_4bit_type

    code = get_4bit_type("nf4", "cpu")
    found: Numbers = ((code[:-1] + code[1:]) / 2).numpy()
    return found


def _blocks(blocks: Numbers, codes: Numbers, scales: Numbers) -> None:
    """Fill in codes and scales. A code is the number of bounds below its weight; counting is faster than searching."""
    np.abs(blocks).max(axis=1, out=scales)
    scaled = blocks * (np.float32(1) / np.maximum(scales, np.float32(1e-38)))[:, None]
    counted = np.zeros(scaled.shape, dtype=np.uint8)
    above = np.empty(scaled.shape, dtype=np.bool_)
    for bound in _bounds():
        np.greater(scaled, bound, out=above)
        counted += above.view(np.uint8)
    pairs = counted.reshape(-1).view("<u2")  # the first of two in the lower byte
    np.bitwise_or(pairs << 4, pairs >> 8, out=codes, casting="unsafe")
