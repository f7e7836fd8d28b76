"""What lies in assets/ for a target beside its draft: a datastore of texts, and a trained lookahead policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdemo.config.paths import ASSETS
from specdemo.drafters.memory.datastore import Datastore
from specdemo.drafters.policies.learned import LookaheadWeights


@dataclass(frozen=True, slots=True)
class Shipped:
    """Each is None where there is none for the target."""

    store: Datastore | None = None
    lookahead: LookaheadWeights | None = None


def find_shipped(target: str, tokenizer: str, store: str = "auto") -> Shipped:
    """What is there for a target. Raises UserError when it is damaged or another tokenizer's.

    tokenizer: fingerprint of the target's vocabulary; store: a folder, "auto" or "none"
    """
    folder = ASSETS / "datastore" / target if store == "auto" else Path(store).expanduser()
    wanted = store != "none" and (store != "auto" or folder.is_dir())
    weights = ASSETS / "lookahead" / f"{target}.json"
    return Shipped(
        Datastore.open(folder, tokenizer) if wanted else None,
        LookaheadWeights.read(weights) if weights.is_file() else None,
    )
