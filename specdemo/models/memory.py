"""Memory: what a model needs and what a pass reads of it, estimated before it is loaded, and how much is free.

torch is imported at first use.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from specdemo.config.settings import AppSettings
from specdemo.files.blocks import read_bytes
from specdemo.files.catalogue import Entry
from specdemo.files.folder import GGUF_BLOCKS, quantised_by, read_config, tensors
from specdemo.kernels import cpu_features
from specdemo.models.devices import AUTO, FILE, FOUR_BIT, choose_device, on_gpu

if TYPE_CHECKING:
    from torch import Tensor

BYTES_PER_WEIGHT = {
    "nf4": 0.5625,
    "file": 0.7,
    "int8": 1.01,
    "bf16": 2.0,
    "fp32": 4.0,
    "int4": 0.625,  # a compact draft: groups of 32 with a scale and a zero each
}  # quantised matrices; scales included
HEAD_BYTES = {8: 1.0625}  # bytes per weight of the output head; scales included
LARGE_HEAD = 50_000_000  # bytes of a bfloat16 head from which `auto` tries a smaller one
LOADING_FACTOR = 1.15  # buffers while loading, activations of a short run
LIMITS = (  # container limit and use: cgroup 2, cgroup 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
# Sizes of pages in bytes, and Linux's numbers of advice about them
PAGE, DONT_NEED = 4096, 4
LARGE_PAGE, USE_LARGE_PAGES = 2 << 20, 14


@dataclass(frozen=True, slots=True)
class Way:
    """Options with which models are loaded.

    precision, head: as in settings; compiled: whether the compiled pass runs on the device, which alone has smaller heads
    """

    precision: str
    head: str = "auto"
    compiled: bool = True

    def of(self, entry: Entry) -> Way:
        """Return the options for a model of the catalogue: with its precision in place of `auto`."""
        if self.precision != AUTO:
            return self
        return replace(self, precision=FILE if self.compiled and entry.blocks else FOUR_BIT)

    @property
    def plain(self) -> float:
        """Bytes of a weight that is not quantised."""
        return BYTES_PER_WEIGHT["fp32" if self.precision == "fp32" else "bf16"]

    def head_bits(self, weights: int) -> int:
        """Return the bits that an output head will probably have: `auto` nearly always chooses 8 for a large one.

        A quantised file has about as many in the blocks of its head.
        """
        if not self.compiled or self.precision not in (FOUR_BIT, FILE):
            return 16
        if self.precision == FILE:
            return 8
        if self.head != "auto":
            return int(self.head)
        return 8 if weights * BYTES_PER_WEIGHT["bf16"] >= LARGE_HEAD else 16


def way(settings: AppSettings, precision: str = "") -> Way:
    """Return the options with which the settings load models. precision: replaces theirs"""
    on_cpu = not on_gpu(settings.device) and settings.device != "mps"
    compiled = on_cpu and cpu_features.compiles()
    return Way(precision or settings.precision, settings.head, compiled)


@dataclass(frozen=True, slots=True)
class Weights:
    """Numbers of a model's weights.

    quantised: in matrices that 4 and 8 bits quantise; whole: in all others but embedding and head
    head: of the output head; ends: 2 where the embedding is another matrix than the head
    blocks: bytes of a weight of layers and head in the blocks of a file; 0 if there is no file
    """

    quantised: int
    whole: int
    head: int
    ends: int
    blocks: float = 0.0

    @classmethod
    def of_folder(cls, folder: Path, name: str) -> Weights:
        """Count the weights in a model's files. Raises UserError."""
        stored = list(tensors(folder, name))
        whole = [count for _, count, quantised in stored if not quantised]
        head = max(whole, default=0)  # an embedding of the same size may exist too
        quantised = sum(count for _, count, quantised in stored if quantised)
        other, blocks = sum(count for count in whole if count < head), 0.0
        if quantised_by(read_config(folder, name)) == GGUF_BLOCKS:
            in_blocks = read_bytes(folder, name) - BYTES_PER_WEIGHT["bf16"] * other
            blocks = in_blocks / (quantised + head)
        return cls(quantised, other, head, whole.count(head), blocks)

    @classmethod
    def of_entry(cls, entry: Entry) -> Weights:
        """Return the numbers of a model of the catalogue; its norms count as quantised."""
        ends = 2 if entry.own_head else 1
        head = entry.head_parameters
        return cls(entry.parameters - ends * head, 0, head, ends, entry.blocks)

    def _layers(self, way: Way) -> float:
        own = self.blocks if way.precision == FILE else 0.0
        return (own or BYTES_PER_WEIGHT[way.precision]) * self.quantised + way.plain * self.whole

    def _head(self, way: Way) -> float:
        """Return the bytes of the output head."""
        if way.precision == FILE and self.blocks:
            return self.blocks * self.head
        bits = way.head_bits(self.head)
        return (way.plain if bits == 16 else HEAD_BYTES[bits]) * self.head

    def pass_bytes(self, way: Way) -> float:
        """Return the bytes of weights that a pass of one token reads: one row of an embedding that is not the head."""
        return self._layers(way) + self._head(way)

    def loaded_bytes(self, way: Way) -> int:
        """Return the bytes of the loaded model. With a smaller head, the embedding's rows stay in their file until they are read."""
        ends = self.ends if way.head_bits(self.head) == 16 else 1
        return int(LOADING_FACTOR * (self._layers(way) + self._head(way) * ends))


