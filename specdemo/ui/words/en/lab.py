"""Words of the part `lab` of the page."""

from __future__ import annotations

WORDS: dict[str, object] = {}
