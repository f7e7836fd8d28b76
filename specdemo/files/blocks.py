"""The blocks of a GGUF file's matrices, bit by bit, in the order in which the compiled pass reads them.

`kernels/blocks.py` describes each array. Layouts of the files: llama.cpp, ggml-common.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specdemo.config.strings import Json
from specdemo.files.folder import GGUF_BLOCKS, safetensors_table, weight_files
from specdemo.files.header import Numbers
from specdemo.files.packing import GgufWeight, NotReadable, Quantiser, Weight, parts_of

if TYPE_CHECKING:
    from torch import Tensor

BLOCKS_RECIPE = "blocks-1"  # increased when the layout changes
HEAD_BLOCKS = "blocks"  # end of the name of the head's blocks; its bfloat16 copy is for drafters, or the embedding
OUTPUTS = 32  # of a block in memory


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of some rows of a matrix, taken apart.

    kind: name of the kind in `kernels.blocks.KINDS`; codes: (rows, inputs) uint8
    units, zeros: (rows, inputs // span) float16; steps: (rows, inputs // 32, 2) uint8, of a block's units and zeros, or
        of its halves; None for a kind without them
    """

    kind: str
    codes: Numbers
    units: Numbers
    zeros: Numbers | None = None
    steps: Numbers | None = None


def read_blocks(raw: Numbers, kind: str) -> Blocks:
    """Take the blocks of some rows apart. raw: (rows, bytes of a row) uint8; kind: llama.cpp's name. Raises NotReadable."""
    if kind not in SIZES:
        raise NotReadable(f"blocks of the kind {kind}")
    rows, sizes = len(raw), SIZES[kind]
    cut = np.cumsum([size for _, size in sizes])
    parts = np.split(raw.reshape(-1, cut[-1]), cut[:-1], axis=1)
    part = {name: one for (name, _), one in zip(sizes, parts, strict=True)}
    found = {name: _halves(part[name], rows) for name in ("d", "m") if name in part}
    units, zeros, steps = found["d"], found.get("m"), None
    if kind.endswith("_K"):
        if zeros is not None:
            zeros = -zeros
        steps = _steps(part["scales"], rows)
    return Blocks(STORED.get(kind, kind), _codes(part, kind).reshape(rows, -1), units, zeros, steps)


# Names and bytes of a block's fields: d and m are float16.
SIZES = {
    "Q4_0": (("d", 2), ("low", 16)),
    "Q4_1": (("d", 2), ("m", 2), ("low", 16)),
    "Q5_0": (("d", 2), ("high", 4), ("low", 16)),
    "Q5_1": (("d", 2), ("m", 2), ("high", 4), ("low", 16)),
    "Q8_0": (("d", 2), ("whole", 32)),
    "Q4_K": (("d", 2), ("m", 2), ("scales", 12), ("low", 128)),
    "Q5_K": (("d", 2), ("m", 2), ("scales", 12), ("high", 32), ("low", 128)),
    "Q6_K": (("low", 128), ("high", 64), ("scales", 16), ("d", 2)),
}
STORED = {"Q5_0": "Q8_0"}  # 5 bits with signs are stored as 8
WIDE = {"Q5_1", "Q5_K", "Q6_K", "Q8_0"}  # kinds whose codes are stored as 8 bits


def _halves(stored: Numbers, rows: int) -> Numbers:
    found: Numbers = np.ascontiguousarray(stored).view(np.float16).reshape(rows, -1)
    return found


def _steps(scales: Numbers, rows: int) -> Numbers:
    """Return the factors of all blocks, (rows, blocks of 32, 2).

    They are those of the unit and of the zero, 6 bits each, or those of the block's halves, 8 signed bits each.
    """
    from gguf.quants import Q4_K

    if scales.shape[1] == 12:
        scales = np.stack(Q4_K.get_scale_min(np.ascontiguousarray(scales)), axis=-1)
    found: Numbers = scales.reshape(rows, -1, 2)
    return found