def pass_bytes(entry: Entry, way: Way) -> float:
    """Return the bytes that a pass of one token reads of a model of the catalogue; those of a shipped drafter are its files'."""
    if entry.folder:
        return float(sum(file.stat().st_size for file in entry.folder.glob("*.safetensors")))
    return Weights.of_entry(entry).pass_bytes(way.of(entry))


def memory_bytes(entry: Entry, way: Way) -> int:
    """Return the bytes of a model of the catalogue after it is loaded."""
    if entry.folder:
        return int(pass_bytes(entry, way))
    return Weights.of_entry(entry).loaded_bytes(way.of(entry))


def free_ram() -> int:
    """Return the bytes of memory that can be used without swapping, within a container's limit."""
    free: int = psutil.virtual_memory().available
    for limit, used in LIMITS:
        with suppress(OSError, ValueError):
            most, now = (int(Path(file).read_text(encoding="utf-8")) for file in (limit, used))
            free = min(free, max(0, most - now))
    return free


def free_on(device: str) -> int:
    """Return the free bytes of a device, as settings name it; of a GPU including those that torch has reserved and does not use.

    Raises UserError if the device is missing.
    """
    if device != "mps" and not on_gpu(device):
        return free_ram()
    import torch

    if device != "auto":
        choose_device(device)
    if device == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    place = "cuda" if device == "auto" else device
    reserved = torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return torch.cuda.mem_get_info(place)[0] + reserved


def return_freed() -> None:
    """Return freed memory to the system. Without this call glibc retains it, because it lies between blocks in use."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def leave_to_file(*tensors: Tensor) -> None:
    """Drop the pages of tensors from memory until they are read again, if a file maps them and they are unchanged."""
    places = [(one.data_ptr(), one.data_ptr() + one.nbytes) for one in tensors]
    mapped = _unchanged_files()
    for begin, end in places:
        if any(first <= begin and end <= last for first, last in mapped):
            _advise(begin, end, PAGE, DONT_NEED)


def on_large_pages(empty: Tensor) -> Tensor:
    """Ask Linux for pages of 2 MB under a tensor in main memory that is not filled yet, and return it.

    A pass reads all weights. With pages of 4 KB, finding the pages takes up to an eighth of its time.
    """
    if sys.platform == "linux":
        _advise(empty.data_ptr(), empty.data_ptr() + empty.nbytes, LARGE_PAGE, USE_LARGE_PAGES)
    return empty


def _advise(begin: int, end: int, page: int, advice: int) -> None:
    """Give the system advice about the whole pages between two addresses; other data on the pages around them stays."""
    first = -(-begin // page) * page
    size = max(end // page * page - first, 0)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), advice)


def _unchanged_files() -> list[tuple[int, int]]:
    """Return (start, end) of each mapped file whose pages are all unchanged; empty if the system does not report them."""
    with suppress(psutil.Error, OSError, AttributeError):
        maps = psutil.Process().memory_maps(grouped=False)
        places = [one.addr.split("-") for one in maps if one.path[0] == "/" and not one.anonymous]
        return [(int(first, 16), int(last, 16)) for first, last in places]
    return []
