"""Measures the memory of this machine, estimates a model's before it is loaded, and returns freed memory to the system."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.files.folder import tensors

if TYPE_CHECKING:
    from torch import Tensor

BYTES_PER_WEIGHT = {
    "nf4": 0.5625,
    "int8": 1.01,
    "bf16": 2.0,
    "fp32": 4.0,
    "int4": 0.625,  # a compact draft: groups of 32 with a scale and a zero each
}  # quantised matrices; scales included
HEAD_BYTES = {8: 1.0625}  # bytes per weight of the output head; scales included
LARGE_HEAD = 100_000_000  # bytes of a bfloat16 head from which `auto` tries a smaller one
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ *(/.*)?$")
LIMITS = (  # container limit and use: cgroup 2, cgroup 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
PAGE, DONT_NEED = 4096, 4  # Linux
MARGIN = 1.15  # buffers while loading, activations of a short run


def needed_bytes(
    folder: Path, name: str, precision: str, head: str = "16", *, compiled: bool = False
) -> int:
    """Memory for a model's weights in a precision. head, compiled: see `head_bits`"""
    plain = BYTES_PER_WEIGHT["fp32" if precision == "fp32" else "bf16"]
    stored = list(tensors(folder, name))
    whole = [count for _, count, quantised in stored if not quantised]
    largest = max(whole, default=0)  # the head; an embedding of the same size may exist too
    layers = BYTES_PER_WEIGHT[precision] * sum(
        count for _, count, quantised in stored if quantised
    ) + plain * sum(count for count in whole if count < largest)
    bits = head_bits(largest, precision, head, compiled=compiled)
    return loaded_bytes(layers, largest, plain, whole.count(largest), bits)


def loaded_bytes(layers: float, head: int, plain: float, matrices: int, bits: int) -> int:
    """Memory for a model. ConcatInput a smaller head, the embedding's rows stay in their file until they are read.

    layers: bytes of all but the head and the embedding; head: weights; plain: bytes of each in an unquantised head
    matrices: 2 where the embedding is another matrix than the head
    """
    ends = plain * head * matrices if bits == 16 else HEAD_BYTES[bits] * head
    return int(MARGIN * (layers + ends))


def head_bits(parameters: int, precision: str, head: str, *, compiled: bool) -> int:
    """Bits of the output head that is expected before it is loaded: `auto` nearly always takes 8 for a large one.

    head: auto or 16; compiled: whether the compiled pass runs on the device, which alone has smaller heads
    """
    if not compiled or precision != "nf4":
        return 16
    if head != "auto":
        return int(head)
    return 8 if parameters * BYTES_PER_WEIGHT["bf16"] >= LARGE_HEAD else 16


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
            first = -(-begin // PAGE) * PAGE  # other data on the pages around it stays
            size = ctypes.c_size_t(max(end // PAGE * PAGE - first, 0))
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), size, DONT_NEED)


def _unchanged_files() -> list[tuple[int, int]]:
    """Return (start, end) of each mapped file whose pages are all unchanged; empty if the system does not report them."""
    found: list[tuple[int, int]] = []
    place: tuple[int, int] | None = None
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
            if mapping := MAPPING.match(line):
                place = (int(mapping[1], 16), int(mapping[2], 16)) if mapping[3] else None
            elif place and line.startswith("Anonymous:") and int(line.split()[1]) == 0:
                found.append(place)
    return found


def free_ram() -> int | None:
    """Memory that can be taken without swapping, within a container's limit; None if unknown."""
    free = [value for value in (_available(), _container_room()) if value is not None]
    return min(free, default=None)


def _available() -> int | None:
    with suppress(OSError):
        found = re.search(
            r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.M
        )
        if found:
            return int(found[1]) * 1024
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _container_room() -> int | None:
    for limit, used in LIMITS:
        with suppress(OSError, ValueError):
            return max(
                0,
                int(Path(limit).read_text(encoding="utf-8"))
                - int(Path(used).read_text(encoding="utf-8")),
            )
    return None
