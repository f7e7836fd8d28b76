"""The hub, played by a local server: found, unknown, gated, broken, unreachable, damaged."""

import hashlib
import json
import shutil
from http.server import ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest
import torch
from loopback import Handler, serving
from tiny_gguf import tiny_gguf

from specdemo.config.errors import UserError
from specdemo.files import hub, sources
from specdemo.files.catalogue import CatalogueDrafter, Entry, GgufFile
from specdemo.files.sources import resolve
from specdemo.models import outlook
from specdemo.models.loading import load_model
from specdemo.models.outlook import Offer

COMMIT, CARD = "a" * 40, b"---\nlicense: mit\n---\n# A card"
BF16 = torch.bfloat16
NOWHERE = "http://127.0.0.1:9"  # nothing answers there


class Hub(Handler):
    """Serves `server.repos`: {id: {file: bytes}}, or {id: (status, error code)}."""

    def do_GET(self):
        self.server.requests.append(f"{self.command} {self.path}")
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
        self.server.ranges.append(self.headers.get("Range"))
        return self.send(200, data, headers)

    do_HEAD = do_GET

    def listing(self, repo, known, rest):
        if rest[:1] == ["tree"]:
            digests = {name: hashlib.sha1(data).hexdigest() for name, data in known.items()}
            return [
                {"type": "file", "path": name, "size": len(known[name]), "oid": digest}
                for name, digest in digests.items()
            ]
        siblings = [{"rfilename": name, "size": len(data)} for name, data in known.items()]
        card = {"cardData": {"license": "mit"}} if known.get("README.md") == CARD else {}
        return {"id": repo, "sha": COMMIT, "siblings": siblings, **card}

    def send(self, status, data, headers=None):
        if status == 200 and (wanted := self.headers.get("Range")):
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            part = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
            headers, status, data = {**(headers or {}), **part}, 206, data[start:]
        headers = {**(headers or {}), "Content-Length": str(len(data))}
        if self.command == "GET" and self.server.cut and len(data) > self.server.cut:
            data, self.server.cut = data[: self.server.cut], 0
            self.close_connection = True
        self.answer(status, data, headers)


