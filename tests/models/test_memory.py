"""The memory that a model needs and that a pass reads of it, and freed memory, which returns to the system."""

import sys
from pathlib import Path

import pytest
import torch
from programs import python

from specdemo.config.errors import UserError
from specdemo.files.catalogue import find
from specdemo.models import devices, memory
from specdemo.models.memory import (
    Way,
    Weights,
    leave_to_file,
    memory_bytes,
    on_large_pages,
    pass_bytes,
)


@pytest.mark.parametrize(("bits", "weight"), [("16", 2.0), ("auto", 1.0625)])
def test_the_bytes_that_a_pass_reads_and_a_model_takes(bits, weight):
    entry, coder = find("qwen2.5-1.5b-instruct"), find("qwen2.5-coder-1.5b-instruct")
    head = 151_936 * 1536
    layers = 0.5625 * (entry.parameters - head)
    way = Way("nf4", bits)
    assert pass_bytes(entry, way) == pass_bytes(coder, way) == layers + weight * head
    embedding = 2 * head if bits == "16" else 0  # else its rows stay in their file
    assert memory_bytes(entry, way) == int(1.15 * (layers + weight * head))
    assert memory_bytes(coder, way) == int(1.15 * (layers + weight * head + embedding))


@pytest.mark.parametrize("device", ["cuda:9", "mps"])
def test_a_missing_device_has_no_memory_to_tell(monkeypatch, device):
    monkeypatch.setattr(devices, "has_mps", lambda: False)
    with pytest.raises(UserError, match=r"no such CUDA device|no GPU of Apple's"):
        memory.free_on(device)


def test_only_the_compiled_pass_has_smaller_heads_and_auto_only_for_large_ones():
    entry = find("qwen2.5-1.5b-instruct")
    assert pass_bytes(entry, Way("bf16")) == 2 * entry.parameters
    whole = Way("nf4", "16")
    assert pass_bytes(entry, Way("nf4", compiled=False)) == pass_bytes(entry, whole)
    assert 2.4 < memory_bytes(entry, Way("bf16")) / memory_bytes(entry, whole) < 2.7
    small = Weights(100_000_000, 0, 20_000_000, 1)
    assert small.pass_bytes(Way("nf4")) == small.pass_bytes(whole)
    own = find("qwen3-8b")  # its embedding is not read by a pass
    assert pass_bytes(own, Way("bf16")) == 2 * (own.parameters - own.head_parameters)


def test_a_container_limit_counts(monkeypatch, tmp_path):
    (tmp_path / "max").write_text("1000")
    (tmp_path / "used").write_text("400")
    monkeypatch.setattr(memory, "LIMITS", ((str(tmp_path / "max"), str(tmp_path / "used")),))
    assert memory.free_ram() == 600
    (tmp_path / "max").write_text("max")
    assert memory.free_ram() != 600


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
    before, after = map(int, python("-c", CODE).split())
    assert before < 50_000_000  # else this system needs no help
    assert after > 120_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_mapped_pages_of_a_file_leave_memory_and_come_back(tmp_path):
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


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="has no large pages"
)
def test_linux_is_asked_for_large_pages_under_a_tensor():
    tensor = on_large_pages(torch.empty(9_000_000, dtype=torch.uint8))
    middle = tensor.data_ptr() + len(tensor) // 2
    flags: list[str] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first:
            begin, end = (int(one, 16) for one in first.split("-"))
        elif first == "VmFlags:" and begin <= middle < end:
            flags = rest
    assert "hg" in flags


def resident(file) -> int:
    """Bytes of a file that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(file)):
            return next(int(one.split()[1]) * 1024 for one in lines if one.startswith("Rss:"))
    return 0
