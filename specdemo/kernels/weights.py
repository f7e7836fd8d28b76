"""The weights of a stack of layers as the compiled pass takes them, and the sizes that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specdemo.kernels.packing import BLOCK, Packed


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; norms float32."""

    input_norm: Tensor
    post_norm: Tensor
    qkv: Packed
    output: Packed
    gate_up: Packed
    down: Packed
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None

    def write(self, record: Any) -> None:
        """Fill its record, see `job.LAYER`."""
        record.input_norm, record.post_norm = self.input_norm.data_ptr(), self.post_norm.data_ptr()
        for name in ("qkv", "output", "gate_up", "down"):
            write_matrix(getattr(record, name), getattr(self, name))
        record.qkv_bias = address(self.qkv.bias)
        record.query_norm, record.key_norm = address(self.query_norm), address(self.key_norm)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a stack of layers.

    inner: width between gate and down; group: inputs that share a scale; epsilon: of the norms; scale: of attention scores
    """

    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    inner: int
    group: int
    epsilon: float
    scale: float


def fits(shape: Shape, columns: int = BLOCK) -> bool:
    """Whether the compiled pass takes layers of these sizes, and a head of so many columns."""
    attended = shape.heads * shape.head_dim
    inputs = (shape.hidden, shape.inner, attended)
    outputs = (shape.hidden, shape.inner, attended + 2 * shape.kv_heads * shape.head_dim, columns)
    return (
        shape.head_dim in (64, 128)
        and shape.group in (32, 64)
        and all(size % 64 == 0 for size in inputs)
        and all(size % BLOCK == 0 for size in outputs)
    )


def write_matrix(record: Any, matrix: Packed) -> None:
    """Fill a matrix's record, see `job.MATRIX`."""
    record.codes = matrix.codes.data_ptr()
    record.scales, record.zeros = address(matrix.scales), address(matrix.zeros)
    record.bits = matrix.bits


def address(tensor: Tensor | None) -> int:
    """Where a tensor's values lie; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()
