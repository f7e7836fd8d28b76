"""The machine that runs: its name and its threads."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path


def set_threads(threads: int) -> None:
    """Let torch use this many cores; 0 leaves its choice, one thread a core."""
    import torch

    if threads:
        torch.set_num_threads(threads)


@cache
def machine_name() -> str:
    """Processor or graphics card, and threads, in words: as at the first run, before others wanted the cores."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    names = []
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} threads"
