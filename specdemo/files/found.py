"""Find the models that other programs have stored on this machine: LM Studio, Ollama and the hub. Nothing leaves the machine."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.files import hub
from specdemo.files.catalogue import Entry, entries, find
from specdemo.files.folder import GGUF_PART, count_parameters
from specdemo.files.gguf import reads
from specdemo.files.header import Header, is_gguf, read_header, recognise, tokens_digest

OLLAMA_PREFIX = "ollama:"  # start of a target's name
OLLAMA_FOLDERS = ("~/.ollama/models", "/usr/share/ollama/.ollama/models")
LM_STUDIO_FOLDERS = ("~/.lmstudio/models", "~/.cache/lm-studio/models")
WEIGHTS = "application/vnd.ollama.image.model"  # type of the layer with the weights
USUAL_HOST, USUAL_OWNER = "registry.ollama.ai", "library"  # Ollama leaves them out of a name


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this disk.

    name: as `--target` accepts it; source: the program or cache that stored it
    header: of a GGUF file; None for a folder; known: the catalogue model with its norms
    """

    name: str
    source: str
    path: Path
    header: Header | None = None
    known: Entry | None = None

    @property
    def is_read(self) -> bool:
        """Whether models of its family can be loaded."""
        return self.header is None or reads(self.header.family)

    @property
    def entry(self) -> Entry:
        """Return the model as an entry like those of the catalogue, whose numbers predict its speed."""
        if self.header is None:
            parameters, tokenizer = count_parameters(self.path, self.name), tokenizer_of(self.path)
            return Entry(self.name, self.name, "", parameters, "", tokenizer=tokenizer)
        header, known = self.header, self.known
        name = known.name if known else self.name
        file = known.gguf if known else None
        listed = file and file.size == self.path.stat().st_size  # its digest takes seconds
        head, own_head = header.tensors.get("token_embd.weight"), "output.weight" in header.tensors
        return Entry(
            name, self.name, "", header.sizes.total(), "", own_head=own_head,
            head_parameters=math.prod(head.shape) if head else 0,
            blocks=0.0 if listed else header.block_bytes, norms=header.norms, tokenizer=header.tokenizer,
        )  # fmt: skip


@cache
def tokenizer_of(folder: Path) -> str:
    """Return the digest of a folder's vocabulary, the same as in the `Header` of a file with it; "" if it cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        said = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        words = said["model"]["vocab"]
        listed = isinstance(words, list)  # with the scores of sentencepiece
        ids = {word: at for at, (word, _) in enumerate(words)} if listed else dict(words)
        ids |= {one["content"]: one["id"] for one in said["added_tokens"]}
        tokens = [word.encode() for word in sorted(ids, key=ids.__getitem__)]
        return tokens_digest(b"".join(struct.pack("<Q", len(one)) + one for one in tokens))
    return ""


def ollama_models() -> dict[str, Path]:
    """Return the weights of Ollama's models by name and tag."""
    own = os.environ.get("OLLAMA_MODELS")
    found: dict[str, Path] = {}
    for name in (own,) if own else OLLAMA_FOLDERS:
        folder = Path(name).expanduser()
        for manifest in _files(folder / "manifests"):
            with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
                layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
                digest = next(one["digest"] for one in layers if one["mediaType"] == WEIGHTS)
                blob = folder / "blobs" / Path(digest.replace(":", "-")).name
                *path, tag = manifest.relative_to(folder / "manifests").parts
                shown = [part for part in path if part not in (USUAL_HOST, USUAL_OWNER)]
                if blob.is_file():
                    found.setdefault(f"{'/'.join(shown)}:{tag}", blob)
    return found


def ollama_file(text: str) -> Path:
    """Return the weights of one of Ollama's models. text: "ollama:", a name and, unless it is `latest`, ":" and a tag"""
    name, models = text[len(OLLAMA_PREFIX) :], ollama_models()
    blob = models.get(name) or models.get(f"{name}:latest")
    if blob is None:
        raise UserError("model.not_in_ollama", name=name, names=", ".join(sorted(models)) or "-")
    return blob


def gguf_path(text: str) -> Path | None:
    """Return the GGUF file that a target names, by path or by Ollama's name; None for other targets. Raises UserError."""
    if text.lower().startswith(OLLAMA_PREFIX):
        return ollama_file(text)
    path = Path(text).expanduser()
    return path if text.lower().endswith(".gguf") or is_gguf(path) else None


def title_of(path: Path) -> str:
    """Return the name of a GGUF file for people: a blob's is in Ollama's manifests."""
    if path.suffix.lower() == ".gguf":
        return path.stem
    blob = path.resolve()
    named = (name for name, one in ollama_models().items() if one.resolve() == blob)
    return next(named, path.name)


def known_as(path: Path, sha256: str) -> tuple[Entry | None, bool]:
    """Return the catalogue model of a GGUF file, and whether it is the catalogue's very file."""
    for entry in entries():
        if entry.gguf and entry.gguf.sha256 == sha256:
            return entry, True
    with suppress(ValueError):
        return recognise(read_header(path)), False
    return None, False


def found_models(cache_dir: Path) -> list[FoundModel]:
    """Return the language models on this machine, each file once."""
    found: dict[Path, FoundModel] = {}
    for name, source, path in _candidates(cache_dir):
        real = path.resolve()
        if real in found or not path.exists():
            continue
        if path.is_dir():
            found[real] = FoundModel(name, source, path, known=find(name))
        elif is_gguf(path) and not GGUF_PART.search(path.name):
            with suppress(OSError, ValueError):
                header = read_header(path)
                if header.generates:
                    found[real] = FoundModel(name, source, path, header, recognise(header))
    return sorted(found.values(), key=lambda one: (one.source, one.name))


def _candidates(cache_dir: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield name, source and path of everything that may be a model."""
    from huggingface_hub import constants

    cached, own = Path(constants.HF_HUB_CACHE), cache_dir / "gguf"
    for folder in LM_STUDIO_FOLDERS:
        stored = _files(Path(folder).expanduser(), ".gguf")
        yield from ((str(path), "LM Studio", path) for path in stored)
    for name, path in ollama_models().items():
        yield f"{OLLAMA_PREFIX}{name}", "Ollama", path
    yield from ((str(path), "hub cache", path) for path in _files(cached, ".gguf"))
    yield from ((str(path), "specdemo's cache", path) for path in _files(own, ".gguf"))
    for one in sorted(cached.glob("models--*--*")):
        repo = one.name.removeprefix("models--").replace("--", "/", 1)
        if whole := hub.cached_folder(repo, None):
            yield repo, "hub cache", whole


def _files(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Yield the files below a folder, of which some parts may be closed to this user."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in sorted(names) if name.lower().endswith(suffix))
