"""Resolve a name or a path to model files on this disk."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.config.errors import Phrase, UserError
from specdemo.files import hub
from specdemo.files.blocks import BLOCKS_RECIPE, FileBlocks
from specdemo.files.catalogue import Entry, GgufFile, entries, find, pairs
from specdemo.files.folder import check_folder, weight_files
from specdemo.files.found import gguf_path, known_as, title_of
from specdemo.files.gguf import (
    RECIPE,
    check_gguf,
    convert_gguf,
    describe_gguf,
    read_once,
    reporting_damage,
    stored_as,
)
from specdemo.files.packing import (
    PACKING_RECIPE,
    NotReadable,
    copy_description,
    gguf_weights,
    pack,
    plan,
    safetensors_weights,
)
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.store import MAKING, file_sha256, is_complete, made_once, sweep

if TYPE_CHECKING:
    import torch

HUB_ID = re.compile(r"(?!\.)[\w.-]+/[\w.-]+")
PATH_SIGNS = {"/", "\\", "~"}
QUANTISATION = re.compile(r"[-.](I?Q\w+)\.gguf$", re.I)  # in the name of a catalogue file
PUBLISHED_BYTES = 2  # per weight: hubs store 16 bits
PACKED_PRECISION, PACKED_KINDS = "nf4", ("bfloat16", "float16")
BLOCKS = "file"
PACKING_RECIPES = {PACKED_PRECISION: PACKING_RECIPE, BLOCKS: BLOCKS_RECIPE}


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder in Hugging Face layout, and its source.

    revision: commit of the hub, or a hash of the file it was made from; "" for a local folder
    known: catalogue name of the model, also of a file in another quantisation; "" for other models
    stored: quantisation of the GGUF file's weights by llama.cpp's name, like Q4_K_M; "" for weights of 16 or 32 bits
    """

    folder: Path
    name: str
    revision: str
    _: KW_ONLY
    known: str = ""
    stored: str = ""


def resolve(
    name_or_path: str | Path,
    cache_dir: Path,
    progress: ProgressCallback = silent,
    pack_as: torch.dtype | None = None,
    forms: Sequence[str] = (PACKED_PRECISION,),
    suits: Callable[[Path], bool] | None = None,
) -> ModelFiles:
    """Find a catalogue name, hub id, folder, GGUF file or model of Ollama's; fetch and convert it as needed.

    pack_as: to store large matrices in fewer bits, the type of the other tensors; None for unchanged weights
    forms: of large matrices, the first one that is possible: file for a GGUF file's own blocks, nf4
    suits: whether own blocks suit the model that a folder describes; they do by default
    Raises UserError, also if the only form is file and the source has no such blocks.
    """
    text = str(name_or_path).strip()
    if not text:
        raise UserError("model.unnamed", names=_names())
    path = Path(text).expanduser()
    work = _Conversion(cache_dir / "models", progress, pack_as, tuple(forms), suits)
    for left in cache_dir.glob(f"*/{MAKING}*"):
        sweep(left.parent)
    if entry := find(text):
        return _from_entry(entry, cache_dir, work)
    if gguf := gguf_path(text):
        return _from_gguf(gguf, work)
    if path.is_dir():
        return _from_folder(path, work)
    if path.exists():
        raise UserError("model.unsupported_file", name=text)
    if HUB_ID.fullmatch(text):
        return _from_hub(text, text, None, work)
    raise UserError("files.missing", path=text) if set(text) & PATH_SIGNS else _unknown(text)


@dataclass(frozen=True, slots=True)
class _Source:
    """Weights of which folders in the cache are made: a GGUF file, which may still have to be fetched, or a model folder.

    stem: start of the names of these folders; content: of their recipes, identifies the weights and the conversion
    name: of the model; fetch: returns the file or the folder
    listed: whether it is the catalogue's very file, whose drafters were trained on its answers in 4-bit
    """

    stem: str
    content: str
    name: str
    fetch: Callable[[], Path]
    listed: bool = False

    def made(self, models: Path, form: str = "", kind: str = "") -> tuple[Path, str]:
        """Return a folder that is made of it, and its recipe. models: the folder of all of them

        form: of large matrices, nf4 or file, "" for unquantised ones; kind: bfloat16 or float16, type of the other tensors
        """
        if not form:
            return models / self.stem, self.content
        recipe = f"{PACKING_RECIPES[form]} {kind} {self.content}"
        return models / f"{self.stem}-{form}-{kind}", recipe


