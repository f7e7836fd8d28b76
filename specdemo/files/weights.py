"""Read a model's stored weights, one matrix at a time and a few rows at a time, from GGUF and safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specdemo.files.folder import read_header, weight_files

if TYPE_CHECKING:
    from torch import Tensor

AT_ONCE = 1 << 21  # weights that are unpacked in one step
ROWS = 64  # the rows of one read are a multiple of it, so that blocks of 64 weights stay whole
# GGUF architectures whose tensors differ from transformers' only by name and order
ARCHITECTURES = ("llama", "qwen2", "qwen3", "smollm3")
PERMUTED = ("llama", "smollm3")  # architectures whose rows of queries and keys llama.cpp reorders


class NotReadable(Exception):
    """The weights need more than reading: another architecture, or other tensors than the model's."""


@dataclass(frozen=True, slots=True)
class GgufWeight:
    """A tensor of a GGUF file.

    shape: as in torch; rows: layout of its bytes, (rows, bytes of a row) for a matrix
    heads: number of heads by which llama.cpp has permuted the rows; 0 for rows in transformers' order
    """

    file: Path
    shape: tuple[int, ...]
    kind: Any
    offset: int
    rows: tuple[int, int]
    heads: int = 0

    def read(self, part: slice) -> Tensor:
        """Some of its rows, float32."""
        import torch
        from gguf.quants import dequantize

        # A new map for each read: otherwise the pages that were read would count as this process's memory.
        stored = np.memmap(self.file, np.uint8, "r", self.offset, self.rows)
        if self.heads:
            raw = stored[_order(self.shape[0], self.heads)[part]]
        else:
            raw = np.array(stored[part])
        values = dequantize(raw, self.kind)
        return torch.from_numpy(values.reshape(-1, *self.shape[1:]))


@dataclass(frozen=True, slots=True)
class SafetensorsWeight:
    """A tensor of a safetensors file."""

    file: Path
    name: str
    shape: tuple[int, ...]

    def read(self, part: slice) -> Tensor:
        """Some of its rows, in the type that they are stored in."""
        from safetensors import safe_open

        with safe_open(self.file, framework="pt") as file:
            found: Tensor = file.get_slice(self.name)[part]
        return found


Weight = GgufWeight | SafetensorsWeight
Weights = Mapping[str, Weight]


def safetensors_weights(folder: Path, name: str) -> Weights:
    """The weights of a model folder, by transformers' names. Raises UserError for damaged files."""
    return {
        key: SafetensorsWeight(path, key, tuple(row["shape"]))
        for path in weight_files(folder, name)
        for key, row in read_header(path).items()
        if key != "__metadata__"
    }


def gguf_weights(path: Path, names: Mapping[str, tuple[int, ...]]) -> Weights:
    """The weights of a GGUF file, by transformers' names. Raises NotReadable, and anything for a damaged file.

    names: the tensors of the model and their shapes
    """
    from gguf import MODEL_ARCH_NAMES, GGUFReader, get_tensor_name_map

    reader = GGUFReader(path)
    if reader.byte_order != "I":
        raise NotReadable("the order of bytes")
    kind = str(_field(reader, "general.architecture"))
    if kind not in ARCHITECTURES:
        raise NotReadable(kind)
    blocks = int(_field(reader, f"{kind}.block_count"))
    heads = int(_field(reader, f"{kind}.attention.head_count"))
    kv_heads = int(_field(reader, f"{kind}.attention.head_count_kv"))
    permuted = {"attn_q": heads, "attn_k": kv_heads} if kind in PERMUTED else {}
    architecture = next(key for key, value in MODEL_ARCH_NAMES.items() if value == kind)
    known = get_tensor_name_map(architecture, blocks)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    found = {}
    for name, shape in names.items():
        stem, _, suffix = name.rpartition(".")
        gguf_name = known.get_name(stem) or ""
        tensor = stored.get(f"{gguf_name}.{suffix}")
        if tensor is None:
            continue
        found[name] = GgufWeight(
            path, shape, tensor.tensor_type, int(tensor.data_offset), _byte_shape(tensor, shape),
            permuted.get(gguf_name.rpartition(".")[2], 0),
        )  # fmt: skip
    return found


def _field(reader: Any, name: str) -> Any:
    field = reader.fields.get(name)
    if field is None:
        raise NotReadable(name)
    return field.contents()


def _byte_shape(tensor: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, bytes of a row); a vector has a row for each number."""
    if tuple(int(size) for size in reversed(tensor.shape)) != shape:
        raise NotReadable(tensor.name)
    return shape[0], int(tensor.n_bytes) // shape[0]


def parts_of(shape: tuple[int, ...]) -> list[slice]:
    """Return the ranges of rows that are read in one step, from the first to the last."""
    width = int(np.prod(shape[1:], dtype=np.int64))
    step = max(ROWS, AT_ONCE // max(width, 1) // ROWS * ROWS)
    return [slice(begin, min(begin + step, shape[0])) for begin in range(0, shape[0], step)]


def _order(rows: int, heads: int) -> np.ndarray[Any, Any]:
    """Return llama.cpp's position of each row: it stores the two halves of a head's rotary pairs alternately.

    rows 4, one head: 0 2 1 3 (rows 0 and 1 are the first half of their pairs)
    """
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(rows)
