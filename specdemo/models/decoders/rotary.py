"""Rotary position embedding (RoFormer 2104.09864): angles, and tables that grow with the longest text so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from specdemo.models.decoders.form import Module

TABLE_POSITIONS = 1024  # positions by which the tables grow

ComputeTables = Callable[[int], tuple[Tensor, Tensor]]
"""Computes cosines and signed sines of so many positions, (..., length, 1, head_dim) each."""


def rotary_frequencies(
    head_dim: int, theta: float, device: torch.device | str | None = None
) -> Tensor:
    """Return the frequency of each pair of channels, (head_dim / 2,) float32."""
    exponents = torch.arange(0, head_dim, 2, device=device).float() / head_dim
    return theta**-exponents


def rotary_angles(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, (..., head_dim) float32 each; the second half of the channels repeats the first.

    positions: (...) of any integer type; frequencies: (head_dim / 2,)
    """
    angles = positions[..., None].float() * frequencies
    both = torch.cat([angles, angles], dim=-1)
    return both.cos(), both.sin()


def signed(sin: Tensor) -> Tensor:
    """Negate the first half of the channels, so that rotating is a roll, two products and a sum."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat([-first, second], dim=-1)


def frequency_tables(frequencies: Tensor, like: Tensor, scale: float = 1.0) -> ComputeTables:
    """Return a function for `RotaryTables`. like: a tensor of the dtype and device; scale: of cosines and sines"""

    def compute(length: int) -> tuple[Tensor, Tensor]:
        cos, sin = rotary_angles(torch.arange(length), frequencies)
        return (cos * scale)[:, None].to(like), (signed(sin) * scale)[:, None].to(like)

    return compute


def module_tables(model: Module, kinds: Sequence[str] = ("",)) -> ComputeTables:
    """Return a function for `RotaryTables` that uses the rotary embeddings of a transformers model.

    kinds: their names, "" for the only one; the tables have a first axis for them

    LongRoPE (2402.13753) has one set of frequencies for short texts and one for long ones. transformers takes that of the
    longest position in a pass and does not turn cached keys again; here each position has the set that it has
    when a text is read token by token, so that it does not depend on the pass.
    """

    def angles(kind: str, begin: int, end: int) -> tuple[Tensor, Tensor]:
        embedding = model.embed_tokens.weight
        positions = torch.arange(begin, end, device=embedding.device)[None]
        cos, sin = model.rotary_emb(embedding, positions, *([kind] if kind else []))
        return cos[0][:, None], signed(sin)[0][:, None]

    def compute(length: int) -> tuple[Tensor, Tensor]:
        rope = getattr(model.config, "rope_parameters", None) or {}
        short = rope.get("original_max_position_embeddings", length)
        bounds = [0, length]
        if rope.get("rope_type") == "longrope" and short < length:
            bounds.insert(1, short)
        with torch.inference_mode():
            parts = [
                [
                    torch.cat(one)
                    for one in zip(*[angles(kind, *pair) for pair in pairwise(bounds)], strict=True)
                ]
                for kind in kinds
            ]
            cos, sin = (torch.stack(one) for one in zip(*parts, strict=True))
            return cos, sin

    return compute


class RotaryTables:
    """Cosines and signed sines of each position. They do not depend on the text, so all conversations share them."""

    def __init__(self, compute: ComputeTables) -> None:
        self._compute = compute
        self._tables, self._length = compute(TABLE_POSITIONS), TABLE_POSITIONS
        self._full: tuple[Tensor, Tensor] | None = None  # computed at first use

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of at least `length` positions, (..., positions, 1, head_dim) each."""
        if length > self._length:
            self._length = -(-length // TABLE_POSITIONS) * TABLE_POSITIONS
            self._tables, self._full = self._compute(self._length), None
        return self._tables

    def at(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of some positions, (positions, 1, head_dim) each."""
        cos, sin = self.tables(max(positions) + 1)
        index = torch.tensor(positions, device=cos.device)
        return cos[index], sin[index]

    def full(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines as (..., positions, head_dim) float32."""
        tables = self.tables(length)
        if self._full is None:
            cos, sin = (table[..., 0, :].float().contiguous() for table in tables)
            self._full = cos, sin
        return self._full