def _gguf_source(
    sha256: str, name: str, fetch: Callable[[], Path], *, listed: bool = False
) -> _Source:
    """Return the source of a GGUF file. listed: see `_Source`"""
    stem = f"{name}-{sha256[:12]}" if listed else f"gguf-{sha256[:16]}"
    return _Source(stem, f"{RECIPE} {sha256}", name, fetch, listed)


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Converts and packs models. models: the folder of converted models; pack_as, forms, suits: see `resolve`"""

    models: Path
    progress: ProgressCallback
    pack_as: torch.dtype | None
    forms: tuple[str, ...] = (PACKED_PRECISION,)
    suits: Callable[[Path], bool] | None = None

    def from_gguf(self, file: _Source) -> Path:
        """Return the folder of a GGUF file; make it if necessary."""
        forms = self.forms[-1:] if file.listed else self.forms
        for form in forms if self.pack_as is not None else ():
            try:
                return self._packed(file, form, partial(self._pack_gguf, file, form))
            except NotReadable as reason:
                if self.forms == (BLOCKS,):
                    raise UserError("model.other_blocks", name=file.name, reason=reason) from reason

        def fill(content: Path) -> None:
            convert_gguf(file.fetch(), content, self.progress)

        return made_once(
            *file.made(self.models), Phrase("disk.while_converting", name=file.name), fill
        )

    def _pack_gguf(self, file: _Source, form: str, content: Path) -> None:
        assert self.pack_as
        gguf = file.fetch()
        self.progress(Progress("convert", None, file.name))
        with reporting_damage(gguf), read_once():
            describe_gguf(gguf, content)
            if form == BLOCKS and self.suits and not self.suits(content):
                raise NotReadable("a model that the compiled pass does not run")
            planned = plan(content, self.pack_as)
            weights = gguf_weights(gguf, planned.shapes)
        own = FileBlocks(planned.head) if form == BLOCKS else None
        pack(content, planned, weights, self.pack_as, self.progress, own)

    def from_folder(self, source: _Source) -> Path:
        """Return the packed copy of a model folder, or the folder itself if a copy is unwanted or impossible."""
        folder, dtype = source.fetch(), self.pack_as
        if self.forms == (BLOCKS,):
            raise UserError("model.no_blocks", name=source.name)
        if dtype is None:
            return folder

        def fill(content: Path) -> None:
            copy_description(folder, content)
            planned = plan(content, dtype)
            weights = safetensors_weights(folder, source.name)
            pack(content, planned, weights, dtype, self.progress)

        try:
            return self._packed(source, PACKED_PRECISION, fill)
        except (NotReadable, UserError):  # a copy only saves time
            return folder

    def _packed(self, source: _Source, form: str, fill: Callable[[Path], None]) -> Path:
        kind = str(self.pack_as).removeprefix("torch.")
        doing = Phrase("disk.while_packing", name=source.name)
        return made_once(*source.made(self.models, form, kind), doing, fill)


def _from_entry(entry: Entry, cache_dir: Path, work: _Conversion) -> ModelFiles:
    if file := entry.gguf:
        fetch = partial(hub.fetch_gguf, file, cache_dir, work.progress)
        folder = work.from_gguf(_gguf_source(file.sha256, entry.name, fetch, listed=True))
        stored = QUANTISATION.search(file.file)
        kind = stored[1].upper() if stored else ""
        return ModelFiles(folder, entry.name, file.sha256[:12], known=entry.name, stored=kind)
    if entry.repo:
        return replace(_from_hub(entry.name, entry.repo, entry.revision, work), known=entry.name)
    return _shipped(entry)


def _from_hub(name: str, repo: str, revision: str | None, work: _Conversion) -> ModelFiles:
    folder, commit = hub.fetch(repo, revision, work.progress)
    stem = f"{repo.replace('/', '--')}-{commit[:12]}"
    source = _Source(stem, f"{repo} {commit}", name, lambda: folder)
    return ModelFiles(work.from_folder(source), name, commit)


def _shipped(entry: Entry) -> ModelFiles:
    folder = entry.folder
    weights = sorted(folder.glob("*.safetensors")) if folder else []
    if not folder or not weights:
        raise UserError("draft.not_installed")
    return ModelFiles(folder, entry.name, file_sha256(weights[0])[:12])


def _from_gguf(path: Path, work: _Conversion) -> ModelFiles:
    if not path.is_file():
        raise UserError("files.missing", path=path)
    check_gguf(path)
    digest = file_sha256(path, work.progress, path.name)
    whole = path.resolve()
    known, same = known_as(whole, digest)
    name = known.name if known and same else title_of(path)
    folder = work.from_gguf(_gguf_source(digest, name, lambda: whole, listed=same))
    check_folder(folder, name)
    files = ModelFiles(folder, name, digest[:12], stored=stored_as(whole))
    return replace(files, known=known.name) if known else files


def _from_folder(path: Path, work: _Conversion) -> ModelFiles:
    check_folder(path, str(path))
    folder = path.resolve()
    state = sorted(
        (str(one), found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        for one in {*folder.iterdir(), *weight_files(folder, folder.name)}
        if one.is_file() and (found := one.stat())
    )  # a copy with an old time of change has a new ctime
    digest = hashlib.sha256(repr(state).encode()).hexdigest()
    source = _Source(f"folder-{digest[:16]}", digest, folder.name, lambda: folder)
    return ModelFiles(work.from_folder(source), folder.name, "")


def _unknown(text: str) -> UserError:
    close = difflib.get_close_matches(
        text.lower(), [entry.name for entry in entries()], n=1, cutoff=0.5
    )
    if close:
        return UserError("model.unknown_close", name=text, close=close[0], names=_names())
    return UserError("model.unknown", name=text, names=_names())


def _names() -> str:
    return ", ".join(pair.name for pair in pairs())


def missing_bytes(entry: Entry, cache_dir: Path, precision: str) -> int:
    """Return the bytes still to be downloaded before the model can be loaded in a precision, which is not auto. Uses no network."""
    if file := entry.gguf:
        here = hub.has_gguf(file, cache_dir) or is_converted(entry.name, file, cache_dir, precision)
        return 0 if here else file.size
    if not entry.repo or hub.cached_folder(entry.repo, entry.revision) is not None:
        return 0
    return PUBLISHED_BYTES * entry.parameters


def is_converted(
    name: str, file: GgufFile, cache_dir: Path, precision: str, *, read: bool = False
) -> bool:
    """Check whether a catalogue model's GGUF file was converted for a precision. read: see `is_complete`"""
    fetch, models = partial(hub.fetch_gguf, file, cache_dir), cache_dir / "models"
    source = _gguf_source(file.sha256, name, fetch, listed=True)
    copies = [source.made(models)]
    if precision in PACKING_RECIPES:
        copies += [source.made(models, precision, kind) for kind in PACKED_KINDS]
    return any(is_complete(*copy, read=read) for copy in copies)
