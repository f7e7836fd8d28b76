"""The one table of draft networks that `train` makes, and the drafters of a target: found at loading, read at first use.

To add a network: its module, one row of `NETWORKS`, and one row of the test of this table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from specdemo.config.errors import UserError
from specdemo.config.strings import JsonView
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.files.catalogue import trained_folder
from specdemo.models.loading import LoadedModel
from specdemo.models.memory import BYTES_PER_WEIGHT
from specdemo.models.networks.chain import CompactDecoder, CompactWeights
from specdemo.models.networks.dflash import DFlashDecoder
from specdemo.models.networks.exit import ExitDecoder
from specdemo.models.networks.folders import (
    TargetTensors,
    is_compact,
    load_compact,
    load_dflash,
    load_medusa,
    read_config,
)
from specdemo.models.networks.parts import MedusaWeights
from specdemo.trace.events import ModelInfo

OpenedNetwork = PrefixReader | MedusaWeights
"""A draft network in one conversation: a reader of texts, or Medusa's heads, which read one state of the target."""


class DraftNetwork(Protocol):
    """A drafter's weights, ready to run and shared by all conversations."""

    def open(self, target: CachedModel) -> OpenedNetwork:
        """Start one conversation next to the target that it drafts for."""


Load = Callable[[Path, TargetTensors, CompactWeights | None], DraftNetwork]
"""Reads a folder. The last argument is the draft model below, for networks that extend one."""


@dataclass(frozen=True, slots=True)
class NetworkKind:
    """One network.

    kind: name of its folder, and the need of the methods that use it; form: "own", or that of published drafters
    load: reads its folder; recipe: its training, see `training.recipes.RECIPES`
    facts: keys of its config.json under `specdemo`, in addition to those of every drafter
    states: which of the stored hidden states of the target it reads, see `stored_states`
    layers: number of its decoder layers, 0 if the training options give it
    extends: it runs on top of a draft model
    own_layer: it needs no tied head of the target, so targets with Qwen2 layers or a head of their own can have it too
    starts: its training can start from an earlier one
    layout: the published layout that it can be written in, "" for none
    """

    kind: str
    load: Load
    recipe: str
    facts: tuple[str, ...]
    states: slice
    layers: int = 1
    form: str = "own"
    extends: bool = False
    own_layer: bool = False
    starts: bool = True
    layout: str = ""


def _chain(folder: Path, target: TargetTensors, base: CompactWeights | None) -> CompactDecoder:
    return CompactDecoder(load_compact(folder, target, base))


ALL, LOWEST, FINAL, INNER = slice(None), slice(1), slice(-1, None), slice(-1)
BLOCK_FACTS = ("reads", "depth", "causal", "extends")
DFLASH_FACTS = ("reads", "form", "depth", "causal", "mask")

NETWORKS: tuple[NetworkKind, ...] = (
    NetworkKind("draft", _chain, "draft", (), slice(0), layers=0),
    NetworkKind("feature", _chain, "feature", ("reads", "feedback"), ALL, own_layer=True),
    NetworkKind(
        "feature", _chain, "feature", ("reads", "feedback", "form"), INNER,
        form="eagle3", own_layer=True, layout="speculators",
    ),
    NetworkKind(
        "exit", lambda *facts: ExitDecoder(load_compact(*facts)), "exit", ("reads",), LOWEST,
        starts=False,
    ),
    NetworkKind(
        "medusa", lambda *facts: load_medusa(*facts[:2]), "medusa", ("reads", "depth"), FINAL,
        layers=0, starts=False,
    ),
    NetworkKind("block", _chain, "block", BLOCK_FACTS, ALL, layers=2, extends=True),
    NetworkKind("jet", _chain, "jet", BLOCK_FACTS, ALL, layers=2, extends=True),
    *(
        NetworkKind(
            kind, lambda *facts: DFlashDecoder(load_dflash(*facts[:2])), "dflash", DFLASH_FACTS, INNER,
            layers=2, form="dflash", own_layer=True, layout="dflash",
        )
        for kind in ("block", "jet")
    ),
)  # fmt: skip


def find_network(kind: str, form: str = "own") -> NetworkKind | None:
    """Return the row of a kind in a form; None if there is none."""
    return next((row for row in NETWORKS if (row.kind, row.form) == (kind, form)), None)


def stored_states(depth: int, form: str = "own") -> tuple[int, ...]:
    """Return the hidden states of a target with `depth` layers that the training stores: those of drafters, and the final one last.

    Published forms read inner states only, as EAGLE-3 does: other engines hand the final one on before its norm.
    """
    quarter = max(1, depth // 4)
    inner = {quarter, 3 * quarter} if form == "own" else {2, depth // 2, depth - 3}
    return (*sorted({min(max(layer, 1), depth - 1) for layer in inner}), depth)


@dataclass(slots=True)
class Draft:
    """A model that drafts for a target; its weights are loaded at first use, once for all sessions.

    info: facts about its weights, see `loaded_info`; reads: hidden states of the target that it reads, by layer
    card: facts of its training, see `training.package.Card`
    """

    info: ModelInfo
    _load: Callable[[], DraftNetwork]
    reads: tuple[int, ...] = ()
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

    def loaded_info(self) -> ModelInfo:
        """Return the facts about its weights after they are loaded; a transformers model then names its kernel too."""
        network = self.network()
        return network.info if isinstance(network, LoadedModel) else self.info

    @property
    def memory_bytes(self) -> int:
        """Memory that its weights need besides the target, whether or not they are loaded."""
        return int(self.info.parameters * BYTES_PER_WEIGHT[self.info.precision])


def find_trained(
    target: LoadedModel, draft: CompactWeights | None, wanted: str = "auto"
) -> dict[str, Draft]:
    """Find the drafters of a target that read its hidden states, by kind; those that extend a draft model only with it.

    wanted: a folder with one subfolder per kind of drafter; "auto" for the shipped ones; "none"
    Raises UserError for a named folder that does not exist, and for drafters of another target.
    """
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
        network = find_network(kind, facts.get("form", "own"))
        if network is None or not facts.get("reads") or network.extends != bool(extends):
            continue
        if config["hidden_size"] != tensors.embedding.shape[1]:
            raise UserError("drafter.other_target", path=path, kind=kind, target=target.info.name)
        if extends and (draft is None or len(draft.layers) != extends):
            continue
        load = partial(network.load, path, tensors, draft if extends else None)
        info = ModelInfo(kind, "", "int4", "", int(facts.get("parameters", 0)))
        found[kind] = Draft(info, load, tuple(facts["reads"]), facts.get("card", {}))
    return found
