"""Drafters that were trained for a target: found at loading, read at first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

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
    """One drafter; its weights are loaded at first use, once for all sessions.

    reads: hidden states of the target that it reads, by layer; info: of its weights
    alone: it also replaces a draft model; card: facts of its training, see `training.package.Card`
    """

    reads: tuple[int, ...]
    info: ModelInfo
    alone: bool
    _load: Callable[[], DraftNetwork]
    card: JsonView = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _network: DraftNetwork | None = None

    def network(self) -> DraftNetwork:
        """Return the network, loaded. Raises UserError for damaged files."""
        with self._lock:
            if self._network is None:
                try:
                    self._network = self._load()
                except (IndexError, KeyError, TypeError, ValueError) as error:
                    raise UserError("draft.damaged", folder=self.info.name) from error
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
    folder = trained_folder(target.known, wanted)
    if wanted != "auto" and not folder.is_dir():
        raise UserError("drafter.no_folder", folder=folder)
    tensors, found = TargetTensors.of(target), {}
    for path in filter(is_compact, sorted(folder.glob("*/"))):
        config = read_config(path)
        facts, kind = config["specdemo"], path.name
        extends = facts.get("extends", 0)
        network = find_network(kind, facts.get("form", "own"), extends=extends > 0)
        if network is None or not facts.get("reads"):
            continue
        if config["hidden_size"] != tensors.embedding.shape[1]:
            raise UserError("drafter.other_target", path=path, kind=kind, target=target.info.name)
        if extends and (draft is None or len(draft.layers) != extends):
            continue
        load = partial(network.load, path, tensors, draft if extends else None)
        info = ModelInfo(kind, "", "int4", "", int(facts.get("parameters", 0)))
        alone = bool(facts.get("feedback"))
        found[kind] = Trained(tuple(facts["reads"]), info, alone, load, facts.get("card", {}))
    return found


def stands_alone(found: Mapping[str, Trained]) -> Trained | None:
    """The feature drafter among some trained drafters, if it needs no draft model."""
    feature = found.get(OWN_KIND)
    return feature if feature and feature.alone else None
