"""Fetch models from the Hugging Face hub: pinned revisions, safe files, one UserError for each failure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from specdemo.config.errors import Phrase, UserError
from specdemo.files.catalogue import GgufFile
from specdemo.files.folder import (
    broken_files,
    check_causal_lm,
    check_folder,
    read_config,
    weight_files,
)
from specdemo.files.progress import (
    Pace,
    Progress,
    ProgressCallback,
    silent,
)
from specdemo.files.store import alone, check_space, file_sha256, reporting_full_disk
from specdemo.files.wheel import LOCAL_WHEEL, append_parts, installed_gguf

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
OF_A_DRAFTER = [*FILES, CARD, *PICKLES]
HTTP_CLIENTS = ("http", "requests", "urllib3")
FACTS_TIMEOUT_SECONDS = 10.0  # for facts about a drafter that is not loaded yet
# Errors of the hub's client by class; the specific ones inherit from the general one.
ERRORS = {
    "GatedRepoError": "gated",
    "RepositoryNotFoundError": "no_repo",
    "RevisionNotFoundError": "no_revision",
    "HFValidationError": "bad_id",
    "HfHubHTTPError": "status",
}
ATTEMPTS = 2  # a file that arrives damaged is fetched a second time


def cached_folder(repo: str, revision: str | None, *, drafter: bool = False) -> Path | None:
    """Return the folder of a repository that is complete on this disk, without network access. drafter: see `fetch`"""
    from huggingface_hub import snapshot_download

    with suppress(
        OSError, ValueError, UserError
    ):  # the hub's own errors for "not here" are OSErrors
        folder = Path(
            snapshot_download(
                repo, revision=revision, local_files_only=True, allow_patterns=["config.json"]
            )
        )
        if not drafter:
            check_folder(folder, repo)
            return folder
        if any(folder.glob("*.safetensors")):
            whole = not broken_files(weight_files(folder, repo))
        else:
            whole = any((folder / name).is_file() for name in PICKLES)
        return folder if whole and (folder / "config.json").is_file() else None
    return None


def fetch(
    repo: str, revision: str | None, progress: ProgressCallback = silent, *, drafter: bool = False
) -> tuple[Path, str]:
    """Return the folder of a model and its commit; download missing and damaged files.

    A pinned revision that is complete on disk needs no network. An interrupted download continues with the next file.

    drafter: the repository is a published drafter: config, weights, and the card that names its licence; a pickle is
    fetched only if there are no safetensors
    """
    if revision and (folder := cached_folder(repo, revision, drafter=drafter)):
        return folder, revision
    try:
        with _reporting(repo, revision):
            return _download(repo, revision, progress, drafter=drafter)
    except Unreachable:
        if folder := cached_folder(repo, revision, drafter=drafter):  # main, as it was last time
            return folder, folder.name
        raise


def _download(
    repo: str, revision: str | None, progress: ProgressCallback, *, drafter: bool
) -> tuple[Path, str]:
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    endpoint = os.environ.get("HF_ENDPOINT")
    progress(Progress("download", 0.0, f"asking the hub for {repo}"))
    # This request fails immediately; a download would be repeated for 20 seconds.
    HfApi(endpoint=endpoint).model_info(repo, revision=revision)
    if not drafter:  # a few hundred bytes decide whether to fetch gigabytes
        with suppress(RemoteEntryNotFoundError):
            small = hf_hub_download(repo, "config.json", revision=revision, endpoint=endpoint)
            check_causal_lm(read_config(Path(small).parent, repo), repo)
    pace = Pace(progress, "download", 0, repo)
    bar, patterns = _bar_of(pace), OF_A_DRAFTER if drafter else FILES
    found = snapshot_download(
        repo, revision=revision, endpoint=endpoint, tqdm_class=bar, dry_run=True,
        allow_patterns=patterns, ignore_patterns=NOT_FILES,
    )  # fmt: skip
    listing = {file.filename: file for file in found}
    wanted = _of_a_drafter(listing) if drafter else list(listing)
    weights = any(name.endswith(".safetensors") for name in wanted)
    if not weights and not drafter:
        raise UserError("hub.no_weights", repo=repo)
    pace.total = sum(listing[name].file_size or 0 for name in wanted if listing[name].will_download)
    check_space(Path(constants.HF_HUB_CACHE), pace.total, Phrase("disk.downloading", name=repo))
    folder = Path(
        snapshot_download(
            repo, revision=revision, endpoint=endpoint, tqdm_class=bar, allow_patterns=wanted
        )
    )
    commit = folder.name
    if weights:
        for path in broken_files(weight_files(folder, repo)):
            name = path.relative_to(folder).as_posix()
            hf_hub_download(repo, name, revision=commit, endpoint=endpoint, force_download=True)
    if not drafter:
        check_folder(folder, repo)
    progress(Progress("download", 1.0, repo))
    return folder, commit


class Unreachable(UserError):
    """The hub did not answer; files on this disk may suffice."""


def fetch_gguf(file: GgufFile, cache_dir: Path, progress: ProgressCallback = silent) -> Path:
    """Return a GGUF file of the catalogue whose content has the catalogue's digest.

    It is stored in specdemo's own cache, where a later process continues an interrupted transfer. The package index is
    its source if it is not on the hub; if the hub does not answer, the rest of a file that the index has comes from there.
    """

    def right(found: Path) -> bool:
        whole = found.is_file() and found.stat().st_size == file.size
        return whole and file_sha256(found, progress, file.file) == file.sha256

    path, *others = _copies(file, cache_dir)
    for found in others:
        if right(found):
            return found
    with alone(path):
        if right(path):
            return path
        part = path.with_name(f"{path.name}.part")
        for _ in range(ATTEMPTS):
            _download_file(file, part, progress)
            if right(part):
                part.replace(path)
                return path
            part.unlink()
    code = "hub.wrong_content" if file.repo else "wheel.wrong_content"
    raise UserError(code, file=file.file, variable=LOCAL_WHEEL)


def has_gguf(file: GgufFile, cache_dir: Path) -> bool:
    """Check by size alone whether a GGUF file is on this disk."""
    found = _copies(file, cache_dir)
    return any(path.is_file() and path.stat().st_size == file.size for path in found)


def _copies(file: GgufFile, cache_dir: Path) -> list[Path]:
    """Return the paths at which a GGUF file may be on this disk, the one in specdemo's own cache first."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(file.repo, file.file) if file.repo else None
    others = (installed_gguf(file), Path(cached) if isinstance(cached, str) else None)
    own = cache_dir / "gguf" / file.sha256[:12] / file.file
    return [own, *(path for path in others if path)]


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
    sizes = {file.rfilename: file.size or 0 for file in listing.siblings or []}
    licence = str(card.get("license") or "") if card else ""
    return sum(sizes[name] for name in _of_a_drafter(sizes)), licence


