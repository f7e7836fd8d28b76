"""Facts about models before they are loaded: whether a pair fits, how much it would download and how fast it would be here.

Of published drafters: size, licence, and whether one is on this disk.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdemo.config.settings import AppSettings
from specdemo.engine.cost import CostProfile, best_rate
from specdemo.files import hub
from specdemo.files.catalogue import (
    DEFAULT_TARGET,
    CatalogueDrafter,
    Pair,
    draft_of,
    drafters,
    entries,
    find,
    find_drafter,
    pairs,
)
from specdemo.files.found import FoundModel
from specdemo.files.hub import CARD, PICKLES
from specdemo.files.progress import megabytes
from specdemo.files.sources import HUB_ID, missing_bytes
from specdemo.models.devices import on_gpu
from specdemo.models.memory import Way, free_on, memory_bytes, pass_bytes, way

SPARE_BYTES = 2_000_000_000  # reserved for the KV caches, activations and other programs
ACCEPTED_FRACTION = 0.65  # fraction of drafted tokens that is accepted, assumed for a draft of the target's own family
FAST_ENOUGH = 15.0  # tokens a second, with drafts: nearly as fast as one reads
LONGEST_DRAFT = 8  # drafted tokens a step
SMALL_ENOUGH = 0.5  # largest size of a proposed draft model, as a fraction of the target
WORTH_PROPOSING = 1.05  # smallest speedup
MEASURE = "greedy_agreement"  # name in a card: how often the drafter's most likely token is the target's; also by draft position


@dataclass(frozen=True, slots=True)
class Measured:
    """Passes that were timed on this machine. target: a catalogue name; profile: see `CostProfile`"""

    target: str
    precision: str
    profile: CostProfile


@dataclass(frozen=True, slots=True)
class Outlook:
    """Prediction for a pair.

    needed, free: bytes of memory
    download: bytes that are not on this disk
    plain, drafted: tokens a second, None if nothing was timed on this machine; drafted also if the pair has no drafter
    measured: whether passes of this target were timed here; else times of another are scaled by the bytes of a pass
    kept: fraction of first drafted tokens that is accepted, from which the drafted speed is calculated
    recorded: precision of the target with which the drafter's card recorded it; "" if it is assumed
    precision: of the target
    """

    needed: int
    free: int
    download: int
    plain: float | None = None
    drafted: float | None = None
    measured: bool = False
    kept: float = ACCEPTED_FRACTION
    recorded: str = ""
    precision: str = ""

    @property
    def fits(self) -> bool:
        """Whether there is room for it now."""
        return self.needed <= self.free

    def answers_fast(self, device: str) -> bool:
        """Whether it is FAST_ENOUGH; while nothing was timed on this machine, only a graphics card is."""
        if self.plain is None:
            return on_gpu(device)
        return max(self.plain, self.drafted or 0.0) >= FAST_ENOUGH


def outlook(pair: Pair, way: Way, cache_dir: Path, free: int, known: Sequence[Measured]) -> Outlook:
    """Predict a pair of the catalogue. free: bytes of memory; known: passes timed on the same device, the newest last"""
    precision = way.of(pair.target).precision
    needed = _together(pair, way)
    download = sum(missing_bytes(one, cache_dir, way.of(one).precision) for one in pair.models)
    found = Outlook(needed, free, download, precision=precision)
    own = [one for one in known if (one.target, one.precision) == (pair.name, precision)]
    profile = own[-1].profile if own else _scaled(pair, way, known)
    if profile is None:
        return found
    recorded = acceptance(pair)
    kept = recorded or (ACCEPTED_FRACTION,)
    plain, drafted = rates(profile, kept)
    return replace(
        found,
        plain=plain,
        drafted=drafted if pair.draft else None,
        measured=bool(own),
        kept=kept[0],
        recorded=pair.draft.recorded["card"]["precision"] if pair.draft and recorded else "",
    )


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A draft model that splits text as the target does. target, draft: as options name them

    speedup: modelled, against plain decoding; None if nothing was timed on this machine
    """

    target: str
    draft: str
    pair: Pair
    speedup: float | None
    download: int

    def __str__(self) -> str:
        rate = "its speed is unknown until a model was timed on this machine"
        if self.speedup:
            rate = f"about {self.speedup:.1f} times as fast as plain decoding, modelled if {ACCEPTED_FRACTION:.0%} is accepted"
        fetched = f"; downloads {megabytes(self.download)}" if self.download else ""
        names = f"--target {shlex.quote(self.target)} --draft {shlex.quote(self.draft)}"
        return f"{self.draft} splits text in the same way and can draft ({rate}{fetched}): python -m specdemo run {names} PROMPT"


def suggest(
    target: FoundModel, found: Sequence[FoundModel], predict: Callable[[Pair], Outlook]
) -> Suggestion | None:
    """Return the draft model with the best forecast for a target without a drafter, from this machine or the catalogue."""
    model = target.entry
    if not model.tokenizer:
        return None
    here = {one.name: one for one in found}
    drafts = {name: one.entry for name, one in here.items()}
    drafts |= {one.name: one for one in entries() if one.name not in here}
    suggestions = []
    for name, draft in drafts.items():
        if draft.tokenizer != model.tokenizer:
            continue
        if draft.parameters > SMALL_ENOUGH * model.parameters:
            continue
        if name in here and not here[name].is_read:
            continue
        pair = Pair(model, draft)
        seen = predict(pair)
        speedup = seen.drafted / seen.plain if seen.drafted and seen.plain else None
        if speedup is None or speedup >= WORTH_PROPOSING:
            suggestions.append(Suggestion(target.name, name, pair, speedup, seen.download))
    return max(suggestions, key=lambda one: (one.speedup or 0, -one.download), default=None)


