"""Devices and their memory: chooses a device with the reason, measures free memory, and estimates a model's before it is loaded.

torch is imported at first use.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from specdemo.config.errors import UserError
from specdemo.files.folder import tensors
from specdemo.kernels import cpu_features

if TYPE_CHECKING:
    import torch
    from torch import Tensor


DEVICES = ("cpu", "cuda", "mps")
FOUR_BIT, FILE, AUTO = "nf4", "file", "auto"


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device by name, and the reason for its choice."""

    device: str
    why: str


@cache
def processor() -> dict[str, str]:
    """Return the facts of the system about the processor, at least its `model name`."""
    facts = {"model name": platform.processor() or platform.machine()}
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        parts = (line.partition(":") for line in lines)
        facts |= {key.strip(): value.strip() for key, _, value in parts}
    return facts


def best_device(precision: str) -> DeviceChoice:
    """Return the device that `auto` uses for weights in a precision.

    A step of decoding is bound by the bytes of weights that it reads. The compiled pass reads 4-bit weights as they
    are stored, on the processor; MPS, which shares its memory with the processor, would have them unpacked for each pass.
    """
    import torch

    if precision == FILE:
        return DeviceChoice("cpu", "the compiled pass reads the blocks of GGUF files")
    if torch.cuda.is_available():
        return DeviceChoice("cuda", "there is a CUDA device")
    if not has_mps():
        return DeviceChoice("cpu", "there is no GPU that torch can use")
    if precision in (FOUR_BIT, AUTO) and cpu_features.compiles():
        return DeviceChoice(
            "cpu", "the compiled pass reads 4-bit weights; on MPS each pass unpacks them"
        )
    if precision == "int8":
        return DeviceChoice("cpu", "bitsandbytes has no LLM.int8 for MPS")
    if precision in (FOUR_BIT, AUTO):
        return DeviceChoice("mps", "without numba there is no compiled pass")
    return DeviceChoice("mps", "Apple's GPU reads these weights as they are")


def has_mps() -> bool:
    """Whether torch can use Apple's GPU (Metal Performance Shaders)."""
    import torch

    return torch.backends.mps.is_available() and computes(torch.device("mps"))


def computes(device: torch.device) -> bool:
    """Whether a device multiplies as the CPU does: some systems report a GPU that programs cannot use."""
    import torch

    x = torch.arange(64.0).view(8, 8)
    try:
        found = (x.to(device) @ x.to(device)).cpu()
    except RuntimeError:
        return False
    return torch.allclose(found, x @ x)


def choose_device(wanted: str = "auto", precision: str = FOUR_BIT) -> torch.device:
    """Return the device by name; `auto` is that of `best_device`. Raises UserError if it is missing."""
    import torch

    name = wanted.strip().lower()
    if name == "auto":
        name = best_device(precision).device
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError("device.unknown", device=wanted) from None
    if device.type not in DEVICES:
        raise UserError("device.unsupported", device=wanted)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError("device.no_cuda", device=wanted)
    if device.type == "mps" and not has_mps():
        raise UserError("device.no_mps", device=wanted)
    if device.type != "cpu" and precision == FILE:
        raise UserError("device.no_blocks", device=wanted)
    if device.type == "mps" and precision == "int8":
        raise UserError("device.no_int8", device=wanted)
    return device


def gpu_dtype(device: torch.device) -> torch.dtype:
    """Return the type in which a GPU stores 16-bit weights: bfloat16, or float16 if it has none (T4, MPS before macOS 14)."""
    import torch

    if device.type == "mps":
        found = torch.backends.mps.is_macos_or_newer(14, 0)
    else:
        found = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if found else torch.float16


def training_dtype(device: torch.device) -> torch.dtype:
    """Return the type in which training multiplies: bfloat16, or float32 on a processor that only emulates it."""
    import torch

    emulated = device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.float32 if emulated else torch.bfloat16


def mixed_precision(device: torch.device) -> torch.autocast:
    """Return the context in which float32 weights are multiplied in `training_dtype`."""
    import torch

    bf16 = torch.bfloat16
    return torch.autocast(device.type, bf16, enabled=training_dtype(device) == bf16)


def free_on(device: torch.device) -> int:
    """Return the free bytes of a GPU, including those that torch has reserved and does not use."""
    import torch

    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return (
        torch.cuda.mem_get_info(device)[0]
        + torch.cuda.memory_reserved(device)
        - torch.cuda.memory_allocated(device)
    )


BYTES_PER_WEIGHT = {
    "nf4": 0.5625,
    "file": 0.7,
    "int8": 1.01,
    "bf16": 2.0,
    "fp32": 4.0,
    "int4": 0.625,  # a compact draft: groups of 32 with a scale and a zero each
}  # quantised matrices; scales included
HEAD_BYTES = {8: 1.0625}  # bytes per weight of the output head; scales included
LARGE_HEAD = 100_000_000  # bytes of a bfloat16 head from which `auto` tries a smaller one
LIMITS = (  # container limit and use: cgroup 2, cgroup 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
PAGE, DONT_NEED = 4096, 4  # Linux
LOADING_FACTOR = 1.15  # buffers while loading, activations of a short run


def needed_bytes(
    folder: Path, name: str, precision: str, head: str = "16", *, compiled: bool = False
) -> int:
    """Return the bytes of memory for a model's weights in a precision. head, compiled: see `head_bits`"""
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
    """Return the bytes of memory for a model. With a smaller head, the embedding's rows stay in their file until they are read.

    layers: bytes of all but the head and the embedding; head: weights; plain: bytes of each in an unquantised head
    matrices: 2 where the embedding is another matrix than the head
    """
    ends = plain * head * matrices if bits == 16 else HEAD_BYTES[bits] * head
    return int(LOADING_FACTOR * (layers + ends))


def head_bits(parameters: int, precision: str, head: str, *, compiled: bool) -> int:
    """Return the bits that the output head will probably have: `auto` nearly always chooses 8 for a large one.

    A quantised file has about as many in the blocks of its head.
    head: auto or 16; compiled: whether the compiled pass runs on the device, which alone has smaller heads
    """
    if not compiled or precision not in (FOUR_BIT, FILE):
        return 16
    if precision == FILE:
        return 8
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
    with suppress(psutil.Error, OSError, AttributeError):
        maps = psutil.Process().memory_maps(grouped=False)
        places = [one.addr.split("-") for one in maps if one.path[0] == "/" and not one.anonymous]
        return [(int(first, 16), int(last, 16)) for first, last in places]
    return []


def free_ram() -> int:
    """Return the bytes of memory that can be used without swapping, within a container's limit."""
    free: int = psutil.virtual_memory().available
    for limit, used in LIMITS:
        with suppress(OSError, ValueError):
            most, now = (int(Path(file).read_text(encoding="utf-8")) for file in (limit, used))
            free = min(free, max(0, most - now))
    return free
