"""Fetch models from the Hugging Face hub: pinned revisions, safe files, one UserError for each failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from specdemo.config.errors import Phrase, UserError
from specdemo.files.catalogue import GENERATION_CONFIG, HubGguf
from specdemo.files.folder import (
    broken_files,
    check_causal_lm,
    check_folder,
    read_config,
    weight_files,
)
from specdemo.files.progress import (
    Progress,
    ProgressCallback,
    bytes_progress,
    folder_bytes,
    silent,
    watched,
)
from specdemo.files.store import alone, check_space, file_sha256, reporting_full_disk

FILES = [
    "*.safetensors",
    "*.json",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "LICENSE*",
]
NOT_FILES = ["*/*", "consolidated*"]  # other formats and precisions of the same weights
CARD = "README.md"
PICKLES = ("pytorch_model.bin",)  # drafter weights that are read as tensors alone
HTTP_CLIENTS = ("http", "requests", "urllib3")
FACTS_TIMEOUT_SECONDS = 10.0  # for facts about a drafter that is not loaded yet
ATTEMPTS = 2  # a file that arrives damaged is fetched a second time


def cached_folder(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a repository that is complete on this disk, without network access."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                repo, revision=revision, local_files_only=True, allow_patterns=["config.json"]
            )
        )
        check_folder(folder, repo)
    except (OSError, ValueError, UserError):  # the hub's own errors for "not here" are OSErrors
        return None
    return folder


def is_cached(repo: str, revision: str | None) -> bool:
    """Check whether a model can be loaded without the network."""
    return cached_folder(repo, revision) is not None


def fetch(repo: str, revision: str | None, progress: ProgressCallback = silent) -> tuple[Path, str]:
    """Return the folder of a repository and its commit; download missing and damaged files.

    A pinned revision that is complete on disk needs no network. A broken transfer continues at its last byte.
    """
    if revision and (folder := cached_folder(repo, revision)):
        return folder, revision
    try:
        with _reporting(repo, revision):
            return _download(repo, revision, progress)
    except Unreachable:
        if folder := cached_folder(repo, revision):  # main, as it was the last time
            return folder, folder.name
        raise


class Unreachable(UserError):
    """The hub did not answer; files on this disk may suffice."""


def fetch_gguf(
    file: HubGguf, cache_dir: Path, progress: ProgressCallback = silent, repo: str = ""
) -> Path:
    """Return a GGUF file of the hub whose content has the catalogue's digest.

    It is stored in specdemo's own cache, where a later process continues an interrupted transfer.

    repo: of the model itself, whose `generation_config` is fetched too
    """
    found = _cached_file(file.repo, file.file)
    if found and _is_right(found, file, progress):
        return found
    path = cache_dir / "gguf" / file.sha256[:12] / file.file
    with alone(path):
        if path.is_file() and _is_right(path, file, progress):
            return path
        part = path.with_name(f"{path.name}.part")
        for _ in range(ATTEMPTS):
            with _reporting(file.repo, None):
                _download_file(file, part, progress)
            if _is_right(part, file, progress):
                part.replace(path)
                _fetch_generation_config(repo)
                return path
            part.unlink()
    raise UserError("hub.wrong_content", file=file.file)


def has_gguf(file: HubGguf, cache_dir: Path) -> bool:
    """Check by size alone whether a GGUF file is on this disk."""
    found = (_cached_file(file.repo, file.file), cache_dir / "gguf" / file.sha256[:12] / file.file)
    return any(path and path.is_file() and path.stat().st_size == file.size for path in found)


def fetch_drafter(
    repo: str, revision: str | None, progress: ProgressCallback = silent
) -> tuple[Path, str]:
    """Return the folder of a published drafter and its commit: config, weights, and the card that names its licence.

    A pickle is fetched only if there are no safetensors.
    """
    if revision and (folder := cached_drafter(repo, revision)):
        return folder, revision
    try:
        with _reporting(repo, revision):
            return _download_drafter(repo, revision, progress)
    except Unreachable:
        if folder := cached_drafter(repo, revision):
            return folder, folder.name
        raise


def cached_drafter(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a drafter that is complete on this disk, without network access."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                repo, revision=revision, local_files_only=True, allow_patterns=["config.json"]
            )
        )
        weights = weight_files(folder, repo) if any(folder.glob("*.safetensors")) else []
    except (OSError, ValueError, UserError):
        return None
    pickled = any((folder / name).is_file() for name in PICKLES)
    whole = not broken_files(weights) if weights else pickled
    return folder if whole and (folder / "config.json").is_file() else None


def _download_drafter(
    repo: str, revision: str | None, progress: ProgressCallback
) -> tuple[Path, str]:
    from huggingface_hub import HfApi, constants, snapshot_download

    endpoint = os.environ.get("HF_ENDPOINT")
    progress(Progress("download", 0.0, f"asking the hub for {repo}"))
    listing = HfApi(endpoint=endpoint).model_info(repo, revision=revision, files_metadata=True)
    there = _of_a_drafter(listing)
    wanted, total, blobs = list(there), sum(there.values()), _blobs(repo)
    check_space(Path(constants.HF_HUB_CACHE), total, Phrase("disk.downloading", name=repo))
    with watched(blobs, total, progress, repo):
        folder = Path(
            snapshot_download(
                repo, revision=revision, endpoint=endpoint, allow_patterns=wanted,
                tqdm_class=_no_bar(),
            )
        )  # fmt: skip
    progress(bytes_progress("download", total, total, repo))
    return folder, listing.sha or revision or folder.name


def drafter_facts(repo: str, revision: str | None) -> tuple[int, str]:
    """Return the download size of a published drafter in bytes, and its licence according to its card ("" for none).

    Raises UserError if the hub is unreachable or does not have the drafter.
    """
    from huggingface_hub import HfApi

    with _reporting(repo, revision):
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        listing = api.model_info(
            repo, revision=revision, files_metadata=True, timeout=FACTS_TIMEOUT_SECONDS
        )
    card = listing.card_data
    return sum(_of_a_drafter(listing).values()), str(card.get("license") or "") if card else ""


def _of_a_drafter(listing: Any) -> dict[str, int]:
    """Return the bytes of each file to fetch, by name. listing: the hub's description of the drafter"""
    there = {file.rfilename: file.size or 0 for file in listing.siblings or []}
    wanted = [name for name in there if _wanted(name) or name == CARD]
    if not any(name.endswith(".safetensors") for name in wanted):
        wanted += [name for name in PICKLES if name in there][:1]
    return {name: there[name] for name in wanted}