@pytest.fixture
def server(monkeypatch, tmp_path, tiny_folder):
    """A hub with one whole model, reached through HF_ENDPOINT, and an empty hub cache."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    whole = {path.name: path.read_bytes() for path in tiny_folder.iterdir()}
    pickled = {name: data for name, data in whole.items() if name != "model.safetensors"}
    bert = b'{"architectures": ["BertForMaskedLM"], "model_type": "bert"}'
    server.repos = {
        "owner/whole": {**whole, "pytorch_model.bin": b"never", "onnx/model.safetensors": b"never"},
        "owner/pickled": {**pickled, "pytorch_model.bin": b"never"},
        "owner/masked": {**whole, "config.json": bert},
        "owner/gated": (403, "GatedRepo"),
        "owner/private": (401, "RepoNotFound"),
        "owner/broken": (500, ""),
    }
    heads = {"config.json": b"{}", "pytorch_model.bin": b"tensors"}
    drafter = {"model.safetensors": whole["model.safetensors"], "README.md": CARD}
    server.repos |= {
        "owner/drafter": {**heads, **drafter, "onnx/model.onnx": b"never"},
        "owner/heads": heads,
    }
    server.requests, server.ranges = [], []
    server.cut = 0  # bytes after which the next longer answer breaks off, once
    with serving(server) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield server


@pytest.mark.usefixtures("server")
def test_a_model_is_fetched_with_safe_files_only(tmp_path):
    reports = []
    files = resolve("owner/whole", tmp_path, reports.append)
    names = {path.name for path in files.folder.rglob("*")}
    assert (files.revision, files.name) == (COMMIT, "owner/whole")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"pytorch_model.bin", "onnx"}
    shares = [report.done for report in reports]
    assert shares == sorted(shares)
    assert len({*shares}) > 2  # bytes are reported as they arrive
    assert reports[-1].done == 1


def test_a_pinned_model_on_disk_needs_no_request(server):
    folder, _ = hub.fetch("owner/whole", COMMIT)
    server.requests.clear()
    assert hub.fetch("owner/whole", COMMIT) == (folder, COMMIT)
    assert hub.cached_folder("owner/whole", COMMIT)
    assert not server.requests


@pytest.mark.parametrize("keep", [0, 1000])
@pytest.mark.usefixtures("server")
def test_a_damaged_or_missing_file_is_fetched_again(keep):
    folder, _ = hub.fetch("owner/whole", COMMIT)
    weights = (folder / "model.safetensors").resolve()
    whole = weights.read_bytes()
    if keep:
        weights.write_bytes(whole[:keep])
    else:
        weights.unlink()
        (folder / "model.safetensors").unlink()
    assert not hub.cached_folder("owner/whole", COMMIT)
    hub.fetch("owner/whole", COMMIT)
    assert (folder / "model.safetensors").read_bytes() == whole


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
def test_a_model_is_refused_before_its_weights_are_fetched(server, tmp_path, repo, sentence):
    with pytest.raises(UserError, match=sentence):
        resolve(repo, tmp_path)
    assert not any("GET" in one and "safetensors" in one for one in server.requests)


def test_too_little_disk_space_is_noticed_before_the_download(server, disk_with, tmp_path):
    disk_with(10)
    with pytest.raises(UserError, match="disk space"):
        resolve("owner/whole", tmp_path)
    assert not any("GET" in one and "safetensors" in one for one in server.requests)


@pytest.mark.usefixtures("server")
def test_without_the_hub_only_the_cached_main_branch_works(monkeypatch, tmp_path):
    before = resolve("owner/whole", tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    assert resolve("owner/whole", tmp_path) == before
    with pytest.raises(UserError, match="could not be reached"):
        resolve("owner/drafter", tmp_path)


@pytest.mark.usefixtures("server")
def test_offline_mode_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="could not be reached"):
        resolve("owner/whole", tmp_path)


def test_a_copy_without_network_is_not_mistaken_for_the_hub(server, tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "copy")
    assert resolve(tmp_path / "copy", tmp_path).folder == (tmp_path / "copy").resolve()
    assert not server.requests


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    return tiny_gguf(tmp_path_factory.mktemp("hub") / "tiny.gguf", "qwen2").read_bytes()


@pytest.fixture
def entry(server, monkeypatch, gguf_file):
    """A model of the catalogue whose weights are in a GGUF file of the hub."""
    digest = hashlib.sha256(gguf_file).hexdigest()
    file = GgufFile("owner/gguf", "tiny.gguf", digest, len(gguf_file))
    entry = Entry("tiny-coder", "Tiny", "MIT", 1, "", repo="owner/main", gguf=file)
    server.repos["owner/gguf"] = {"tiny.gguf": gguf_file}
    monkeypatch.setattr(sources, "find", lambda name: entry if name == entry.name else None)
    return entry


def test_a_gguf_file_is_fetched_and_packed_once(server, entry, tmp_path):
    reports = []
    files = resolve(entry.name, tmp_path, reports.append, BF16)
    assert (files.name, files.revision) == ("tiny-coder", entry.gguf.sha256[:12])
    stages = list(dict.fromkeys(report.stage for report in reports))
    assert stages == ["download", "check", "convert", "quantise"]
    assert load_model(files, "nf4", "cpu").info.parameters > 0
    server.requests.clear()
    assert resolve(entry.name, tmp_path, pack_as=BF16) == files
    assert not server.requests


def test_a_broken_transfer_continues(server, entry, gguf_file, tmp_path, monkeypatch):
    def ended(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    server.cut = 300_000
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.file_download.time.sleep", ended)  # before it tries again
        with pytest.raises(KeyboardInterrupt):
            hub.fetch_gguf(entry.gguf, tmp_path)
    assert hub.fetch_gguf(entry.gguf, tmp_path).read_bytes() == gguf_file
    assert "bytes=300000-" in server.ranges


def test_a_gguf_file_that_is_another_one_is_refused(server, entry, gguf_file, tmp_path):
    server.repos["owner/gguf"] = {"tiny.gguf": gguf_file[:-1] + b"\0"}
    with pytest.raises(UserError, match="not the file that was expected"):
        resolve(entry.name, tmp_path, pack_as=BF16)
    server.repos["owner/gguf"] = {"tiny.gguf": gguf_file}
    assert resolve(entry.name, tmp_path, pack_as=BF16)


def test_a_gguf_file_on_disk_needs_no_network(monkeypatch, entry, tmp_path):
    hub.fetch_gguf(entry.gguf, tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    assert resolve(entry.name, tmp_path, pack_as=BF16).folder.is_dir()


def test_a_drafter_comes_with_its_card_and_with_a_pickle_only_where_nothing_else_is(server):
    folder, commit = hub.fetch("owner/drafter", None, drafter=True)
    assert commit == COMMIT
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "model.safetensors", "README.md",
    }  # fmt: skip
    asked = len(server.requests)
    assert hub.fetch("owner/drafter", COMMIT, drafter=True) == (folder, COMMIT)
    assert len(server.requests) == asked  # a pinned revision that is here needs no network
    heads, _ = hub.fetch("owner/heads", None, drafter=True)
    assert (heads / "pytorch_model.bin").read_bytes() == b"tensors"
    with pytest.raises(UserError, match="no model owner/none"):
        hub.fetch("owner/none", None, drafter=True)


def test_size_and_licence_of_a_drafter_are_known_before_its_download(server, monkeypatch):
    away = outlook.offer("owner/drafter", ask=True)
    assert (away.here, away.licence) == (False, "mit")
    assert outlook.offer("owner/drafter", ask=False) == Offer("owner/drafter")
    asked = len(server.requests)
    folder, _ = hub.fetch("owner/drafter", COMMIT, drafter=True)
    known = CatalogueDrafter("owner/drafter", "DFlash", "qwen3-8b", COMMIT)
    monkeypatch.setattr(outlook, "drafters", lambda: (known,))
    assert outlook.offers("Qwen/Qwen3-8B") == outlook.offers("qwen3-8b")
    (here,) = outlook.offers("qwen3-8b")
    weights = (folder / "model.safetensors").stat().st_size
    assert (here.family, here.here, here.size) == ("DFlash", True, weights)
    assert away.size >= weights
    assert outlook.offers("qwen3-4b") == []
    local = outlook.offer(str(folder), ask=True)
    assert (local.here, local.size, local.licence) == (True, weights, here.licence)
    with pytest.raises(UserError, match="no model owner/none"):
        outlook.offer("owner/none", ask=True)
    assert len(server.requests) > asked
