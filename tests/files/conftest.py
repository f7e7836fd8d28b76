"""Fixtures of tiny models, GGUF files and wheels."""

import shutil
from types import SimpleNamespace

import pytest
from model_fixtures import content, only_wheelhouse, tiny_folder, wheelhouse  # noqa: F401

from specdemo.files import sources, store


@pytest.fixture
def disk_with(monkeypatch):
    """A function that leaves so many bytes free on every disk."""

    def leave(free: int) -> None:
        monkeypatch.setattr(store.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    return leave


@pytest.fixture
def conversions(tiny_folder, monkeypatch):  # noqa: F811
    """The files that were converted; a conversion is a copy of a tiny model."""
    converted = []

    def convert(gguf, content, progress):  # noqa: ARG001, F811
        converted.append(gguf)
        shutil.copytree(tiny_folder, content, dirs_exist_ok=True)

    monkeypatch.setattr(sources, "convert_gguf", convert)
    return converted
