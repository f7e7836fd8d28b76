"""Words of the part `lessons` of the page."""

from __future__ import annotations

WORDS: dict[str, object] = {}
