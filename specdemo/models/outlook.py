"""What loading a pair would mean on this machine: whether it fits, what it would download and how fast it would be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdemo.engine.cost import CostProfile
from specdemo.models.files import hub
from specdemo.models.files.catalogue import DEFAULT_TARGET, Entry, Pair, find, pairs, partner
from specdemo.models.files.here import missing_bytes
from specdemo.models.files.sources import HUB_ID
from specdemo.models.memory import BYTES_PER_WEIGHT, free_ram
from specdemo.settings import AppSettings

SPARE_BYTES = 2_000_000_000  # left for the KV caches, activations and whatever else runs
KEPT = 0.65  # of first drafted tokens, assumed for a draft of the target's own family
LONGEST = 8  # drafted tokens a step


@dataclass(frozen=True, slots=True)
class Measured:
    """Passes that were timed on this machine. target: a catalogue name; profile: see `CostProfile`"""

    target: str
    precision: str
    profile: CostProfile


@dataclass(frozen=True, slots=True)
class Outlook:
    """What to expect of a pair.

    needed, free: bytes of memory; free is None where it is unknown
    download: bytes that are not on this disk
    plain, drafted: tokens a second, None where nothing is known of this machine. Drafts are assumed to be as good as
        `KEPT` says.
    measured: whether passes of this target were timed here; else times of another are scaled by the bytes of a pass
    """

    needed: int
    free: int | None
    download: int
    plain: float | None = None
    drafted: float | None = None
    measured: bool = False

    @property
    def fits(self) -> bool:
        """Whether there is room for it now."""
        return self.free is None or self.needed <= self.free


def outlook(
    pair: Pair, precision: str, cache_dir: Path, free: int | None, known: Sequence[Measured]
) -> Outlook:
    """What a pair of the catalogue means here. free: bytes of memory; known: what was timed with the same device, the newest last"""
    both = (pair.target, pair.draft)
    found = Outlook(
        sum(memory_bytes(entry, precision) for entry in both),
        free,
        sum(missing_bytes(entry, cache_dir, precision) for entry in both),
    )
    own = [one for one in known if (one.target, one.precision) == (pair.name, precision)]
    profile = own[-1].profile if own else _scaled(pair, precision, known)
    if profile is None:
        return found
    plain, drafted = rates(profile)
    return replace(found, plain=plain, drafted=drafted, measured=bool(own))


def to_download(target: str, draft: str, precision: str, cache_dir: Path) -> int | None:
    """Bytes that loading these models would download, named as settings name them; None where only the hub knows."""
    names = [target, (partner(target) or "none") if draft == "auto" else draft]
    total = 0
    for name in names:
        if entry := find(name):
            total += missing_bytes(entry, cache_dir, precision)
        elif HUB_ID.fullmatch(name) and not Path(name).exists() and not hub.is_cached(name, None):
            return None
    return total


def rates(profile: CostProfile) -> tuple[float, float]:
    """Tokens a second without drafts, and with those of the best length."""
    speeds = [1 / profile.verify_seconds(1)]
    if profile.draft_step:
        speeds += [
            (1 - KEPT ** (1 + drafted))
            / (1 - KEPT)
            / (profile.verify_seconds(1 + drafted) + drafted * profile.draft_step)
            for drafted in range(1, LONGEST + 1)
        ]
    return speeds[0], max(speeds)


def _scaled(pair: Pair, precision: str, known: Sequence[Measured]) -> CostProfile | None:
    """The times of the target that is nearest in size, by the bytes that a pass reads."""
    wanted = pass_bytes(pair.target, precision)
    bases = [
        (abs(math.log(size / wanted)), size, one.profile)
        for one in known
        if (entry := find(one.target)) and (size := pass_bytes(entry, one.precision))
    ]
    if not bases:
        return None
    _, size, profile = min(bases, key=lambda base: base[0])
    factor = wanted / size
    verify = tuple((rows, factor * seconds) for rows, seconds in profile.verify)
    step = pass_bytes(pair.draft, precision) / size * profile.verify_seconds(1)
    return CostProfile(verify, step)


def pass_bytes(entry: Entry, precision: str) -> float:
    """What a pass of one token reads of a model's weights; those of a draft that ships with specdemo are 8-bit."""
    if entry.folder:
        return float(sum(file.stat().st_size for file in entry.folder.glob("*.safetensors")))
    heads = entry.head_parameters * (2 if entry.own_head else 1)
    unquantised = BYTES_PER_WEIGHT["fp32" if precision == "fp32" else "bf16"]
    layers = (entry.parameters - heads) * BYTES_PER_WEIGHT[precision]
    return layers + entry.head_parameters * unquantised


def memory_bytes(entry: Entry, precision: str) -> int:
    """What a model takes when it is loaded."""
    four_bit = entry.memory_4bit_gb * 1e9
    if entry.folder:
        return int(four_bit)
    return int(four_bit * pass_bytes(entry, precision) / pass_bytes(entry, "nf4"))


def free_memory(device: str) -> int | None:
    """Bytes of memory that are free on a device, as settings name it; None where that is unknown."""
    if on_gpu(device):
        import torch

        return int(torch.cuda.mem_get_info()[0])
    return free_ram()


def on_gpu(device: str) -> bool:
    """Whether models are computed on a CUDA device, as settings name the device."""
    if device.startswith("cuda"):
        return True
    if device != "auto":
        return False
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def choose(settings: AppSettings) -> tuple[Pair, bool]:
    """The pair for the target "auto": the largest that is on this disk and fits; it never begins a download.

    returns: the pair, and whether it is another than the one that is there for any machine
    """
    free = free_memory(settings.device)
    here = [
        pair
        for pair in sorted(pairs(), key=lambda pair: pair.memory_4bit_gb)
        if free is not None
        and SPARE_BYTES + _together(pair, settings.precision) <= free
        and not any(
            missing_bytes(entry, settings.cache_dir, settings.precision)
            for entry in (pair.target, pair.draft)
        )
    ]
    usual = next(pair for pair in pairs() if pair.name == DEFAULT_TARGET)
    chosen = here[-1] if here else usual
    return chosen, chosen is not usual


def _together(pair: Pair, precision: str) -> int:
    return memory_bytes(pair.target, precision) + memory_bytes(pair.draft, precision)
