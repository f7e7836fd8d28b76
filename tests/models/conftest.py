"""Fixtures of tiny models, GGUF files and wheels."""

from model_fixtures import (  # noqa: F401
    content,
    make_model,
    make_tokenizer,
    make_wheel,
    model,
    only_wheelhouse,
    tiny_folder,
    wheelhouse,
)