def _codes(part: dict[str, Numbers], kind: str) -> Numbers:
    """Return the codes of all blocks, (blocks, inputs of a block) uint8."""
    if kind == "Q8_0":
        found: Numbers = part["whole"] ^ np.uint8(128)
        return found
    group = {"Q6_K": 64}.get(kind, 32 if kind.endswith("_K") else 16)
    low = part["low"].reshape(len(part["low"]), -1, 1, group)
    codes: Numbers = ((low >> np.array([[0], [4]], np.uint8)) & 15).reshape(len(low), -1)
    if kind == "Q6_K":
        high: Numbers = part["high"].reshape(len(low), 2, 1, 32) >> np.array(
            [[0], [2], [4], [6]], np.uint8
        )
        codes |= ((high & 3) << 4).reshape(codes.shape)
    elif kind == "Q5_K":
        high = part["high"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None]
        codes |= ((high & 1) << 4).reshape(codes.shape)
    elif "high" in part:
        codes |= np.unpackbits(part["high"], axis=1, bitorder="little") << 4
    if kind == "Q5_0":
        codes += np.uint8(128 - 16)
    return codes


def lay(blocks: Blocks) -> dict[str, Numbers]:
    """Return the arrays by the ends of their names: rows in blocks of 32, and four inputs of an output side by side."""
    rows, inputs = blocks.codes.shape
    quads = blocks.codes.reshape(rows // OUTPUTS, 2, 16, inputs // 4, 4).transpose(0, 3, 1, 2, 4)
    if blocks.kind not in WIDE:
        quads = quads[:, :, 0] | quads[:, :, 1] << 4
    found = {"": quads.reshape(rows // OUTPUTS, inputs // 4, -1)}
    for end, one in ((".units", blocks.units), (".zeros", blocks.zeros)):
        if one is not None:
            found[end] = one.reshape(rows // OUTPUTS, OUTPUTS, -1).transpose(0, 2, 1)
    if blocks.steps is not None:
        steps = blocks.steps.reshape(rows // OUTPUTS, OUTPUTS, inputs // 32, 2)
        found[".steps"] = steps.transpose(0, 2, 3, 1).reshape(rows // OUTPUTS, inputs // 32, -1)
    return {end: np.ascontiguousarray(one) for end, one in found.items()}


@dataclass(frozen=True)
class FileBlocks(Quantiser):
    """Stores matrices as the blocks of their GGUF file, see `packing.pack`. head: name of the matrix of the output head"""

    head: str

    def config(self) -> Json:
        return {"quant_method": GGUF_BLOCKS}

    def part(self, weight: Weight, part: slice) -> dict[str, Tensor]:
        """Return some rows of a matrix in the form of `lay`. Raises NotReadable."""
        import torch

        if not isinstance(weight, GgufWeight) or weight.shape[0] % OUTPUTS:
            raise NotReadable("a matrix without blocks of 32 rows")
        laid = lay(read_blocks(weight.raw(part), weight.kind.name))
        return {end: torch.from_numpy(one) for end, one in laid.items()}

    def named(
        self, name: str, weight: Weight, parts: Sequence[dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Return all tensors of a matrix by name."""
        import torch

        assert isinstance(weight, GgufWeight)
        kind = STORED.get(weight.kind.name, weight.kind.name).encode()
        found = {f"{name}{end}": torch.cat([one[end] for one in parts]) for end in parts[0]}
        return found | {f"{name}.kind": torch.tensor(list(kind), dtype=torch.uint8)}

    def beside(self, name: str, weight: Weight) -> dict[str, Tensor]:
        """Return the blocks of the output head; none if the file stores it in 16 bits."""
        if name != self.head:
            return {}
        with suppress(NotReadable):
            parts = [self.part(weight, part) for part in parts_of(weight.shape)]
            return self.named(f"{name}.{HEAD_BLOCKS}", weight, parts)
        return {}


def read_bytes(folder: Path, name: str) -> int:
    """Return the bytes that a pass over one row reads of a folder in blocks: not those of 16-bit copies for others. Raises UserError."""
    stored: Json = {}
    for path in weight_files(folder, name):
        stored |= safetensors_table(path)
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    used = head if head in stored else embedding
    unread = {embedding, head} - (set() if f"{used}.{HEAD_BLOCKS}" in stored else {used})
    places = (row["data_offsets"] for key, row in stored.items() if key not in unread)
    return sum(last - first for first, last in places)
