"""Fixtures of tiny models, GGUF files and wheels."""

import pytest
from model_fixtures import model, tiny_folder  # noqa: F401

from specdemo.files.sources import ModelFiles


@pytest.fixture
def files(tiny_folder) -> ModelFiles:  # noqa: F811
    """The files of a tiny model."""
    return ModelFiles(tiny_folder, "tiny", "r1")
