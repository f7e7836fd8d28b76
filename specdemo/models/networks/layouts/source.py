"""The files of a published drafter: folder, config, licence and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import JsonView
from specdemo.files.catalogue import find_drafter
from specdemo.files.folder import broken_files, read_config, read_header, weight_files
from specdemo.files.hub import PICKLES, fetch_drafter
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.store import file_sha256, made_once
from specdemo.models.offers import licence_of


@dataclass(frozen=True, slots=True)
class DrafterFiles:
    """A published drafter on this disk, its weights unread.

    name: hub id, or the folder's; revision: commit, "" for a folder
    licence: as its card names it, "" where it names none
    weights: its safetensors files; shapes: of each tensor, by name
    """

    folder: Path
    name: str
    revision: str
    licence: str
    config: JsonView
    weights: tuple[Path, ...]
    shapes: Mapping[str, tuple[int, ...]]

    def tensor(self, name: str) -> Tensor:
        """One tensor, as it is stored."""
        for path in self.weights:
            with safe_open(path, framework="pt") as file:
                if name in file.keys():  # noqa: SIM118 - safe_open is not a dict
                    found: Tensor = file.get_tensor(name)
                    return found
        raise self.wrong(f"it has no tensor {name}")

    def tensors(self, begin: str) -> dict[str, Tensor]:
        """Return all tensors with a prefix, as they are stored; each file is opened once."""
        found: dict[str, Tensor] = {}
        for path in self.weights:
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.startswith(begin)]  # noqa: SIM118
                found |= {name: file.get_tensor(name) for name in names}
        return found

    def number(self, config: JsonView, key: str, default: int | None = None) -> int:
        """A size of a config, above zero. Raises UserError."""
        value = config.get(key)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise self.wrong(f"its config.json has no {key}")
        size: int = value
        return size

    def wrong(self, why: str) -> UserError:
        """The sentence for files that cannot be read as a drafter."""
        return UserError("drafter.unusable", drafter=self.name, reason=why)


def drafter_files(name: str, cache_dir: Path, progress: ProgressCallback = silent) -> DrafterFiles:
    """The files of a drafter. Raises UserError.

    name: a folder, or a hub id, with `@` and a revision where it is not the catalogue's
    """
    path = Path(name).expanduser()
    if path.is_dir():
        folder, title, revision = path, path.name, ""
    else:
        title, _, wanted = name.partition("@")
        known = find_drafter(title)
        folder, revision = fetch_drafter(
            title, wanted or (known.revision if known else None), progress
        )
    config = read_config(folder, title)
    weights = _weights(folder, title, cache_dir, progress)
    if broken := broken_files(list(weights)):
        raise UserError("drafter.incomplete", drafter=title, file=broken[0].name)
    shapes = {
        key: tuple(row["shape"])
        for path in weights
        for key, row in read_header(path).items()
        if key != "__metadata__"
    }
    return DrafterFiles(folder, title, revision, licence_of(folder), config, weights, shapes)


def _weights(
    folder: Path, name: str, cache_dir: Path, progress: ProgressCallback
) -> tuple[Path, ...]:
    """A drafter's safetensors files; those that a pickle is converted to where it has none."""
    if any(folder.glob("*.safetensors")):
        return tuple(weight_files(folder, name))
    pickled = next((folder / one for one in PICKLES if (folder / one).is_file()), None)
    if pickled is None:
        raise UserError("drafter.empty", drafter=name)
    recipe = f"safetensors of {file_sha256(pickled, progress, pickled.name)}"
    made = cache_dir / "drafters" / recipe[-16:]

    def fill(content: Path) -> None:
        progress(Progress("convert", None, f"{name}: {pickled.name} to safetensors"))
        save_file(_unpickled(pickled, name), content / "model.safetensors")

    made_once(made, recipe, Phrase("disk.while_converting", name=name), fill)
    return (made / "model.safetensors",)


def _unpickled(path: Path, name: str) -> dict[str, Tensor]:
    """The tensors of a pickle, read by a loader that makes tensors and nothing else."""
    try:
        raw = torch.load(path, map_location="cpu", weights_only=True)
        return {str(key): one.contiguous().clone() for key, one in raw.items()}
    except Exception as error:  # the loader raises errors of many kinds for unsupported content
        raise UserError("drafter.pickled", file=path.name, drafter=name) from error
