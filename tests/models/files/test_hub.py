"""The hub, played by a local server: found, unknown, gated, broken, unreachable, damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

from specdemo.errors import UserError
from specdemo.models.files import hub, store
from specdemo.models.files.sources import resolve

COMMIT = "a" * 40
Usage = namedtuple("Usage", "total used free")


class Hub(BaseHTTPRequestHandler):
    """Serves `server.repos`: {id: {file: bytes}}, or {id: (status, error code)}."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        self.server.requests.append(self.path)
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        parts = parts[2:] if api else parts
        repo, rest = "/".join(parts[:2]), parts[2:]
        known = self.server.repos.get(repo, (404, "RepoNotFound"))
        if isinstance(known, tuple):
            return self.send(known[0], b"{}", {"X-Error-Code": known[1]} if known[1] else {})
        if api:
            return self.send(200, json.dumps(self.listing(repo, known, rest)).encode())
        data = known.get("/".join(rest[2:]))
        if data is None:
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self.send(200, data, headers)

    def listing(self, repo, known, rest):
        if rest[:1] == ["tree"]:
            return [
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "oid": hashlib.sha1(data).hexdigest(),
                }
                for name, data in known.items()
            ]
        siblings = [{"rfilename": name, "size": len(data)} for name, data in known.items()]
        return {"id": repo, "sha": COMMIT, "siblings": siblings}

    def send(self, status, data, headers=None):
        if status == 200 and (wanted := self.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            headers = {
                **(headers or {}),
                "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}",
            }
            status, data = 206, data[start:]
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


@pytest.fixture
def server(monkeypatch, tmp_path, tiny_folder):
    """A hub with one whole model, reached through HF_ENDPOINT, and an empty hub cache."""
    from huggingface_hub import constants

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    whole = {path.name: path.read_bytes() for path in tiny_folder.iterdir()}
    pickled = {name: data for name, data in whole.items() if name != "model.safetensors"}
    masked = {
        **whole,
        "config.json": b'{"architectures": ["BertForMaskedLM"], "model_type": "bert"}',
    }
    server.repos = {
        "owner/whole": {**whole, "pytorch_model.bin": b"never", "onnx/model.safetensors": b"never"},
        "owner/pickled": {**pickled, "pytorch_model.bin": b"never"},
        "owner/masked": masked,
        "owner/gated": (403, "GatedRepo"),
        "owner/private": (401, "RepoNotFound"),
        "owner/broken": (500, ""),
    }
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("server")
def test_a_model_is_fetched_with_safe_files_only(tmp_path):
    reports = []
    files = resolve("owner/whole", tmp_path, reports.append)
    names = {path.name for path in files.folder.rglob("*")}
    assert (files.origin, files.revision, files.name) == ("hub", COMMIT, "owner/whole")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"pytorch_model.bin", "onnx"}
    assert reports[-1].done == 1


def test_a_pinned_model_on_disk_asks_nobody(server):
    folder, _ = hub.fetch("owner/whole", COMMIT)
    server.requests.clear()
    assert hub.fetch("owner/whole", COMMIT) == (folder, COMMIT)
    assert hub.is_cached("owner/whole", COMMIT)
    assert not server.requests


@pytest.mark.usefixtures("server")
def test_a_damaged_file_is_fetched_again():
    folder, _ = hub.fetch("owner/whole", COMMIT)
    weights = (folder / "model.safetensors").resolve()
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    assert not hub.is_cached("owner/whole", COMMIT)
    hub.fetch("owner/whole", COMMIT)
    assert (folder / "model.safetensors").read_bytes() == whole


@pytest.mark.usefixtures("server")
def test_a_missing_file_is_fetched_again():
    folder, _ = hub.fetch("owner/whole", COMMIT)
    (folder / "model.safetensors").resolve().unlink()
    (folder / "model.safetensors").unlink()
    hub.fetch("owner/whole", COMMIT)
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("repo", "sentence"),
    [
        ("owner/nothing", "knows no model owner/nothing"),
        ("owner/private", "knows no model owner/private"),
        ("owner/gated", "is gated"),
        ("owner/broken", "answered 500"),
        ("owner/pickled", "offers no safetensors"),
        ("owner/masked", "not a causal language model"),
    ],
)
@pytest.mark.usefixtures("server")
def test_what_the_hub_refuses_is_a_sentence(tmp_path, repo, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        resolve(repo, tmp_path)
    assert caught.value.advice


def test_nothing_heavy_is_fetched_of_a_model_that_is_refused(server, tmp_path):
    with pytest.raises(UserError):
        resolve("owner/masked", tmp_path)
    assert not any("safetensors" in path for path in server.requests)


def test_no_disk_space_is_told_before_the_download(server, monkeypatch, tmp_path):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: Usage(1, 1, 10))
    with pytest.raises(UserError, match="disk space"):
        resolve("owner/whole", tmp_path)
    assert not any("safetensors" in path for path in server.requests)


@pytest.fixture
def unreachable(server, monkeypatch):  # noqa: ARG001
    """The hub is gone; what it delivered before is still in the cache."""

    def cut():
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    return cut


def test_a_hub_that_cannot_be_reached(unreachable, tmp_path):
    unreachable()
    with pytest.raises(UserError, match="could not be reached"):
        resolve("owner/whole", tmp_path)


def test_without_the_hub_the_cached_main_branch_still_works(unreachable, tmp_path):
    before = resolve("owner/whole", tmp_path)
    unreachable()
    assert resolve("owner/whole", tmp_path) == before


@pytest.mark.usefixtures("server")
def test_offline_mode_is_a_sentence(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="could not be reached"):
        resolve("owner/whole", tmp_path)


def test_a_copy_without_network_is_not_mistaken_for_the_hub(server, tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "copy")
    assert resolve(tmp_path / "copy", tmp_path).origin == "folder"
    assert not server.requests
