"""Drafters that were trained for a target and lie in assets/ beside its draft model: found at loading, read at first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.files.catalogue import OWN_KIND, trained_folder
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from specdemo.models.loading import LoadedModel
    from specdemo.models.networks.compact_weights import CompactWeights


@dataclass(slots=True)
class Trained:
    """One drafter's folder; its weights are read when first asked for, once, whoever asks.

    reads: hidden states of the target that it needs, by layer
    """

    folder: Path
    config: Mapping[str, Any]
    _load: Callable[[Path], Any]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _network: Any = None

    @property
    def reads(self) -> tuple[int, ...]:
        """Hidden states of the target that go in."""
        return tuple(self.config["specdemo"].get("reads", ()))

    @property
    def card(self) -> Mapping[str, Any]:
        """How it was trained, see `training.card`."""
        card: Mapping[str, Any] = self.config["specdemo"].get("card", {})
        return card

    @property
    def info(self) -> ModelInfo:
        """Which weights draft."""
        facts = self.config["specdemo"]
        name, precision = facts.get("name", self.folder.name), facts.get("precision", "int4")
        parameters = int(facts.get("parameters", 0))
        return ModelInfo(name, facts.get("revision", ""), precision, "", parameters)

    def network(self) -> Any:
        """CompactDecoder, DFlashDecoder or MedusaWeights. Raises UserError for damaged files."""
        with self._lock:
            if self._network is None:
                self._network = self._load(self.folder)
            return self._network


def find_trained(
    target: LoadedModel, draft: CompactWeights | None, wanted: str = "auto"
) -> dict[str, Trained]:
    """Those that are there for a target, by kind: every folder of a drafter that reads the target's hidden states.

    Those that go on top of a draft model are found only together with it.
    wanted: a folder with one subfolder per kind of drafter; "auto" for what is shipped; "none"
    Raises UserError for a named folder that is not there, and for drafters of another target.
    """
    from specdemo.models.networks.compact_decoder import CompactDecoder
    from specdemo.models.networks.compact_files import is_compact, load_compact, read_config
    from specdemo.models.networks.dflash import DFlashDecoder
    from specdemo.models.networks.dflash_files import load_dflash
    from specdemo.models.networks.medusa import load_medusa

    if wanted == "none":
        return {}
    auto = wanted == "auto"
    folder = trained_folder(target.info.name, wanted)
    if not auto and not folder.is_dir():
        raise UserError("drafter.no_folder", folder=folder)
    embedding: Any = target.model.get_input_embeddings().weight
    head: Any = target.model.get_output_embeddings().weight
    output = None if head is embedding else head

    def load(kind: str, form: str, base: CompactWeights | None) -> Callable[[Path], Any]:
        if form == "dflash":
            return lambda path: DFlashDecoder(
                load_dflash(path, embedding, device=target.device, output=output)
            )
        if kind == "medusa":
            return lambda path: load_medusa(path, embedding, device=target.device)
        return lambda path: CompactDecoder(
            load_compact(path, embedding, device=target.device, base=base, output=output)
        )

    found = {}
    for path in filter(is_compact, sorted(folder.glob("*/"))):
        kind, config = path.name, read_config(path)
        if not config["specdemo"].get("reads"):
            continue
        if config["hidden_size"] != embedding.shape[1]:
            raise UserError("drafter.other_target", path=path, kind=kind, target=target.info.name)
        extends = config["specdemo"].get("extends", 0)
        base = draft if extends else None
        if extends and (base is None or len(base.layers) != extends):
            continue
        found[kind] = Trained(path, config, load(kind, config["specdemo"].get("form", "own"), base))
    return found


def stands_alone(found: Mapping[str, Trained]) -> Trained | None:
    """The feature drafter among some trained drafters, where it needs no draft model."""
    feature = found.get(OWN_KIND)
    return feature if feature and feature.config["specdemo"].get("feedback") else None
