"""Tiny models, their GGUF files and wheels, all made on the spot."""

import hashlib
import zipfile
from pathlib import Path

import pytest
from passes import BUILDS, tiny
from tiny_files import make_tiny_model

from specdemo.files.catalogue import GgufFile
from specdemo.files.sources import ModelFiles


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A tiny model, shared: tests that damage it copy it first."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def files(tiny_folder: Path) -> ModelFiles:
    """The files of a tiny model."""
    return ModelFiles(tiny_folder, "tiny", "r1")


@pytest.fixture
def content() -> bytes:
    """Bytes in place of a GGUF file inside the hand-made wheel."""
    return b"GGUF" + bytes(range(256)) * 2000


@pytest.fixture
def wheelhouse(tmp_path, content, monkeypatch) -> tuple[Path, GgufFile]:
    """A hand-made wheel, and the file inside it, which is not on the hub."""
    monkeypatch.delenv("SPECDEMO_WHEEL", raising=False)
    parts = {"package": "tiny-smol", "version": "1.0", "size": len(content)}
    digest = hashlib.sha256(content).hexdigest()
    file = GgufFile("", "model.gguf", digest, len(content), parts)
    return make_wheel(tmp_path / "wheelhouse", "tiny_smol", content), file


def make_wheel(folder: Path, name: str, content: bytes) -> Path:
    """Write a wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path, about = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    described = f"Name: {name.replace('_', '-')}\nVersion: 1.0\nRequires-Dist: never-wanted\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/model.gguf", content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('this was run')")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\n{described}")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def only_wheelhouse(monkeypatch, wheelhouse) -> tuple[Path, GgufFile]:
    """pip sees nothing but the hand-made wheelhouse."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheelhouse[0].parent))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return wheelhouse


@pytest.fixture(params=BUILDS)
def model(request):
    """A tiny model of each build that the lean pass knows."""
    return tiny(request.param.removesuffix("3-rope"), **BUILDS[request.param])
