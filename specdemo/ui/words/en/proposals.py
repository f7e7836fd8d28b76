"""Words of the part `proposals` of the page."""

from __future__ import annotations

WORDS: dict[str, object] = {}
