"""Speculative decoding, visible, provable and fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdemo.api import Chat, Model, Run, load

__version__ = "0.2.0"
__all__ = ["Chat", "Model", "Run", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """The Python interface, imported when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specdemo import api

    return getattr(api, name)
