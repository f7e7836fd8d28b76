"""The header of a GGUF file, read once and fast for transformers and for us: a vocabulary has hundreds of thousands of entries."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def read_once() -> Iterator[None]:
    """Share one header among all readers of the same file. It uses hundreds of megabytes: leave the context soon."""
    import gguf
    from transformers import modeling_gguf_pytorch_utils as in_transformers

    reader, load = gguf.GGUFReader, in_transformers.load_gguf_checkpoint
    readers: dict[str, Any] = {}
    described: dict[str, Any] = {}

    class Reader(reader):  # type: ignore[misc, valid-type]
        """Read from an array: slices of a NumPy memory map are several times slower."""

        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = mapped.view(np.ndarray)

    def read(path: Any, mode: str = "r") -> Any:
        if str(path) not in readers:
            readers[str(path)] = Reader(path, mode)
        return readers[str(path)]

    def describe(path: Any, **options: Any) -> Any:
        if options.get("return_tensors"):
            return load(path, **options)
        if str(path) not in described:
            described[str(path)] = load(path)
        return copy.deepcopy(described[str(path)])

    gguf.GGUFReader, in_transformers.load_gguf_checkpoint = read, describe
    try:
        yield
    finally:
        gguf.GGUFReader, in_transformers.load_gguf_checkpoint = reader, load
