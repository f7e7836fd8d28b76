"""Devices: chooses one with the reason, and the number formats that it computes with. torch is imported at first use."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.config.errors import UserError
from specdemo.kernels import cpu_features

if TYPE_CHECKING:
    import torch


DEVICES = ("cpu", "cuda", "mps")
FOUR_BIT, FILE, AUTO = "nf4", "file", "auto"


@cache
def processor() -> dict[str, str]:
    """Return the facts of the system about the processor, at least its `model name`."""
    facts = {"model name": platform.processor() or platform.machine()}
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        parts = (line.partition(":") for line in lines)
        facts |= {key.strip(): value.strip() for key, _, value in parts}
    return facts


def best_device(precision: str) -> tuple[str, str]:
    """Return the name of the device that `auto` uses for weights in a precision, and the reason.

    A step of decoding is bound by the bytes of weights that it reads. The compiled pass reads 4-bit weights as they
    are stored, on the processor; MPS, which shares its memory with the processor, would have them unpacked for each pass.
    """
    import torch

    if precision == FILE:
        return "cpu", "the compiled pass reads the blocks of GGUF files"
    if torch.cuda.is_available():
        return "cuda", "there is a CUDA device"
    if not has_mps():
        return "cpu", "there is no GPU that torch can use"
    if precision in (FOUR_BIT, AUTO) and cpu_features.compiles():
        return "cpu", "the compiled pass reads 4-bit weights; on MPS each pass unpacks them"
    if precision == "int8":
        return "cpu", "bitsandbytes has no LLM.int8 for MPS"
    if precision in (FOUR_BIT, AUTO):
        return "mps", "without numba there is no compiled pass"
    return "mps", "Apple's GPU reads these weights as they are"


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
        name = best_device(precision)[0]
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


def on_gpu(device: str) -> bool:
    """Whether models are computed on a CUDA device, as settings name the device."""
    if device.startswith("cuda"):
        return True
    if device != "auto":
        return False
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
