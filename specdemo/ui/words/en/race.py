"""Words of the part `race` of the page."""

from __future__ import annotations

WORDS: dict[str, object] = {}
