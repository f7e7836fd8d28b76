"""The processor's features that the compiled pass needs, and the kind of products that they allow."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import platform
import sys
from functools import cache
from typing import Any

SYSCALL_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18  # Linux on x86-64
X86, ARM = ("x86_64", "AMD64"), ("aarch64", "arm64", "ARM64")
MACHINES = (*X86, *ARM)  # the names that systems have for them
VECTORS = ("avx2", "fma")
TILES = ("amx-bf16", "amx-tile", "avx512bw", "avx512f")


@cache
def features() -> frozenset[str]:
    """Return the features that numba compiles for, by LLVM's names: this processor's, or those of NUMBA_CPU_FEATURES.

    Empty if numba is not installed.
    """
    if platform.machine() not in X86:
        return frozenset()
    try:
        import llvmlite.binding as llvm
        from numba.core import config as numba_config
    except ImportError:
        return frozenset()
    config: Any = numba_config
    if config.CPU_FEATURES is not None:
        asked = config.CPU_FEATURES.split(",")
        return frozenset(name[1:] for name in asked if name.startswith("+"))
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


def compiles() -> bool:
    """Whether the compiled pass supports the processor's family, and numba is installed."""
    return platform.machine() in MACHINES and importlib.util.find_spec("numba") is not None


def has(*names: str) -> bool:
    return features().issuperset(names)


def has_vectors() -> bool:
    """Whether there are 256-bit vectors with fused multiply-add (AVX2); without them, LLVM chooses the instructions."""
    return has(*VECTORS)


def has_wide_vectors() -> bool:
    """Whether there are 512-bit vectors of 16-bit numbers (AVX-512)."""
    return has("avx512f", "avx512bw")


def multiplies_bytes() -> bool:
    """Whether there is VNNI, which multiplies and adds 8-bit numbers in one instruction, and no AMX, which is faster."""
    wide = has_wide_vectors() and has("avx512vnni")
    return (wide or has("avxvnni")) and not has_tiles()


@cache
def has_tiles() -> bool:
    """Whether there are bfloat16 matrix tiles (AMX) and the system grants them."""
    if not has(*TILES) or sys.platform != "linux":
        return False
    return not ctypes.CDLL(None).syscall(SYSCALL_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA)


def target() -> list[str]:
    """All that compiled code depends on: the processor's name, its features, and whether the system grants its tiles."""
    import llvmlite.binding as llvm
    from numba.core import config as numba_config

    config: Any = numba_config
    processor = config.CPU_NAME or llvm.get_host_cpu_name()
    return [processor, *sorted(features()), f"tiles: {has_tiles()}"]


def name() -> str:
    """The kind of products, in words."""
    if has_tiles():
        return "matrix tiles"
    if not has_vectors():
        return "128-bit vectors"
    return "512-bit vectors" if has_wide_vectors() else "256-bit vectors"


@cache
def products() -> Any:
    """Return the module with the matrix products for this processor."""
    name = "matmul_amx" if has_tiles() else "matmul_vectors"
    return importlib.import_module(f"specdemo.kernels.{name}")
