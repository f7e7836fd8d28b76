"""What passes cost on this machine, kept between starts: measured in full once, then again when they may be wrong."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from specdemo.engine.cost import ANY_ROWS, LADDER, REPEATS, ROWS, CostProfile, glance, measure_costs
from specdemo.engine.exactness import exact_rows
from specdemo.engine.target import CachedModel
from specdemo.engine.types import LanguageModel
from specdemo.models.decoders.choose import COMPILED
from specdemo.models.outlook import Measured, on_gpu
from specdemo.trace.events import ModelInfo

DAYS = 7  # after which passes are measured again
CLEARLY = 0.9  # of the known seconds


def costs_of(
    target: CachedModel,
    info: ModelInfo,
    draft: LanguageModel | None,
    draft_info: ModelInfo | None,
    cache_dir: Path,
    card: str = "",
) -> CostProfile:
    """The costs of a pair, and how many of its rows are exact. card: see `card_name`

    The compiled pass adds a row up in the same order in any company, see kernels/README.md.
    """
    costs = _costs_of(target, info, draft, draft_info, cache_dir, card)
    return replace(costs, exact_rows=ANY_ROWS) if COMPILED in info.kernel else costs


def _costs_of(
    target: CachedModel,
    info: ModelInfo,
    draft: LanguageModel | None,
    draft_info: ModelInfo | None,
    cache_dir: Path,
    card: str,
) -> CostProfile:
    """A file keeps the fastest of all measurements, since noise only adds.

    Later starts measure one round where the file is older than DAYS, or where a few passes are clearly faster than it
    says, as after a measurement on a busy machine. On a GPU they always do: the passes are recorded meanwhile. There it is
    also found out how many rows give the bits of one, again where the file is older than DAYS.
    """
    file, gpu = _file(info, draft_info, cache_dir, card), "CUDA" in info.kernel
    known = _read(file)
    if known and not gpu and _is_recent(file) and not _beaten(known, glance(target, draft)):
        return known
    costs = measure_costs(target, draft, 1 if known else REPEATS, LADDER if gpu else ROWS)
    if gpu and not (known and known.exact_rows and _is_recent(file)):
        costs = replace(costs, exact_rows=exact_rows(target))
    if known:
        costs = costs.at_best(known)
    of = {"machine": machine(), "gpu": gpu, "card": card}
    of |= {"target": info.name, "precision": info.precision}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps({**asdict(costs), "of": of}), encoding="utf-8")
        part.replace(file)
    except OSError:
        pass  # a cache that cannot be written costs a second at the next start
    return costs


def _is_recent(file: Path) -> bool:
    return 0 <= time.time() - file.stat().st_mtime < DAYS * 24 * 3600


def _beaten(known: CostProfile, seen: CostProfile) -> bool:
    """Whether passes take less than is known of them."""
    pairs = [(seconds, known.verify_seconds(rows)) for rows, seconds in seen.verify]
    pairs += [(seen.draft_step or 0.0, known.draft_step or 0.0)]
    return any(now < CLEARLY * before for now, before in pairs)


def card_name(device: torch.device | str) -> str:
    """The name of a graphics card; empty for a processor, and where none answers. device: also as settings name it"""
    name = str(device)
    if not on_gpu(name):
        return ""
    with suppress(RuntimeError, AssertionError):
        return torch.cuda.get_device_name(None if name == "auto" else name)
    return ""


def known_costs(cache_dir: Path, *, gpu: bool, card: str = "") -> list[Measured]:
    """What was measured on this machine so far, on this graphics card or on its processor; the newest last."""
    found = []
    for file in (cache_dir / "costs").glob("*.json"):
        try:
            of = json.loads(file.read_text(encoding="utf-8"))["of"]
            here = (of["machine"], of["gpu"], of.get("card", "")) == (machine(), gpu, card)
            target, precision = str(of["target"]), str(of["precision"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if here and (profile := _read(file)):
            found.append((file.stat().st_mtime, Measured(target, precision, profile)))
    return [one for _, one in sorted(found, key=lambda dated: dated[0])]


def machine() -> list[object]:
    """What kept measurements hold for."""
    threads = torch.get_num_threads()
    return [platform.node(), platform.processor(), str(torch.__version__), threads]


def _file(info: ModelInfo, draft_info: ModelInfo | None, cache_dir: Path, card: str) -> Path:
    """One file for each machine, graphics card, pair and way to compute."""
    # Where the bf16 copy begins is itself measured at every start, and may differ by a row or two.
    models = [
        (one.name, one.revision, one.kernel.partition(", bf16 from")[0])
        for one in (info, draft_info)
        if one
    ]
    key = (tuple(machine()), models, *filter(None, [card]))
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    return cache_dir / "costs" / f"{name}.json"


def _read(file: Path) -> CostProfile | None:
    """None for a file that is not there or says nothing usable."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        found.pop("of", None)
        verify, drafting = (
            tuple((int(rows), float(seconds)) for rows, seconds in found.pop(name, ()))
            for name in ("verify", "draft_rows")
        )
        return CostProfile(verify, **found, draft_rows=drafting) if verify else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
