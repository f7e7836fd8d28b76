"""Facts about published drafters before one is loaded: size, licence, and whether it is on this disk. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from specdemo.files import hub
from specdemo.files.catalogue import CatalogueDrafter, drafters, find, find_drafter
from specdemo.files.hub import CARD, PICKLES

LICENCE = re.compile(r"^license:\s*[\"']?([\w.\-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Offer:
    """A published drafter that can be loaded.

    name: hub id or folder; family: "" if only its files determine it
    here: on this disk; size: bytes, None if only the hub has them; licence: "" if its card names none, or is not here
    """

    name: str
    family: str = ""
    here: bool = False
    size: int | None = None
    licence: str = ""


def offers(target: str) -> list[Offer]:
    """Return the catalogue's drafters for a target. Uses no network."""
    entry = find(target)
    names = {target.strip().lower()}
    if entry:
        names |= {entry.name, (entry.repo or "").lower()}
    return [_on_disk(one) for one in drafters() if one.target.lower() in names - {""}]


def offer(name: str, *, ask: bool) -> Offer:
    """Return a drafter by its hub id, with `@` and a revision if need be, or folder.

    ask: query the hub if it is not here. Raises UserError if the hub does not have it, or cannot be reached
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return _from(path, name, "")
    repo, _, revision = name.partition("@")
    known = find_drafter(repo)
    if revision or not known:
        known = CatalogueDrafter(repo, known.family if known else "", "", revision or None)
    found = _on_disk(known, name)
    if found.here or not ask:
        return found
    size, licence = hub.drafter_facts(repo, known.revision)
    return Offer(name, known.family, size=size, licence=licence)


def licence_of(folder: Path) -> str:
    """Return the licence that the first lines of a card name; "" for none."""
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if not text.startswith("---"):
        return ""
    found = LICENCE.search(text[3:].split("\n---", 1)[0])
    return found[1] if found else ""


def _on_disk(one: CatalogueDrafter, name: str = "") -> Offer:
    folder = hub.cached_drafter(one.repo, one.revision)
    return (
        _from(folder, name or one.repo, one.family)
        if folder
        else Offer(name or one.repo, one.family)
    )


def _from(folder: Path, name: str, family: str) -> Offer:
    files = list(folder.glob("*.safetensors")) or [folder / one for one in PICKLES]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return Offer(name, family, here=True, size=size, licence=licence_of(folder))
