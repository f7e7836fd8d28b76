"""The sampling that a model's authors recommend: from its `generation_config.json`, else from the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdemo.config.errors import UserError
from specdemo.config.settings import AUTHORS, DRAWN, Recommended, RunSettings, Sampling
from specdemo.files.catalogue import entries, find

FILE = "generation_config.json"


def recommended(folder: Path, name: str) -> Recommended:
    """Return the sampling recommended for a model; greedy if there is no recommendation.

    name: in the catalogue, or of a file or a folder that starts with such a name
    """
    published = _published(folder)
    if published is not None:
        return Recommended(published, AUTHORS)
    entry = find(name)
    if entry is None:
        known = (one for one in entries() if name.lower().startswith(one.name))
        entry = max(known, key=lambda one: len(one.name), default=None)
    if entry is None or not entry.sampling:
        return Recommended()
    return Recommended(_taken(entry.sampling), str(entry.sampling.get("origin", AUTHORS)))


def _published(folder: Path) -> Sampling | None:
    """Return the sampling in a model's own file; None if the file is missing, damaged or without sampling values."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not any(name in found for name in ("do_sample", *DRAWN)):
            return None
        if not found.get("do_sample", "temperature" in found):
            found |= {"temperature": 0, "top_k": 0, "top_p": 1}
        return _taken(found)
    except (OSError, ValueError, UserError):
        return None


def _taken(found: Mapping[str, Any]) -> Sampling:
    """Return the sampling with these values; the default temperature is 1. Raises UserError."""
    values = {name: found[name] for name in DRAWN if found.get(name) is not None}
    return RunSettings.from_values({"temperature": 1, **values}).sampling
