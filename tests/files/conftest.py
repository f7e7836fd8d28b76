"""Fixtures of tiny models, GGUF files and wheels."""

from model_fixtures import (  # noqa: F401
    content,
    only_wheelhouse,
    tiny_folder,
    wheelhouse,
)