def generation_config(repo: str) -> Path | None:
    """Return the file with the authors' recommended sampling; None if it is not in the cache."""
    return _cached_file(repo, GENERATION_CONFIG)


def _fetch_generation_config(repo: str) -> None:
    from huggingface_hub import hf_hub_download

    with suppress(UserError), _reporting(repo, None):
        hf_hub_download(repo, GENERATION_CONFIG, endpoint=os.environ.get("HF_ENDPOINT"))


def _download_file(file: HubGguf, part: Path, progress: ProgressCallback) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    progress(Progress("download", 0.0, f"asking the hub for {file.repo}"))
    begun = part.stat().st_size if part.is_file() else 0
    if begun > file.size:
        part.unlink()
        begun = 0
    check_space(part.parent, file.size - begun, Phrase("disk.downloading", name=file.file))
    url = hf_hub_url(file.repo, file.file, endpoint=os.environ.get("HF_ENDPOINT"))
    with watched(part.parent, file.size, progress, file.file), part.open("ab") as stream:
        http_get(
            url,
            stream,
            resume_size=begun,
            headers=build_hf_headers(),
            expected_size=file.size,
            tqdm_class=_no_bar(),
        )
    progress(bytes_progress("download", file.size, file.size, file.file))


def _cached_file(repo: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, name)
    return Path(found) if isinstance(found, str) else None


