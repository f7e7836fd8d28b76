"""Which bytes of a catalogue entry are still to be downloaded."""

from __future__ import annotations

from pathlib import Path

from specdemo.files import hub
from specdemo.files.catalogue import Entry
from specdemo.files.sources import packed_folder, recipe
from specdemo.files.store import is_complete
from specdemo.files.wheel import installed_gguf

PUBLISHED_BYTES = 2  # per weight: hubs store 16 bits
PACKED_PRECISION, PACKED_KINDS = "nf4", ("bfloat16", "float16")


def download_bytes(entry: Entry) -> int:
    """Return the download size of the whole model, without network access."""
    if file := entry.wheel or entry.gguf:
        return file.size
    return PUBLISHED_BYTES * entry.parameters if entry.repo else 0


def missing_bytes(entry: Entry, cache_dir: Path, precision: str) -> int:
    """Return the bytes still to be downloaded before the model can be loaded in a precision."""
    return 0 if _is_here(entry, cache_dir, precision) else download_bytes(entry)


def _is_here(entry: Entry, cache_dir: Path, precision: str) -> bool:
    if wheel := entry.wheel:
        return bool(installed_gguf(wheel)) or _was_made(
            entry.name, wheel.member_sha256, cache_dir, precision
        )
    if file := entry.gguf:
        return hub.has_gguf(file, cache_dir) or _was_made(
            entry.name, file.sha256, cache_dir, precision
        )
    return not entry.repo or hub.is_cached(entry.repo, entry.revision)


def _was_made(name: str, sha256: str, cache_dir: Path, precision: str) -> bool:
    """Check whether a conversion of a GGUF file is in the cache. sha256: of the GGUF file"""
    models, stem = cache_dir / "models", f"{name}-{sha256[:12]}"
    copies = [(models / stem, recipe(sha256))]
    if precision == PACKED_PRECISION:
        copies += [packed_folder(models, stem, recipe(sha256), kind) for kind in PACKED_KINDS]
    return any(is_complete(folder, made_from) for folder, made_from in copies)
