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
from specdemo.files.store import (
    MAKING,
    file_sha256,
    is_complete,
    made_once,
    sweep,
)

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
    path, work = (
        Path(text).expanduser(),
        _Conversion(cache_dir / "models", progress, pack_as, tuple(forms), suits),
    )
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
class _Gguf:
    """A GGUF file that may still have to be fetched.

    stem: start of the names of its conversions; fetch: returns the file
    listed: whether it is the catalogue's very file, whose drafters were trained on its answers in 4-bit
    """

    stem: str
    sha256: str
    name: str
    fetch: Callable[[], Path]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Converts and packs models. models: the folder of converted models; pack_as, forms, suits: see `resolve`"""

    models: Path
    progress: ProgressCallback
    pack_as: torch.dtype | None
    forms: tuple[str, ...] = (PACKED_PRECISION,)
    suits: Callable[[Path], bool] | None = None

    def from_gguf(self, file: _Gguf) -> Path:
        """Return the folder of a GGUF file; make it if necessary."""
        made_from = recipe(file.sha256)
        if self.pack_as is not None:
            for form in self.forms[-1:] if file.listed else self.forms:
                fill = partial(self._pack_gguf, file, self.pack_as, form)
                try:
                    return self._packed(file.stem, made_from, file.name, fill, form)
                except NotReadable as reason:
                    if self.forms == (BLOCKS,):
                        raise UserError(
                            "model.other_blocks", name=file.name, reason=reason
                        ) from reason
        doing = Phrase("disk.while_converting", name=file.name)

        def fill_unpacked(content: Path) -> None:
            convert_gguf(file.fetch(), content, self.progress)

        return made_once(self.models / file.stem, made_from, doing, fill_unpacked)

    def _pack_gguf(self, file: _Gguf, dtype: torch.dtype, form: str, content: Path) -> None:
        gguf = file.fetch()
        self.progress(Progress("convert", None, file.name))
        with reporting_damage(gguf), read_once():
            describe_gguf(gguf, content)
            if form == BLOCKS and self.suits and not self.suits(content):
                raise NotReadable("a model that the compiled pass does not run")
            planned = plan(content, dtype)
            weights = gguf_weights(gguf, planned.shapes)
        own = FileBlocks(planned.head) if form == BLOCKS else None
        pack(content, planned, weights, dtype, self.progress, own)

    def from_folder(self, folder: Path, stem: str, made_from: str, name: str) -> Path:
        """Return the packed copy of a model folder, or the folder itself if a copy is unwanted or impossible."""
        if self.forms == (BLOCKS,):
            raise UserError("model.no_blocks", name=name)
        if self.pack_as is None:
            return folder
        dtype = self.pack_as

        def fill(content: Path) -> None:
            copy_description(folder, content)
            planned = plan(content, dtype)
            weights = safetensors_weights(folder, name)
            pack(content, planned, weights, dtype, self.progress)

        try:
            return self._packed(stem, made_from, name, fill, PACKED_PRECISION)
        except (NotReadable, UserError):  # a copy only saves time
            return folder

    def _packed(
        self,
        stem: str,
        made_from: str,
        name: str,
        fill: Callable[[Path], None],
        form: str,
    ) -> Path:
        kind = str(self.pack_as).removeprefix("torch.")
        folder, whole = packed_folder(self.models, stem, made_from, kind, form)
        return made_once(folder, whole, Phrase("disk.while_packing", name=name), fill)


def packed_folder(
    models: Path, stem: str, made_from: str, kind: str, form: str = PACKED_PRECISION
) -> tuple[Path, str]:
    """Return the folder of a model's packed copy, and its recipe.

    kind: bfloat16 or float16, type of unquantised tensors; form: nf4 or file
    """
    return models / f"{stem}-{form}-{kind}", f"{PACKING_RECIPES[form]} {kind} {made_from}"


def _from_entry(entry: Entry, cache_dir: Path, work: _Conversion) -> ModelFiles:
    if file := entry.gguf:
        fetch = partial(hub.fetch_gguf, file, cache_dir, work.progress)
        stem = _stem(entry.name, file.sha256)
        folder = work.from_gguf(_Gguf(stem, file.sha256, entry.name, fetch, listed=True))
        stored = QUANTISATION.search(file.file)
        kind = stored[1].upper() if stored else ""
        return ModelFiles(folder, entry.name, file.sha256[:12], known=entry.name, stored=kind)
    if entry.repo:
        return replace(_from_hub(entry.name, entry.repo, entry.revision, work), known=entry.name)
    return _shipped(entry)


def _stem(name: str, sha256: str) -> str:
    """Return the start of the names of the conversions of a catalogue model's GGUF file."""
    return f"{name}-{sha256[:12]}"


