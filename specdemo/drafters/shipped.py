"""The datastore of texts that assets/ contains for a target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdemo.config.paths import ASSETS
from specdemo.drafters.memory.datastore import Datastore


@dataclass(frozen=True, slots=True)
class Shipped:
    """store: None if there is none for the target"""

    store: Datastore | None = None


def find_shipped(target: str, tokenizer: str, store: str = "auto") -> Shipped:
    """Return the datastore of a target. Raises UserError when it is damaged or another tokenizer's.

    tokenizer: fingerprint of the target's vocabulary; store: a folder, "auto" or "none"
    """
    folder = ASSETS / "datastore" / target if store == "auto" else Path(store).expanduser()
    wanted = store != "none" and (store != "auto" or folder.is_dir())
    return Shipped(Datastore.open(folder, tokenizer) if wanted else None)
