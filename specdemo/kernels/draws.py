"""Distributions of one token for Python: shaped in compiled code, and drawn from in it.

A function returns None if this process has not loaded the compiled pass, which takes seconds, or if compiled code takes
no such row: then Python does the same itself.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

import torch
from torch import Tensor

from specdemo.kernels.job import address

WIDTH = 16  # float32 that compiled code shapes at a time


def compiled(name: str) -> Any:
    """Function of `rows`, for ctypes; None if it is not loaded."""
    found = getattr(sys.modules.get("specdemo.kernels.rows"), name, None)
    return found.ctypes if found else None


def shaped(
    logits: Tensor,
    penalty: float,
    penalised: array[int],
    temperature: float,
    top_k: int,
    top_p: float,
) -> Tensor | None:
    """Shape a row of logits on the CPU as `rows.shape_row` does; None for a width that is no multiple of 16.

    logits: (V,); if they are float32 and contiguous, the result is written over them
    penalty: of the columns in `penalised`, int64; the rest as in `DraftPlan`. returns: probabilities, (V,) float32
    """
    shape, width = compiled("shape_row_at"), logits.shape[0]
    if shape is None or width % WIDTH:
        return None
    row, (marked, count) = logits.float().contiguous(), penalised.buffer_info()
    shape(row.data_ptr(), width, penalty, marked, count, 1 / temperature, top_k, top_p)
    return row


def winner(probs: Tensor, key: int, word_ids: Tensor | None) -> int | None:
    """Return the column that is drawn with a position's noise, see `sampling.Tickets`.

    probs: (W,) float32, contiguous; word_ids: (W,) int64, contiguous; None for all tokens
    """
    draw = compiled("winner_at")
    found: int | None = draw and draw(probs.data_ptr(), probs.shape[0], key, address(word_ids))
    return found


def drawn(probs: Tensor, uniform: float) -> int | None:
    """Return the column that a number from 0 to 1 falls on, see `sampling.draw_at`. probs: (W,), contiguous"""
    draw = compiled("drawn_at") if probs.dtype == torch.float32 else None
    found: int | None = draw and draw(probs.data_ptr(), probs.shape[0], uniform)
    return found


def residual_of(
    left: Tensor, drawn_from: Tensor, word_ids: Tensor | None, scale: float
) -> tuple[Tensor, float] | None:
    """Return the residual distribution and its sum, see `sampling.residual_of`. All are contiguous."""
    take = compiled("residual_at") if left.dtype == drawn_from.dtype == torch.float32 else None
    if take is None:
        return None
    into, words = torch.empty_like(left), drawn_from.shape[0]
    had, taken = left.data_ptr(), drawn_from.data_ptr()
    return into, take(had, left.shape[0], scale, taken, address(word_ids), words, into.data_ptr())
