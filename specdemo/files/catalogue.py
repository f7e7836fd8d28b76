"""The catalogue: known models, their pinned revisions, and the pairs that the menu offers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AUTHORS, PRESET_NAMES, Recommended, RunSettings, Sampling
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.files.folder import trained_facts

GENERATION_CONFIG = "generation_config.json"
CATALOGUE_FILE = Path(__file__).with_name("catalogue.json")
DEFAULT_TARGET = "smollm2-135m-instruct"
OWN_KIND = "feature"  # kind of drafter that replaces a draft model
OWN_TITLE = "a drafter of its own that ships with specdemo"


@dataclass(frozen=True, slots=True)
class GgufPart:
    """A range of a GGUF file that a package on the package index carries. first: its offset in the file; size: bytes"""

    package: str
    version: str
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A GGUF file that can be downloaded. size: bytes

    repo: on the hub; "" for a file that only the package index carries
    parts: packages with the file's bytes: `package` with the part's number, `version`, and `size` of all but the last
    """

    repo: str
    file: str
    sha256: str
    size: int
    parts: JsonView | None = None

    def part_at(self, offset: int) -> GgufPart | None:
        """Return the part with the byte at this offset; None at the end, and for a file without parts."""
        if self.parts is None or offset >= self.size:
            return None
        size = int(self.parts["size"])
        number, first = offset // size + 1, offset // size * size
        package = str(self.parts["package"]).format(number=number)
        return GgufPart(package, self.parts["version"], first, min(size, self.size - first))


@dataclass(frozen=True, slots=True)
class Entry:
    """One model: weights in a hub `repo` at `revision`, in a `gguf` file, or `shipped` under assets.

    revision: 40 hexadecimal digits of a commit; None means the branch main
    gguf: file that is read instead of the repository's own weights, if it has both
    draft: catalogue name of its draft model
    menu: whether it is offered as a target
    head_parameters: weights of the output head, which every pass reads unquantised; 0 if the head is borrowed
    own_head: whether embedding and head are different matrices
    sampling: recommended values if the model's own files contain none, and their `origin`; see `Recommended`
    blocks: bytes of memory for a weight if `auto` runs it in the blocks of its file; 0 for the catalogue's own files,
        whose drafters were trained on answers in NF4
    norms, tokenizer: digests of a GGUF file's header, see `files.header.Header`; "" if unknown
    """

    name: str
    title: str
    licence: str
    parameters: int
    suits: str
    repo: str | None = None
    revision: str | None = None
    gguf: GgufFile | None = None
    shipped: str | None = None
    draft: str | None = None
    menu: bool = True
    head_parameters: int = 0
    own_head: bool = False
    sampling: JsonView | None = None
    blocks: float = 0.0
    norms: str = ""
    tokenizer: str = ""

    @property
    def folder(self) -> Path | None:
        """Folder of shipped weights, whether or not it exists."""
        return ASSETS / self.shipped if self.shipped else None

    @property
    def recorded(self) -> JsonView:
        """The facts of a shipped drafter, see `trained_facts`; empty for others."""
        return trained_facts(self.folder) if self.folder else {}


@dataclass(frozen=True, slots=True)
class CatalogueDrafter:
    """A drafter that others have published. Its card, which is fetched with it, names the licence.

    repo: on the hub; revision: as in `Entry`
    family: format of its files; target: catalogue name or hub id of the model that it was trained for
    """

    repo: str
    family: str
    target: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its drafter: one choice in the menu. draft: None if only methods without a draft model work"""

    target: Entry
    draft: Entry | None

    @property
    def name(self) -> str:
        """The target's name also names the pair."""
        return self.target.name

    @property
    def title(self) -> str:
        return " + ".join(entry.title for entry in self.models)

    @property
    def models(self) -> tuple[Entry, ...]:
        """The models to load: the target, and the draft if there is one."""
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def licence(self) -> str:
        """The licences of its models, without repetition."""
        return " and ".join(dict.fromkeys(entry.licence for entry in self.models))


def _tables() -> Json:
    tables: Json = json.loads(CATALOGUE_FILE.read_text(encoding="utf-8"))
    return tables