def _of_a_drafter(names: Iterable[str]) -> list[str]:
    """Select the files of a drafter to fetch."""
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    wanted = list(
        filter_repo_objects(names, allow_patterns=OF_A_DRAFTER, ignore_patterns=NOT_FILES)
    )
    whole = any(name.endswith(".safetensors") for name in wanted)
    return [name for name in wanted if not whole or name not in PICKLES]


def _download_file(file: GgufFile, part: Path, progress: ProgressCallback) -> None:
    """Complete a file that has arrived in part, from the hub or else from the package index."""
    from huggingface_hub import constants

    begun = part.stat().st_size if part.is_file() else 0
    if begun > file.size:
        part.unlink()
        begun = 0
    check_space(part.parent, file.size - begun, Phrase("disk.downloading", name=file.file))
    if file.repo:
        try:
            with _reporting(file.repo, None):
                _download_from_hub(file, part, begun, progress)
        except Unreachable:
            if file.parts is None or constants.HF_HUB_OFFLINE:
                raise
        else:
            return
    append_parts(file, part, progress)


def _download_from_hub(file: GgufFile, part: Path, begun: int, progress: ProgressCallback) -> None:
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    endpoint = os.environ.get("HF_ENDPOINT")
    progress(Progress("download", 0.0, f"asking the hub for {file.repo}"))
    # This request fails immediately; a download would be repeated for a minute.
    HfApi(endpoint=endpoint).model_info(file.repo, timeout=FACTS_TIMEOUT_SECONDS)
    pace = Pace(progress, "download", file.size, file.file)
    pace.reached(begun)
    with part.open("ab") as stream:
        http_get(
            hf_hub_url(file.repo, file.file, endpoint=endpoint),
            stream,
            resume_size=begun,
            headers=build_hf_headers(),
            expected_size=file.size,
            tqdm_class=_bar_of(pace),
        )


def _bar_of(pace: Pace) -> type:
    """Return a tqdm class that draws nothing and adds the bytes that arrive to `pace`."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: object, name: str | None = None, **options: object) -> None:
            # another bar counts the same bytes as they cross the network
            self._counts = options.get("unit") == "B" and not str(name).endswith("transfer")
            super().__init__(*args, name=name, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            if self._counts and n:
                pace.reached(pace.count + int(n))

    return Bar


@contextmanager
def _reporting(repo: str, revision: str | None) -> Iterator[None]:
    """Turn the hub's errors into UserErrors."""
    try:
        with reporting_full_disk(Phrase("disk.while_downloading", name=repo)):
            yield
    except UserError:
        raise
    except Exception as error:
        kind, status = kind_of(error)
        if not kind:
            raise
        told = Unreachable if kind in ("status", "unreachable") else UserError
        raise told(f"hub.{kind}", repo=repo, revision=revision, status=status) from error


def kind_of(error: BaseException) -> tuple[str, int]:
    """Return the kind of an error of the hub's client, one of ERRORS or "unreachable", and its HTTP status.

    "" for other errors; 0 for no status
    """
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError | errors.DryRunError) and isinstance(
        error.__cause__, errors.HfHubHTTPError
    ):
        error = error.__cause__  # this made the client search the disk
    status = getattr(getattr(error, "response", None), "status_code", 0)
    for kind in type(error).__mro__:
        if kind.__name__ in ERRORS:
            return ERRORS[kind.__name__], status
    return "unreachable" if is_connection_error(error) else "", status


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