def to_download(
    target: str, draft: str, way: Way, cache_dir: Path, trained: str = "auto"
) -> int | None:
    """Return the bytes that loading these models would download; None if only the hub has the sizes. target, draft: as settings name them"""
    total = 0
    for name in (target, draft_of(target, draft, trained) or "none"):
        if entry := find(name):
            total += missing_bytes(entry, cache_dir, way.of(entry).precision)
        elif HUB_ID.fullmatch(name) and not (Path(name).exists() or hub.cached_folder(name, None)):
            return None
    return total


def acceptance(pair: Pair) -> tuple[float, ...]:
    """Return the probability that a drafted token is the target's own, greedy, if those before it are: by draft position.

    From the card that `train` wrote; the last value applies to later positions too. Empty for pairs without a card of
    their own.
    """
    card = pair.draft.recorded.get("card", {}) if pair.draft else {}
    if card.get("target") != pair.name:
        return ()
    results: Mapping[str, float] = card.get("results", {})
    names = (f"{MEASURE}_{place}" for place in range(1, LONGEST_DRAFT + 1))
    by_place = tuple(results[name] for name in itertools.takewhile(results.__contains__, names))
    return by_place or tuple(filter(None, (results.get(MEASURE),)))


def rates(
    profile: CostProfile, kept: Sequence[float] = (ACCEPTED_FRACTION,)
) -> tuple[float, float]:
    """Return tokens a second without drafts, and with drafts of the best length. kept: see `acceptance`"""
    step = profile.draft_step
    lengths = range(LONGEST_DRAFT + 1 if step else 1)
    chances = [kept[min(position, len(kept) - 1)] for position in range(LONGEST_DRAFT)]

    def seconds(drafted: int) -> float:
        return profile.verify_seconds(1 + drafted) + drafted * (step or 0.0)

    return 1 / seconds(0), best_rate(chances, seconds, lengths)


def _scaled(pair: Pair, way: Way, known: Sequence[Measured]) -> CostProfile | None:
    """Return the times of the target that is nearest in size, scaled by the bytes that a pass reads; the fastest of several.

    Those in the same precision come first: other kernels have other costs for each byte.
    """
    wanted, precision = pass_bytes(pair.target, way), way.of(pair.target).precision
    bases = [
        (one.precision != precision, abs(math.log(size / wanted)), size, one.profile)
        for one in known
        if (entry := find(one.target))
        and (size := pass_bytes(entry, replace(way, precision=one.precision)))
    ]
    if not bases:
        return None
    *_, size, profile = min(bases, key=lambda base: (*base[:2], base[3].verify_seconds(1)))
    factor = wanted / size
    verify = tuple((rows, factor * seconds) for rows, seconds in profile.verify)
    step = pass_bytes(pair.draft, way) / size * profile.verify_seconds(1) if pair.draft else None
    return CostProfile(verify, step)


def choose(settings: AppSettings, known: Sequence[Measured] | None = None) -> tuple[Pair, bool]:
    """Return the largest pair that is on this disk, fits and, for the target "auto", is FAST_ENOUGH.

    It never starts a download.

    known: passes timed on the device; None if the speed does not matter
    returns: the pair, and whether it differs from the default pair
    """
    free, loaded = free_on(settings.device), way(settings)
    usual = next(pair for pair in pairs() if pair.name == DEFAULT_TARGET)
    for pair in sorted(pairs(), key=lambda pair: _together(pair, loaded), reverse=True):
        found = outlook(pair, loaded, settings.cache_dir, free - SPARE_BYTES, known or ())
        if (
            found.fits
            and not found.download
            and (known is None or found.answers_fast(settings.device))
        ):
            return pair, pair is not usual
    return usual, False


def _together(pair: Pair, way: Way) -> int:
    return sum(memory_bytes(entry, way) for entry in pair.models)


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
    return [
        _stored(hub.cached_folder(one.repo, one.revision, drafter=True), one.repo, one.family)
        for one in drafters()
        if one.target.lower() in names - {""}
    ]


def offer(name: str, *, ask: bool) -> Offer:
    """Return a drafter by its hub id, with `@` and a revision if need be, or folder.

    ask: query the hub if it is not here. Raises UserError if the hub does not have it, or cannot be reached
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return _stored(path, name, "")
    repo, _, wanted = name.partition("@")
    known = find_drafter(repo) or CatalogueDrafter(repo, "", "")
    family, revision = known.family, wanted or known.revision
    found = _stored(hub.cached_folder(known.repo, revision, drafter=True), name, family)
    if found.here or not ask:
        return found
    size, licence = hub.drafter_facts(known.repo, revision)
    return Offer(name, family, size=size, licence=licence)


def licence_of(folder: Path) -> str:
    """Return the licence that the first lines of a card name; "" for none."""
    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if not text.startswith("---"):
        return ""
    found = LICENCE.search(text[3:].split("\n---", 1)[0])
    return found[1] if found else ""


def _stored(folder: Path | None, name: str, family: str) -> Offer:
    """Return the offer of a drafter. folder: None if it is not on this disk"""
    if folder is None:
        return Offer(name, family)
    files = list(folder.glob("*.safetensors")) or [folder / one for one in PICKLES]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return Offer(name, family, here=True, size=size, licence=licence_of(folder))