def _from_hub(name: str, repo: str, revision: str | None, work: _Conversion) -> ModelFiles:
    folder, commit = hub.fetch(repo, revision, work.progress)
    stem = f"{repo.replace('/', '--')}-{commit[:12]}"
    folder = work.from_folder(folder, stem, f"{repo} {commit}", name)
    return ModelFiles(folder, name, commit)


def _shipped(entry: Entry) -> ModelFiles:
    folder = entry.folder
    weights = sorted(folder.glob("*.safetensors")) if folder else []
    if not folder or not weights:
        raise UserError("draft.not_installed")
    return ModelFiles(folder, entry.name, file_sha256(weights[0])[:12])


def recipe(gguf_sha256: str) -> str:
    """Return the recipe of a converted folder: source and version of the conversion."""
    return f"{RECIPE} {gguf_sha256}"


def _from_gguf(path: Path, work: _Conversion) -> ModelFiles:
    if not path.is_file():
        raise UserError("files.missing", path=path)
    check_gguf(path)
    digest = file_sha256(path, work.progress, path.name)
    whole = path.resolve()
    known, same = known_as(whole, digest)
    stem = _stem(known.name, digest) if known and same else f"gguf-{digest[:16]}"
    name = known.name if known and same else title_of(path)
    file = _Gguf(stem, digest, name, lambda: whole, listed=same)
    folder = work.from_gguf(file)
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
    made = work.from_folder(folder, f"folder-{digest[:16]}", digest, folder.name)
    return ModelFiles(made, folder.name, "")


def _unknown(text: str) -> UserError:
    close = difflib.get_close_matches(
        text.lower(), [entry.name for entry in entries()], n=1, cutoff=0.5
    )
    if close:
        return UserError("model.unknown_close", name=text, close=close[0], names=_names())
    return UserError("model.unknown", name=text, names=_names())


def _names() -> str:
    return ", ".join(pair.name for pair in pairs())


def download_bytes(entry: Entry) -> int:
    """Return the download size of the whole model, without network access."""
    if entry.gguf:
        return entry.gguf.size
    return PUBLISHED_BYTES * entry.parameters if entry.repo else 0


def missing_bytes(entry: Entry, cache_dir: Path, precision: str) -> int:
    """Return the bytes still to be downloaded before the model can be loaded in a precision, which is not auto."""
    return 0 if _is_present(entry, cache_dir, precision) else download_bytes(entry)


def _is_present(entry: Entry, cache_dir: Path, precision: str) -> bool:
    if file := entry.gguf:
        return hub.has_gguf(file, cache_dir) or is_converted(entry.name, file, cache_dir, precision)
    return not entry.repo or hub.cached_folder(entry.repo, entry.revision) is not None


def is_converted(
    name: str, file: GgufFile, cache_dir: Path, precision: str, *, read: bool = False
) -> bool:
    """Check whether a catalogue model's GGUF file was converted for a precision. read: see `is_complete`"""
    models, stem, made_from = cache_dir / "models", _stem(name, file.sha256), recipe(file.sha256)
    copies = [(models / stem, made_from)]
    if precision in PACKING_RECIPES:
        copies += [packed_folder(models, stem, made_from, kind, precision) for kind in PACKED_KINDS]
    return any(is_complete(folder, whole, read=read) for folder, whole in copies)
