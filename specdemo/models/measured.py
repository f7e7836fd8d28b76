"""What passes cost on this machine, kept between starts: measured in full once, then looked at again at every start."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from pathlib import Path

import torch

from specdemo.engine.cost import REPEATS, CostProfile, measure_costs
from specdemo.engine.target import CachedModel
from specdemo.engine.types import LanguageModel
from specdemo.trace.events import ModelInfo


def costs_of(
    target: CachedModel,
    info: ModelInfo,
    draft: LanguageModel | None,
    draft_info: ModelInfo | None,
    cache_dir: Path,
) -> CostProfile:
    """The costs of a pair. A file keeps the fastest of all starts, since noise only adds; later starts measure one round."""
    file = _file(info, draft_info, cache_dir)
    known = _read(file)
    costs = measure_costs(target, draft, 1 if known else REPEATS)
    if known:
        costs = costs.at_best(known)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(costs)), encoding="utf-8")
        part.replace(file)
    except OSError:
        pass  # a cache that cannot be written costs a second at the next start
    return costs


def _file(info: ModelInfo, draft_info: ModelInfo | None, cache_dir: Path) -> Path:
    """One file for each machine, pair and way to compute."""
    machine = (platform.node(), platform.processor(), torch.__version__, torch.get_num_threads())
    # Where the bf16 copy begins is itself measured at every start, and may differ by a row or two.
    models = [
        (one.name, one.revision, one.kernel.partition(", bf16 from")[0])
        for one in (info, draft_info)
        if one
    ]
    name = hashlib.sha256(repr((machine, models)).encode()).hexdigest()[:16]
    return cache_dir / "costs" / f"{name}.json"


def _read(file: Path) -> CostProfile | None:
    """None for a file that is not there or says nothing usable."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        verify, drafting = (
            tuple((int(rows), float(seconds)) for rows, seconds in found.pop(name, ()))
            for name in ("verify", "draft_rows")
        )
        return CostProfile(verify, **found, draft_rows=drafting) if verify else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
