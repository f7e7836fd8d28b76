"""Fixtures of disks and of conversions of GGUF files."""

import shutil
from types import SimpleNamespace

import pytest

from specdemo.files import sources, store


@pytest.fixture
def disk_with(monkeypatch):
    """A function that leaves so many bytes free on every disk."""

    def leave(free: int) -> None:
        monkeypatch.setattr(store.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    return leave


@pytest.fixture
def conversions(tiny_folder, monkeypatch):
    """The files that were converted; a conversion is a copy of a tiny model."""
    converted = []

    def convert(gguf, content, progress):  # noqa: ARG001
        converted.append(gguf)
        shutil.copytree(tiny_folder, content, dirs_exist_ok=True)

    monkeypatch.setattr(sources, "convert_gguf", convert)
    return converted
