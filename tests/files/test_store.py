"""A cached folder is complete or not there; a full disk is a sentence."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specdemo.config.errors import UserError
from specdemo.files import store


@pytest.fixture
def made(tmp_path):
    folder = tmp_path / "cache" / "model"
    with store.making(folder, "recipe", "testing") as content:
        (content / "weights").write_bytes(b"x" * 1000)
    return folder


def test_a_made_folder_is_complete(made):
    os.utime(made / "weights", (1, 1))  # a copy has other times
    assert store.is_complete(made, "recipe", read=True)
    assert not store.is_complete(made, "newer recipe")
    assert not list(made.parent.glob(".making-*"))


def test_the_rest_of_a_killed_process_is_removed_and_the_work_of_a_live_one_stays(tmp_path):
    code = (
        "import os, signal, sys, pathlib\n"
        "from specdemo.files.store import scratch\n"
        "with scratch(pathlib.Path(sys.argv[1]), 'testing') as made:\n"
        "    (made / 'half').write_text('')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    (left,) = tmp_path.glob(".making-*[!k]")
    assert (left / "half").is_file()
    with store.scratch(tmp_path, "testing") as own:
        assert not left.exists()
        store.sweep(tmp_path)
        assert own.is_dir()
    assert not list(tmp_path.glob(".making-*"))


def change_under_the_old_time(folder):
    times = (folder / "weights").stat()
    (folder / "weights").write_bytes(b"x" * 500 + b"y" + b"x" * 499)
    os.utime(folder / "weights", ns=(times.st_atime_ns, times.st_mtime_ns))


def forget_checksums(folder):
    """Write a marker of an earlier version, which is not trusted."""
    marker = json.loads((folder / store.MARKER).read_text())
    del marker["files"]["weights"]["crc32"]
    (folder / store.MARKER).write_text(json.dumps(marker))


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        (lambda folder: (folder / "weights").write_bytes(b"x" * 10), False),
        (lambda folder: (folder / "weights").unlink(), False),
        (lambda folder: (folder / store.MARKER).write_text("[]"), False),
        (lambda folder: (folder / store.MARKER).unlink(), False),
        (change_under_the_old_time, True),
        (forget_checksums, True),
    ],
)
def test_a_damaged_folder_is_noticed(made, damage, read):
    damage(made)
    assert not store.is_complete(made, "recipe", read=read)


def test_a_failure_leaves_the_old_folder_and_no_trace(made):
    def fail():
        with store.making(made, "recipe", "testing") as content:
            (content / "half").write_text("")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.is_complete(made, "recipe")
    assert not list(made.parent.glob(".making-*"))


def test_too_little_space_is_noticed_before_writing(disk_with, tmp_path):
    disk_with(1_000_000)
    with pytest.raises(UserError, match=r"needs 2\.0 GB of disk space; 1 MB are free"):
        store.check_space(tmp_path / "not" / "yet", 2_000_000_000, "Converting")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), RuntimeError("I/O error: No space left on device")]
)
def test_a_disk_that_fills_up_is_noticed_while_writing(tmp_path, error):
    def fill():
        with store.making(tmp_path / "model", "recipe", "converting"):
            raise error

    with pytest.raises(UserError, match="became full while converting"):
        fill()
    assert not (tmp_path / "model").exists()


def test_a_cache_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written to"):
        store.make_folder(tmp_path / "file" / "cache")
    if Path("/proc/self").exists():
        with pytest.raises(UserError, match="cannot be written to"):
            store.make_folder(Path("/proc/none/cache"))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_cache_is_refused(monkeypatch, tmp_path, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number), str(tmp_path / "cache" / "file"))

    monkeypatch.setattr(store.tempfile, "TemporaryFile", refuse)
    with (
        pytest.raises(UserError, match="cannot be written to"),
        store.alone(tmp_path / "cache" / "model"),
    ):
        pass
    with (
        pytest.raises(UserError, match="cannot be written to"),
        store.reporting_full_disk("downloading"),
    ):
        refuse()
