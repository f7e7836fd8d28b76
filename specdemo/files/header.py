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
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Header:
    """Facts about a GGUF file's model.

    values: the numbers and texts of the file
    parameters, head_parameters, own_head: as in the catalogue's `Entry`
    norms: digest of the weights of all norms. Files in every quantisation store them exactly, so two files with the same
        digest have the same weights, or one is a small change of the other that left the norms alone
    tokenizer: digest of the vocabulary without padding; "" without a vocabulary
    sizes: number of weights in tensors of each type, by GGUF's numbers
    """

    values: JsonView
    parameters: int
    head_parameters: int
    own_head: bool
    norms: str
    tokenizer: str
    sizes: Mapping[int, int]

    @property
    def family(self) -> str:
        """The model's architecture by llama.cpp's name."""
        return str(self.values.get("general.architecture", ""))

    @property
    def kinds(self) -> set[int]:
        """Types of its blocks, by their numbers in GGUF."""
        return self.sizes.keys() - VECTOR_TYPES.keys()

    @property
    def block_bytes(self) -> float:
        """Bytes of memory for a weight in the file's own blocks; 0 if the compiled pass does not read all of them."""
        if not self.kinds or self.kinds - BLOCK_BYTES.keys():
            return 0.0
        count = sum(self.sizes[kind] for kind in self.kinds)
        return sum(self.sizes[kind] * BLOCK_BYTES[kind] for kind in self.kinds) / count

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
            return _Reader(m).header()
    except (struct.error, ArithmeticError, LookupError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from error


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

    def header(self) -> Header:
        if self.data[: len(MAGIC)] != MAGIC:
            raise ValueError("another signature")
        self.at = len(MAGIC)
        version, tensors, count = self._numbers("IQQ")
        if version not in VERSIONS:
            raise ValueError(f"version {version}")
        values: Json = {}
        for _ in range(count):
            key = self._text()
            values[key] = self._value(key, self._numbers("I")[0])
        table = [self._tensor() for _ in range(tensors)]
        alignment = int(values.get("general.alignment", ALIGNMENT))
        first = math.ceil(self.at / alignment) * alignment
        sizes = {name: math.prod(shape) for name, shape, _, _ in table}
        of_kinds: Counter[int] = Counter()
        for name, _, kind, _ in table:
            of_kinds[kind] += sizes[name]
        return Header(
            values, sum(sizes.values()), sizes.get("token_embd.weight", 0), "output.weight" in sizes,
            self._norms(table, first), self._tokenizer(), of_kinds,
        )  # fmt: skip

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

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return name, shape, type and offset in the data."""
        name = self._text()
        (dimensions,) = self._numbers("I")
        shape = self._numbers(f"{dimensions}Q")
        kind, offset = self._numbers("IQ")
        return name, shape, kind, offset

    def _norms(self, table: list[tuple[str, tuple[int, ...], int, int]], first: int) -> str:
        digest = hashlib.sha256()
        for name, shape, kind, offset in sorted(table):
            if not name.endswith(NORMS):
                continue
            dtype = VECTOR_TYPES[kind]
            stored = np.frombuffer(self.data, dtype, math.prod(shape), first + offset)
            # bfloat16 is the upper half of float32
            wide = stored.astype(np.uint32) << 16 if kind == BFLOAT16 else stored.astype(np.float32)
            digest.update(name.encode() + wide.tobytes())
            del stored  # the map cannot be closed before
        return digest.hexdigest()[:16]

    def _tokenizer(self) -> str:
        begin, end = self.arrays.get("tokenizer.ggml.tokens", (0, 0))
        return tokens_digest(self.data[begin:end])
