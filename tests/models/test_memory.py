"""Freed memory returns to the system, also from between parts that are in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specdemo.models.devices import leave_to_file

CODE = """
from specdemo.models.devices import return_freed

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

pieces = [bytearray(100_000) for _ in range(1500)]
kept = pieces[::100] + pieces[-1:]
full = resident()
del pieces
freed = resident()
return_freed()
print(full - freed, full - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_goes_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < 50_000_000  # else this system needs no help
    assert after > 120_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_file_maps_leaves_memory_and_comes_back(tmp_path):
    """Written pages, and pages of no file, stay."""
    found = {}
    for name in ("read", "written"):
        file = tmp_path / name
        file.write_bytes(bytes(range(256)) * 40_000)
        found[name] = torch.from_file(str(file), size=256 * 40_000, dtype=torch.uint8)
    found["written"][7] = 9
    sums = [int(one.sum()) for one in found.values()]
    own = torch.ones(10_000_000, dtype=torch.uint8)
    assert min(resident(tmp_path / name) for name in found) > 10_000_000
    part = found["read"][5000:]  # other data on its first page stays
    leave_to_file(part, found["written"], own)
    assert resident(tmp_path / "read") < 100_000
    assert resident(tmp_path / "written") > 10_000_000
    assert [int(one.sum()) for one in found.values()] == sums
    assert own.all()


def resident(file) -> int:
    """Bytes of a file that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(file)):
            return next(int(one.split()[1]) * 1024 for one in lines if one.startswith("Rss:"))
    return 0
