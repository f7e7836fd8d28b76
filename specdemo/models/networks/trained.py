"""Drafters that were trained for a target: found at loading, read at first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.strings import JsonView
from specdemo.files.catalogue import OWN_KIND, trained_folder
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from specdemo.models.loading import LoadedModel
    from specdemo.models.networks.chain import CompactWeights
    from specdemo.models.networks.registry import DraftNetwork


@dataclass(slots=True)
class Trained:
    """One drafter; its weights are loaded at first use, once for all sessions."""

    folder: Path
    config: JsonView
    _load: Callable[[], DraftNetwork]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _network: DraftNetwork | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """Hidden states of the target that it reads, by layer."""
        return tuple(self.config["specdemo"].get("reads", ()))

    @property
    def card(self) -> JsonView:
        """Facts of its training, see `training.package.Card`."""
        card: JsonView = self.config["specdemo"].get("card", {})
        return card

    @property
    def info(self) -> ModelInfo:
        """Name, revision, precision and parameters of its weights."""
        facts = self.config["specdemo"]
        name, precision = facts.get("name", self.folder.name), facts.get("precision", "int4")
        parameters = int(facts.get("parameters", 0))
        return ModelInfo(name, facts.get("revision", ""), precision, "", parameters)

    def network(self) -> DraftNetwork:
        """Return the network, loaded. Raises UserError for damaged files."""
        with self._lock:
            if self._network is None:
                try:
                    self._network = self._load()
                except (IndexError, KeyError, TypeError, ValueError) as error:
                    raise UserError("draft.damaged", folder=self.folder.name) from error
            return self._network


def find_trained(
    target: LoadedModel, draft: CompactWeights | None, wanted: str = "auto"
) -> dict[str, Trained]:
    """Find the drafters of a target that read its hidden states, by kind; those that extend a draft model only with it.

    wanted: a folder with one subfolder per kind of drafter; "auto" for the shipped ones; "none"
    Raises UserError for a named folder that does not exist, and for drafters of another target.
    """
    from specdemo.models.networks.folders import is_compact, read_config
    from specdemo.models.networks.loader import TargetTensors
    from specdemo.models.networks.registry import find_network

    if wanted == "none":
        return {}
    folder = trained_folder(target.info.name, wanted)
    if wanted != "auto" and not folder.is_dir():
        raise UserError("drafter.no_folder", folder=folder)
    embedding: Any = target.model.get_input_embeddings().weight
    head: Any = target.model.get_output_embeddings().weight
    tensors = TargetTensors(embedding, target.device, output=None if head is embedding else head)
    found = {}
    for path in filter(is_compact, sorted(folder.glob("*/"))):
        config = read_config(path)
        facts, kind = config["specdemo"], path.name
        extends = facts.get("extends", 0)
        network = find_network(kind, facts.get("form", "own"), extends=extends > 0)
        if network is None or not facts.get("reads"):
            continue
        if config["hidden_size"] != embedding.shape[1]:
            raise UserError("drafter.other_target", path=path, kind=kind, target=target.info.name)
        if extends and (draft is None or len(draft.layers) != extends):
            continue
        load = partial(network.load, path, tensors, draft if extends else None)
        found[kind] = Trained(path, config, load)
    return found


def stands_alone(found: Mapping[str, Trained]) -> Trained | None:
    """The feature drafter among some trained drafters, if it needs no draft model."""
    feature = found.get(OWN_KIND)
    return feature if feature and feature.config["specdemo"].get("feedback") else None