@cache
def entries() -> tuple[Entry, ...]:
    """Return every model of the catalogue file, in its order."""
    rows = _tables()["models"]
    return tuple(
        Entry(**row | ({"gguf": GgufFile(**row["gguf"])} if "gguf" in row else {})) for row in rows
    )


def find(name: str) -> Entry | None:
    """Return the entry with this catalogue name or hub id; case is ignored."""
    wanted = name.strip().lower()
    for entry in entries():
        if wanted in (entry.name, (entry.repo or "").lower()):
            return entry
    return None


@cache
def pairs() -> tuple[Pair, ...]:
    """Return the choices of the menu: every target with its drafter."""
    known = {entry.name: entry for entry in entries()}
    return tuple(
        Pair(entry, own_drafter(entry.name) or known.get(entry.draft or ""))
        for entry in entries()
        if entry.menu and not entry.shipped
    )


@cache
def drafters() -> tuple[CatalogueDrafter, ...]:
    """Return the published drafters, in the catalogue's order."""
    return tuple(CatalogueDrafter(**row) for row in _tables()["drafters"])


def find_drafter(repo: str) -> CatalogueDrafter | None:
    """Return the published drafter with this hub id; case is ignored."""
    wanted = repo.strip().lower()
    return next((one for one in drafters() if one.repo.lower() == wanted), None)


def partner(target: str) -> str | None:
    """Return the draft model that suits a target, given by catalogue name or hub id; None if none is known."""
    entry = find(target)
    return entry.draft if entry else None


def has_shipped_draft(target: str) -> bool:
    """Return whether the draft model that suits a target comes with the program: then it is loaded in any case."""
    draft = find(partner(target) or "")
    return draft is not None and bool(draft.shipped)


def trained_folder(target: str, wanted: str = "auto") -> Path:
    """Return the folder of the drafters trained for a target, with a subfolder per kind. wanted: "auto" for shipped ones, or a folder"""
    shipped = ASSETS / "drafts" / f"{target}-trained"
    return shipped if wanted == "auto" else Path(wanted).expanduser()


def own_drafter(target: str, wanted: str = "auto") -> Entry | None:
    """Return the trained drafter that replaces a draft model of a target, as an entry without a name; None if there is none.

    wanted: as in `trained_folder`, or "none"
    """
    if wanted == "none" or has_shipped_draft(target):
        return None
    entry = find(target)
    folder = trained_folder(entry.name if entry else target, wanted) / OWN_KIND
    about = Entry("", OWN_TITLE, "Apache-2.0", 0, "", shipped=str(folder))
    return about if about.recorded else None


def draft_of(target: str, draft: str, trained: str) -> str | None:
    """Return the draft model that is loaded for settings of these names; None for none."""
    if draft != "auto":
        wanted: str | None = draft
    else:
        wanted = None if own_drafter(target, trained) else partner(target)
    return None if wanted in (None, "", "none") else wanted


def recommended(folder: Path, name: str) -> Recommended:
    """Return the sampling recommended for a model; greedy if there is no recommendation.

    name: in the catalogue, or of a file or a folder that starts with such a name
    """
    published = _published_sampling(folder)
    if published is not None:
        return Recommended(published, AUTHORS)
    entry = find(name)
    if entry is None:
        known = (one for one in entries() if name.lower().startswith(one.name))
        entry = max(known, key=lambda one: len(one.name), default=None)
    if entry is None or not entry.sampling:
        return Recommended()
    return Recommended(_sampling_from(entry.sampling), str(entry.sampling.get("origin", AUTHORS)))


def _published_sampling(folder: Path) -> Sampling | None:
    """Return the sampling in a model's own file; None if the file is missing, damaged or without sampling values."""
    try:
        found = json.loads((folder / GENERATION_CONFIG).read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not any(
            name in found for name in ("do_sample", *PRESET_NAMES)
        ):
            return None
        if not found.get("do_sample", "temperature" in found):
            found |= {"temperature": 0, "top_k": 0, "top_p": 1}
        return _sampling_from(found)
    except (OSError, ValueError, UserError):
        return None


def _sampling_from(found: JsonView) -> Sampling:
    """Return the sampling with these values; the default temperature is 1. Raises UserError."""
    values = {name: found[name] for name in PRESET_NAMES if found.get(name) is not None}
    return RunSettings.from_values({"temperature": 1, **values}).sampling
