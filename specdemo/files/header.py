"""Read the header of a GGUF file, without its weights and without other libraries, and recognise the model by it."""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specdemo.config.strings import Json, JsonView
from specdemo.files.catalogue import Entry, entries

MAGIC, VERSIONS = b"GGUF", (2, 3)
# Formats of numbers by their code in the file
NUMBER_FORMATS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
TEXT, ARRAY = 8, 9
BFLOAT16 = 30
VECTOR_TYPES: dict[int, type[np.generic]] = {0: np.float32, 1: np.float16, BFLOAT16: np.uint16}
# Bytes of memory for a weight in blocks, scales included, by GGUF's number of the kind: those of `files.blocks.SIZES`
BLOCK_BYTES = {
    2: 0.5625, 3: 0.625, 6: 1.0625, 7: 1.125, 8: 1.0625, 12: 0.578125, 13: 1.078125, 14: 1.0703125
}  # fmt: skip
NORMS = ("output_norm.weight", "attn_norm.weight", "ffn_norm.weight")
PADDING = b"[PAD"  # start of the tokens that only fill the vocabulary up
ALIGNMENT = 32  # bytes, if the file does not name another
Numbers = np.ndarray[Any, Any]


class StoredTensor(NamedTuple):
    """A tensor of a GGUF file. shape: as in torch; kind: GGUF's number of its type; offset: in the file"""

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """Facts about a GGUF file's model.

    values: the numbers and texts of the file; an array is None
    tensors: by llama.cpp's names
    norms: digest of the weights of all norms. Files in every quantisation store them exactly, so two files with the same
        digest have the same weights, or one is a small change of the other that left the norms alone
    tokenizer: digest of the vocabulary without padding; "" without a vocabulary
    """

    values: JsonView
    tensors: Mapping[str, StoredTensor]
    norms: str
    tokenizer: str

    @property
    def family(self) -> str:
        """The model's architecture by llama.cpp's name."""
        return str(self.values.get("general.architecture", ""))

    @property
    def sizes(self) -> Counter[int]:
        """Number of weights in tensors of each type, by GGUF's numbers."""
        sizes: Counter[int] = Counter()
        for tensor in self.tensors.values():
            sizes[tensor.kind] += math.prod(tensor.shape)
        return sizes

    @property
    def kinds(self) -> set[int]:
        """Types of its blocks, by their numbers in GGUF."""
        return self.sizes.keys() - VECTOR_TYPES.keys()

    @property
    def block_bytes(self) -> float:
        """Bytes of memory for a weight in the file's own blocks; 0 if the compiled pass does not read all of them."""
        sizes, kinds = self.sizes, self.kinds
        if not kinds or kinds - BLOCK_BYTES.keys():
            return 0.0
        count = sum(sizes[kind] for kind in kinds)
        return sum(sizes[kind] * BLOCK_BYTES[kind] for kind in kinds) / count

    @property
    def generates(self) -> bool:
        """Whether the file is a whole language model: not a part, an adapter, or an encoder of images or texts."""
        model = self.values.get("general.type", "model") == "model"
        pools = self.values.get(f"{self.family}.pooling_type", 0)
        whole = self.values.get("split.count", 1) <= 1
        return model and whole and bool(self.tokenizer) and not pools


def is_gguf(path: Path) -> bool:
    """Check the first bytes of a file; its name does not matter."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file. Raises ValueError for a damaged one."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as m:
            values, tensors, tokens = _Reader(m).read()
        return Header(values, tensors, _norms_digest(path, tensors), tokens_digest(tokens))
    except (struct.error, ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def read_vector(path: Path, tensor: StoredTensor) -> Numbers:
    """Return an unquantised vector, float32. Raises ValueError if the file is too short, KeyError for quantised ones."""
    stored = np.memmap(path, VECTOR_TYPES[tensor.kind], "r", tensor.offset, tensor.shape)
    if tensor.kind == BFLOAT16:  # the upper half of float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return np.array(stored, np.float32)


def _norms_digest(path: Path, tensors: Mapping[str, StoredTensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if name.endswith(NORMS):
            digest.update(name.encode() + read_vector(path, tensors[name]).tobytes())
    return digest.hexdigest()[:16]


def recognise(header: Header) -> Entry | None:
    """Return the catalogue model with the same norms; the other weights may have any quantisation."""
    return next((entry for entry in entries() if entry.norms == header.norms), None)


def tokens_digest(stored: bytes) -> str:
    """Return the digest of a vocabulary without padding; "" for none. stored: its tokens by id, each behind its length in 8 bytes"""
    tokens, padded, _ = stored.partition(PADDING)
    # the length of the first padding token is in the 8 bytes before it
    return hashlib.sha256(tokens[:-8] if padded else tokens).hexdigest()[:16] if stored else ""


class _Reader:
    """Reads one file from the start. at: offset of the next value"""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0
        self.arrays: dict[str, tuple[int, int]] = {}  # first and last byte of each array of texts

    def read(self) -> tuple[Json, dict[str, StoredTensor], bytes]:
        """Return the metadata, the tensors by name, and the stored bytes of the vocabulary."""
        if self.data[: len(MAGIC)] != MAGIC:
            raise ValueError("another signature")
        self.at = len(MAGIC)
        version, tensors, count = self._numbers("IQQ")
        if version not in VERSIONS:
            raise ValueError(f"GGUF v{version}")
        values: Json = {}
        for _ in range(count):
            key = self._text()
            values[key] = self._value(key, self._numbers("I")[0])
        table = dict(self._tensor() for _ in range(tensors))
        alignment = int(values.get("general.alignment", ALIGNMENT))
        first = math.ceil(self.at / alignment) * alignment
        begin, end = self.arrays.get("tokenizer.ggml.tokens", (0, 0))
        placed = {name: one._replace(offset=first + one.offset) for name, one in table.items()}
        return values, placed, self.data[begin:end]

    def _numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def _text(self) -> str:
        (length,) = self._numbers("Q")
        self.at += length
        if self.at > len(self.data):
            raise ValueError("cut short")
        return self.data[self.at - length : self.at].decode("utf-8", errors="replace")

    def _value(self, key: str, kind: int) -> Any:
        """Read a value; return None for an array, of which only the range of bytes is stored."""
        if kind == TEXT:
            return self._text()
        if kind != ARRAY:
            return self._numbers(NUMBER_FORMATS[kind])[0]
        kind, count = self._numbers("IQ")
        begin = self.at
        if kind != TEXT:
            self.at += count * struct.calcsize(f"<{NUMBER_FORMATS[kind]}")
            return None
        at, length = begin, struct.Struct("<Q")
        for _ in range(count):  # hundreds of thousands of texts
            at += 8 + length.unpack_from(self.data, at)[0]
        self.at, self.arrays[key] = at, (begin, at)
        return None

    def _tensor(self) -> tuple[str, StoredTensor]:
        """Return a tensor's name and entry, whose offset counts from the first byte of the tensors' data."""
        name = self._text()
        (dimensions,) = self._numbers("I")
        shape = self._numbers(f"{dimensions}Q")
        return name, StoredTensor(shape[::-1], *self._numbers("IQ"))
