"""The one cache of this machine's measurements: costs of passes, and checks of compiled passes.

Each value is a JSON file in a folder of its kind, named by a hash of all that it depends on.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Generic, TypeVar

import torch
from pydantic import TypeAdapter

from specdemo.config.strings import Json
from specdemo.engine.cost import (
    ANY_ROWS,
    LADDER,
    MEASURED_ROWS,
    REPEATS,
    CostProfile,
    exact_rows,
    glance,
    measure_costs,
)
from specdemo.engine.target import CachedModel
from specdemo.kernels import runtime
from specdemo.models.devices import on_gpu
from specdemo.models.outlook import Measured
from specdemo.trace.events import COMPILED, ModelInfo

DAYS = 7  # after which passes are measured again
FASTER = 0.9  # fraction of the cached seconds below which a pass is measured again
LIBRARIES = ("transformers", "bitsandbytes")
DECODERS = Path(__file__).with_name("decoders")  # code that a verdict depends on
COSTS, VERDICTS = "costs", "passes"  # folders of the cache

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Measurement(Generic[Value]):
    """A file with one measured value. kind: its dataclass"""

    file: Path
    kind: type[Value]

    def read(self) -> Value | None:
        """Return the value, or None if the file is missing or damaged."""
        try:
            return TypeAdapter(self.kind).validate_json(self.file.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, value: Value, about: object = None) -> None:
        """Store a value, and facts about it. If that fails, the next start measures again."""
        values: Json = TypeAdapter(self.kind).dump_python(value, mode="json")
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps({**values, "of": about}), encoding="utf-8")
            part.replace(self.file)

    @property
    def is_recent(self) -> bool:
        """True if the file was written during the last DAYS."""
        return 0 <= time.time() - self.file.stat().st_mtime < DAYS * 24 * 3600


def measurement(cache_dir: Path, folder: str, kind: type[Value], key: object) -> Measurement[Value]:
    """Return the measurement that depends on `key`, whose representation names its file."""
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    return Measurement(cache_dir / folder / f"{name}.json", kind)


def machine() -> list[object]:
    """Return the facts about this machine on which cached measurements depend."""
    threads = torch.get_num_threads()
    return [platform.node(), platform.processor(), str(torch.__version__), threads]


def card_name(device: torch.device | str) -> str:
    """Return the name of a graphics card; "" for a processor or if no card responds. device: also as settings name it"""
    name = str(device)
    if not on_gpu(name):
        return ""
    with suppress(RuntimeError, AssertionError):
        return torch.cuda.get_device_name(None if name == "auto" else name)
    return ""


@dataclass(frozen=True, slots=True)
class PassCheck:
    """Result of checking the compiled pass of some weights.

    agrees: with transformers' module; bits: of the head
    """

    agrees: bool
    bits: int = 16


def pass_check(cache_dir: Path, weights: str, head: str) -> Measurement[PassCheck]:
    """Return the cached check of some weights for a `head` setting, this code and this processor.

    weights: names them by their content
    """
    code = runtime.digest(sorted(DECODERS.glob("*.py")))
    key = (weights, head, code, *map(version, ("torch", *LIBRARIES)))
    return measurement(cache_dir, VERDICTS, PassCheck, key)


def pair_costs(
    cache_dir: Path,
    target: CachedModel,
    info: ModelInfo,
    draft: CachedModel | None,
    draft_info: ModelInfo | None,
    card: str = "",
) -> CostProfile:
    """Read or measure the costs of a pair's passes, and how many rows of a pass are exact. card: see `card_name`

    A file contains the fastest of all measurements, since noise only adds.

    Later starts measure one round if the file is older than DAYS, or if a few passes are faster than FASTER of its
    values, for example after a measurement on a busy machine. On a GPU they always do: the passes are recorded
    meanwhile. There the number of exact rows is measured too, again if the file is older than DAYS.
    """
    models = [(one.name, one.revision, one.kernel) for one in (info, draft_info) if one]
    key = (tuple(machine()), models, *filter(None, [card]))
    cached = measurement(cache_dir, COSTS, CostProfile, key)
    gpu, known = "CUDA" in info.kernel, cached.read()
    if known and not known.verify:
        known = None
    if known and not gpu and cached.is_recent and not _are_faster(known, target, draft):
        costs = known
    else:
        repeats = 1 if known else REPEATS
        costs = measure_costs(target, draft, repeats, LADDER if gpu else MEASURED_ROWS)
        if gpu and not (known and known.exact_rows and cached.is_recent):
            costs = replace(costs, exact_rows=exact_rows(target))
        costs = costs.at_best(known) if known else costs
        about = {"machine": machine(), "gpu": gpu, "card": card}
        cached.write(costs, about | {"target": info.name, "precision": info.precision})
    # The compiled pass adds a row up in the same order in any company, see kernels/README.md.
    return replace(costs, exact_rows=ANY_ROWS) if COMPILED in info.kernel else costs


def _are_faster(known: CostProfile, target: CachedModel, draft: CachedModel | None) -> bool:
    """Return True if a few passes take clearly less time than the cached costs."""
    seen = glance(target, draft)
    pairs = [(seconds, known.verify_seconds(rows)) for rows, seconds in seen.verify]
    pairs += [(seen.draft_step or 0.0, known.draft_step or 0.0)]
    return any(now < FASTER * before for now, before in pairs)


def known_costs(cache_dir: Path, *, gpu: bool, card: str = "") -> list[Measured]:
    """Return the costs measured on this machine's processor or on this graphics card, the newest last."""
    found = []
    files = (cache_dir / COSTS).glob("*.json")
    for file in sorted(files, key=lambda one: one.stat().st_mtime):
        with suppress(OSError, ValueError, TypeError, KeyError):
            about, profile = (
                json.loads(file.read_bytes())["of"],
                Measurement(file, CostProfile).read(),
            )
            here = (about["machine"], about["gpu"], about.get("card", "")) == (machine(), gpu, card)
            if here and profile and profile.verify:
                found.append(Measured(str(about["target"]), str(about["precision"]), profile))
    return found