def _is_right(path: Path, file: HubGguf, progress: ProgressCallback) -> bool:
    same_size = path.stat().st_size == file.size
    return same_size and file_sha256(path, progress, file.file) == file.sha256


def _blobs(repo: str) -> Path:
    """Return the folder of a repository's files in the hub's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "blobs"


def _download(repo: str, revision: str | None, progress: ProgressCallback) -> tuple[Path, str]:
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

    endpoint = os.environ.get("HF_ENDPOINT")
    progress(Progress("download", 0.0, f"asking the hub for {repo}"))
    listing = HfApi(endpoint=endpoint).model_info(repo, revision=revision, files_metadata=True)
    commit = listing.sha or revision or "main"
    sizes = {
        file.rfilename: file.size or 0 for file in listing.siblings or [] if _wanted(file.rfilename)
    }
    if not any(name.endswith(".safetensors") for name in sizes):
        raise UserError("hub.no_weights", repo=repo)
    if "config.json" in sizes:  # a few hundred bytes decide whether to fetch gigabytes
        small = hf_hub_download(repo, "config.json", revision=commit, endpoint=endpoint)
        check_causal_lm(read_config(Path(small).parent, repo), repo)
    blobs = _blobs(repo)
    total, present = sum(sizes.values()), folder_bytes(blobs) if blobs.exists() else 0
    check_space(
        Path(constants.HF_HUB_CACHE), max(0, total - present), Phrase("disk.downloading", name=repo)
    )
    already = present if present > total else 0  # more than this commit has: files of other commits
    with watched(blobs, total, progress, repo, already):
        folder = Path(
            snapshot_download(
                repo,
                revision=revision,  # by name: the cache then finds it without network
                endpoint=endpoint,
                allow_patterns=FILES,
                ignore_patterns=NOT_FILES,
                tqdm_class=_no_bar(),
            )
        )
        for path in broken_files(weight_files(folder, repo)):
            hf_hub_download(
                repo, path.name, revision=commit, endpoint=endpoint, force_download=True
            )
    check_folder(folder, repo)
    progress(bytes_progress("download", total, total, repo))
    return folder, commit


def _wanted(name: str) -> bool:
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    return any(filter_repo_objects([name], allow_patterns=FILES, ignore_patterns=NOT_FILES))


def _no_bar() -> type:
    """Return a tqdm class that draws nothing: progress is reported by the callback."""
    from tqdm.auto import tqdm

    class Silent(tqdm):  # type: ignore[misc]
        def __init__(self, *args: object, **options: object) -> None:
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})

    return Silent


@contextmanager
def _reporting(repo: str, revision: str | None) -> Iterator[None]:
    """Turn the hub's errors into UserErrors; the specific errors inherit from the general ones."""
    from huggingface_hub import errors

    try:
        with reporting_full_disk(Phrase("disk.while_downloading", name=repo)):
            yield
    except errors.GatedRepoError as error:
        raise UserError("hub.gated", repo=repo) from error
    except errors.RepositoryNotFoundError as error:
        raise UserError("hub.no_repo", repo=repo) from error
    except errors.RevisionNotFoundError as error:
        raise UserError("hub.no_revision", repo=repo, revision=revision) from error
    except errors.HFValidationError as error:
        raise UserError("hub.bad_id", repo=repo) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        raise Unreachable("hub.status", status=status, repo=repo) from error
    except UserError:
        raise
    except Exception as error:
        if not is_connection_error(error):
            raise
        raise Unreachable("hub.unreachable", repo=repo) from error


def is_connection_error(error: BaseException | None) -> bool:
    """Check whether the network is the cause, with any HTTP library below the hub's client."""
    while error is not None:
        client = type(error).__module__.split(".")[0]
        if isinstance(error, ConnectionError | TimeoutError) or client.startswith(HTTP_CLIENTS):
            return True
        if type(error).__name__ in ("LocalEntryNotFoundError", "OfflineModeIsEnabled"):
            return True
        error = error.__cause__ or error.__context__
    return False
