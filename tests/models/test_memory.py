"""What was freed goes back to the system, also from between pieces that are in use."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
from specdemo.models.memory import return_freed

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
