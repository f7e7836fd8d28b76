"""gemlite's 4-bit kernels (Triton) for NF4 matrices on a CUDA card: optional, and used only where `models.ways` finds them faster.

They read whole numbers from 0 to 15 on an even grid, with a scale and a zero point for each group of inputs; the 16 values of NF4
are not even. So the weights that are loaded are quantised a second time: by this way a target is another model than in NF4, off by
about a tenth of each matrix, and its greedy texts part from NF4's sooner or later. Within it nothing else changes: short passes go
through the kernel, longer ones multiply with the very numbers that the kernel reads.

The kernel adds parts of a row up in any order. They are added in float32, so that only the last bits can differ.
"""

from __future__ import annotations

import copy
import json
from ast import literal_eval
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdemo.models.decoders.choose import agrees
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import Nf4Joined, Stacked

KERNEL = "GEMV_REVSPLITK"  # gemlite's for few rows: each row for itself, and, unlike the next one, within bounds for any size
MOST_ROWS = 8  # that go through it
MULTIPLE = 32  # of inputs and outputs that gemlite takes
LEVELS = 15  # steps of the grid
CODES = 8  # in a number of 32 bits


def version() -> str:
    """Version of the installed gemlite; empty where there is none. gemlite is not imported: it cannot be without a card."""
    try:
        return metadata.version("gemlite")
    except metadata.PackageNotFoundError:
        return ""


def on_grid(weight: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix as whole numbers: (code - zero) * scale is nearly the weight, and a weight of 0 stays 0.

    weight: (out, in); group: inputs that share a scale and a zero point
    returns: codes (out, in) uint8 up to LEVELS; scales and zeros, (out, in / group) in the weight's dtype, zeros whole numbers
    """
    grouped = weight.float().view(len(weight), -1, group)
    low, high = grouped.amin(dim=2).clamp(max=0), grouped.amax(dim=2).clamp(min=0)
    scales = ((high - low) / LEVELS).to(weight.dtype)
    steps = torch.where(scales > 0, scales.float(), 1.0)
    zeros = (-low / steps).round_().clamp_(0, LEVELS)
    codes = (grouped / steps[..., None]).round_().add_(zeros[..., None]).clamp_(0, LEVELS)
    return codes.to(torch.uint8).view(weight.shape), scales, zeros.to(weight.dtype)


class GridProduct:
    """(rows, in) to (rows, out) with weights on the grid.

    kernel: whether passes of few rows go through gemlite; without it all rows go the way of long passes
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, group: int, *, kernel: bool) -> None:
        """weight: (out, in) float16 or bfloat16. Raises ValueError for a size that gemlite does not take."""
        if any(size % MULTIPLE for size in weight.shape):
            raise ValueError(f"A matrix of {len(weight)} x {weight.shape[1]} has no such kernel.")
        self._bias = bias
        codes, self._scales, self._zeros = on_grid(weight, group)
        self._layer = _layer(codes, self._scales, self._zeros) if kernel else None
        self._words = self._layer.W_q.data if self._layer else words_of(codes)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in). returns: (rows, out)"""
        if self._layer is None or len(x) > MOST_ROWS:
            return F.linear(x, self.weight(), self._bias)
        product: Tensor = self._layer.forward_manual(x, KERNEL)
        return (product if self._bias is None else product + self._bias).to(x.dtype)

    @property
    def in_features(self) -> int:
        """Numbers that a row has."""
        return CODES * len(self._words)

    def weight(self) -> Tensor:
        """(out, in), as the kernel computes it from codes, scales and zero points."""
        codes = ((self._words[:, None] >> _shifts(self._words)) & LEVELS).flatten(0, 1).t()
        grouped = codes.to(self._scales.dtype).reshape(*self._scales.shape, -1)
        return ((grouped - self._zeros[..., None]) * self._scales[..., None]).flatten(1)


def words_of(codes: Tensor) -> Tensor:
    """Codes as gemlite lays them out: eight inputs of an output in one number. codes: (out, in). returns: (in / 8, out) int32"""
    inputs = codes.t().reshape(-1, CODES, len(codes)).int() << _shifts(codes)
    words = inputs[:, 0]
    for number in range(1, CODES):
        words = words | inputs[:, number]
    return words


def _shifts(like: Tensor) -> Tensor:
    """Bits by which each of eight codes is shifted: (8, 1)."""
    return 4 * torch.arange(CODES, dtype=torch.int32, device=like.device)[:, None]


def _layer(codes: Tensor, scales: Tensor, zeros: Tensor) -> Any:
    """gemlite's layer, which answers in float32. codes, scales, zeros: as of `on_grid`"""
    from gemlite import DType, GemLiteLinear

    number = DType.FP16 if scales.dtype == torch.float16 else DType.BF16
    out_features, in_features = codes.shape
    layer = GemLiteLinear(
        4, group_size=in_features // scales.shape[1], in_features=in_features,
        out_features=out_features, input_dtype=number, output_dtype=DType.FP32, acc_dtype=DType.FP32,
    )  # fmt: skip
    # Without fma_mode the kernel computes (code - zero) * scale, rounded once.
    return layer.pack(codes, scales, zeros, None, fma_mode=False)


def on_gemlite(standing: GraphDecoder, tuning: Path) -> GraphDecoder:
    """The same model with its matrices on the grid, in graphs of its own. Raises ValueError where the kernels do not fit.

    It takes as much memory again as the matrices in NF4, which stay. tuning: file in which it is kept how the kernels run best on this card
    """
    if not all(isinstance(one, Nf4Joined) for layer in standing.lean.layers for one in layer.matrices()):  # fmt: skip
        raise ValueError("Its matrices are not all in NF4.")
    import gemlite

    if tuning.is_file():
        gemlite.load_config(str(tuning))
    decoder = standing.with_lean(regridded(standing.lean, kernel=True))
    tune(decoder.lean, tuning)
    if not agrees(decoder, regridded(standing.lean, kernel=False)):
        raise ValueError("Its kernels do not compute what its weights say.")
    return decoder


def regridded(lean: LeanDecoder, *, kernel: bool) -> LeanDecoder:
    """The same pass with all matrices on the grid. kernel: see `GridProduct`"""

    def product(joined: Stacked) -> GridProduct:
        assert isinstance(joined, Nf4Joined)
        return GridProduct(joined.dequantised(), joined.bias, joined.block, kernel=kernel)

    other = copy.copy(lean)
    other.layers = [
        replace(
            layer,
            qkv=product(layer.qkv),
            output=product(layer.output),
            gate_up=product(layer.gate_up),
            down=product(layer.down),
        )
        for layer in lean.layers
    ]
    return other


def tune(lean: LeanDecoder, file: Path) -> None:
    """Try the kernel's variants once for each shape, with one row, and take the same for more rows; kept in a file.

    So a row is added up in the same parts in any pass, and tuning takes no longer than it must.
    """
    import gemlite

    for one in lean.layers[0].matrices():
        assert isinstance(one, GridProduct)
        one(lean.embedding.new_zeros(1, one.in_features))
    file.parent.mkdir(parents=True, exist_ok=True)
    gemlite.cache_config(str(file))
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    variants = found[KERNEL]
    for key in list(variants):
        rows, *shape = literal_eval(key)
        if rows == 1:
            for more in (2, 4, MOST_ROWS):  # gemlite looks up the next power of two
                variants[str((more, *shape))] = variants[key]
    file.write_text(json.dumps(found), encoding="utf-8")
    gemlite.load_config(str(file))
