"""Compiled code is stored in a folder that is named by its sources and the processor, so that outdated code is never used."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import ROOT, python

pytest.importorskip("numba")

from specdemo.kernels import cache, cpu_features

PROGRAM = """
from numba import cfunc
from specdemo.kernels import cache
cache.sources = lambda: [Path(__file__)]
cache.bases = lambda: [Path(__file__).parent / "kept"]

@cache.kept(cfunc, "int64(int64)")
def run(number):
    return number + 1

print(run.ctypes(1), run._cache_hits)
"""


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    files = [tmp_path / name for name in ("one.py", "two.py")]
    for file in files:
        file.write_text("x = 1\n")
    return files


def test_the_folders_used_last_stay(tmp_path, sources):
    kept = tmp_path / "kept"
    for number in range(9):
        folder = kept / f"compiled-{number}"
        folder.mkdir(parents=True)
        (folder / "code.nbc").write_bytes(b"code")
        os.utime(folder, (1000 - number, 1000 - number))
    (kept / "other").mkdir()
    (kept / ".compiled-left.1.0").mkdir()
    own = cache.folder([kept], sources)
    newest = [f"compiled-{number}" for number in range(cache.KEPT_FOLDERS - 1)]
    assert {one.name for one in kept.iterdir()} == {own.name, "other", *newest}
    os.utime(own, (1, 1))
    assert cache.folder([kept], sources) == own  # used again, so the newest
    assert len(list(kept.iterdir())) == cache.KEPT_FOLDERS + 1


def test_folders_are_pruned_by_several_processes_at_once(tmp_path, sources):
    """Each process finds its own folder complete, even if another one deletes the rest."""
    kept = tmp_path / "kept"
    for number in range(40):
        (kept / f"compiled-{number}").mkdir(parents=True)
        (kept / f"compiled-{number}" / "code.nbc").write_bytes(b"code")
        os.utime(kept / f"compiled-{number}", (number, number))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.folder([kept], sources), range(8)))
    assert len(set(found)) == 1
    assert found[0].is_dir()
    cache.prune(kept)
    assert len(list(kept.iterdir())) == cache.KEPT_FOLDERS


def test_another_processor_and_what_the_system_grants_have_another_folder(sources, monkeypatch):
    found = {cache.digest(sources)}
    monkeypatch.setattr(cpu_features, "features", lambda: frozenset({"avx2", "fma"}))
    for granted in (False, True):
        monkeypatch.setattr(cpu_features, "has_tiles", lambda granted=granted: granted)
        found.add(cache.digest(sources))
    assert len(found) == 3


def test_all_that_is_compiled_counts():
    names = {path.name for path in cache.sources()}
    assert {"llama.py", "attention.py", "matmul_amx.py", "draft_loop.py", "job.py"} <= names
    assert "plan.py" in names  # compiled code depends on the layout of its rule


def test_old_code_is_not_used_and_unchanged_code_is(tmp_path):
    """numba checks the file of a function only; the folder name covers the functions that it calls."""
    program = tmp_path / "program.py"

    def run(text: str) -> str:
        program.write_text("from pathlib import Path\n" + text)
        return python(program, PYTHONPATH=str(ROOT)).strip()

    assert run(PROGRAM) == "2 0"
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert run(PROGRAM) == "2 1"
    assert run(PROGRAM.replace("number + 1", "number + 5")) == "6 0"
    assert len(list((tmp_path / "kept").iterdir())) == 2


TOGETHER = """
import os, time
from pathlib import Path
import numba

def slow(*kind, **options):
    time.sleep(1)
    return numba.cfunc(*kind, **options)

folder = Path(__file__).parent
(folder / f"{os.getpid()}.here").touch()
while len([*folder.glob("*.here")]) < 3:
    time.sleep(0.01)
"""


def test_of_programs_that_start_together_one_compiles(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TOGETHER + PROGRAM.replace("kept(cfunc", "kept(slow"))
    with ThreadPoolExecutor(3) as pool:
        printed = pool.map(lambda _: python(program, PYTHONPATH=str(ROOT)).strip(), range(3))
        assert sorted(printed) == ["2 0", "2 1", "2 1"]


def test_a_folder_that_cannot_be_written_to_is_passed_over(tmp_path, sources):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cache.folder([blocked, tmp_path / "own"], sources).parent == tmp_path / "own"
    assert cache.folder([blocked], sources) is None


def test_without_a_folder_it_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda *_: None)
    asked = []

    def compiler(*, cache):
        asked.append(cache)
        return lambda function: (function, "compiled")

    assert cache.kept(compiler)(len) == (len, "compiled")
    assert asked == [False]


def test_numbas_own_folder_is_left_as_it_was(tmp_path):
    from numba.core import config

    before = config.CACHE_DIR
    with cache.kept_in(tmp_path):
        assert str(tmp_path) == config.CACHE_DIR
    assert before == config.CACHE_DIR
