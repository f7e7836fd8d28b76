"""The files of a published drafter: folder, config, licence and tensors."""

from __future__ import annotations

from collections.abc import Container, Mapping
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
from specdemo.models.networks.folders import read_tensors
from specdemo.models.offers import licence_of

LARGEST_SIZE = 1 << 24  # of any size in a config: larger ones would only fill the memory


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
        found = read_tensors(self.weights, name.__eq__)
        if name not in found:
            raise self.wrong(f"it has no tensor {name}")
        return found[name]

    def number(
        self,
        config: JsonView,
        key: str,
        default: int | None = None,
        *,
        least: int = 1,
        most: int = LARGEST_SIZE,
    ) -> int:
        """Return a whole number of a config. Raises UserError for a missing one and outside of the range."""
        value = config.get(key)
        value = default if value is None else value
        if value is None:
            raise self.wrong(f"its config.json has no {key}")
        if type(value) is not int or not least <= value <= most:
            raise self.refused(key, value, _between(least, most))
        return value

    def real(
        self, config: JsonView, key: str, default: float, *, least: float = 0.0, most: float = 1e4
    ) -> float:
        """Return a number of a config. Raises UserError outside of the range."""
        value = config.get(key)
        value = default if value is None else value
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.refused(key, value, _between(least, most))
        return float(value)

    def choice(self, config: JsonView, key: str, *allowed: object) -> object:
        """Return an entry of a config, the first allowed value if it has none. Raises UserError for other values."""
        value = config.get(key)
        value = allowed[0] if value is None else value
        if value not in allowed:
            raise self.refused(key, value, ", ".join(map(str, allowed)))
        return value

    def part(self, config: JsonView, key: str) -> JsonView:
        """Return a part of a config, empty if there is none. Raises UserError if it is not an object."""
        value = config.get(key) or {}
        if not isinstance(value, Mapping):
            raise self.refused(key, value, Phrase("drafter.object"))
        return value

    def check_finite(self, names: Container[str]) -> None:
        """Refuse weights that are not finite. names: of the tensors to check"""
        for path in self.weights:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - safe_open is not a dict
                    if name not in names or not self.shapes[name]:
                        continue
                    tensor = file.get_tensor(name)
                    tensor = tensor.float() if tensor.element_size() == 1 else tensor
                    # The extremes are not finite if any number is not, and need no memory.
                    extremes = torch.stack(tensor.aminmax())
                    if not extremes.isfinite().all():
                        raise self.refused(name, extremes.tolist(), Phrase("drafter.finite"))

    def refused(self, field: str, value: object, allowed: object) -> UserError:
        """Return the error for a value that is not allowed."""
        return self.wrong(value_reason(field, value, allowed))

    def wrong(self, why: Phrase | str) -> UserError:
        """Return the error for files that cannot be read as a drafter."""
        return UserError("drafter.unusable", drafter=self.name, reason=why)


def value_reason(field: str, value: object, allowed: object) -> Phrase:
    """Return the part of a sentence that names a field, its value, shortened, and the allowed ones."""
    return Phrase("drafter.value", field=field, value=f"{value!s:.60}", allowed=allowed)


def _between(least: float, most: float) -> Phrase:
    return Phrase("drafter.between", least=f"{least:,}", most=f"{most:,}")


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
        key: tuple(row["shape"]) for path in weights for key, row in read_header(path).items()
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
