"""Check from the configuration alone whether a model's cache can be rolled back."""

from __future__ import annotations

from typing import Any

from specdemo.config.errors import UserError

KEPT = {"full_attention", "sliding_attention"}  # layers that store all keys and values
UNTOLD = ("doge", "phimoe", "qwen2_moe")  # transformers passes no sliding window to their attention

WRITTEN_OUT = ("gemma2", "gpt_oss", "vaultgemma")  # run with `engine.attention.written_out`


def opened_with(model_type: str) -> str:
    """Return the attention for opening a model before ours replaces it: transformers refuses `sdpa` for some."""
    return "eager" if model_type in WRITTEN_OUT else "sdpa"


def check_rollback(config: Any) -> None:
    """Raise UserError for a transformers model whose memory cannot be rolled back token by token."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    names = ", ".join(kind.replace("_", " ") for kind in sorted(kinds - KEPT))
    if not kinds and getattr(text, "num_attention_heads", None) is None:
        names = "recurrent states"
    if not names and text.model_type in UNTOLD and getattr(text, "sliding_window", None):
        names = "sliding windows of its own"
    if names or getattr(text, "num_hidden_layers", None) is None:
        raise UserError("model.no_rollback", kind=config.model_type, layers=names or "unknown")
