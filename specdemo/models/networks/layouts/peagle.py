"""P-EAGLE (2602.01469) as speculators, NeMo, SpecForge and AWS write it.

The layers are EAGLE-3's, see `eagle3`. All places are guessed in one pass: a mask token stands for each place after
the first, and `mask_hidden`, mixed as the target's states are, for what the target would have felt before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdemo.models.networks.compact_decoder import CompactDecoder
from specdemo.models.networks.compact_weights import CompactWeights, Masked
from specdemo.models.networks.layouts import eagle3
from specdemo.models.networks.layouts.eagle3 import Eagle3Config
from specdemo.models.networks.layouts.family import (
    Family,
    Lent,
    Loader,
    Reading,
    TargetFacts,
    check_tensors,
)
from specdemo.models.networks.layouts.source import DrafterFiles

SPECULATORS = "peagle"
HIDDEN = "mask_hidden"
PLACES = 8  # that its authors train, where a config does not say


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a pass. mask: token that stands for each but the first"""

    count: int
    mask: int


def takes(config: Mapping[str, Any]) -> bool:
    """Whether a config is of this family: EAGLE-3's layouts with a token that stands for a guessed place."""
    if "speculators_model_type" in config:
        return bool(config["speculators_model_type"] == SPECULATORS)
    return eagle3.is_flat(config) and eagle3.mask_token(config) is not None


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = eagle3.read_config(files, target)
    places = _places(files, config)
    eagle3.check_target(files, target, config)
    needed, optional = eagle3.shapes(files, config)
    width = len(config.reads) * config.target_hidden
    # NeMo writes it without the dimension of batches.
    needed[HIDDEN] = (1, width) if len(files.shapes.get(HIDDEN, ())) == 2 else (1, 1, width)
    check_tensors(files, needed, optional)

    def decoder(lent: Lent) -> CompactDecoder:
        return CompactDecoder(load(files, config, places, lent))

    return Reading(("block", "jet"), config.reads, False, decoder)


def load(files: DrafterFiles, config: Eagle3Config, places: Places, lent: Lent) -> CompactWeights:
    """What runs. Raises UserError for words that are not the target's."""
    weights = eagle3.load(files, config, lent)
    assert weights.inject is not None
    unknown = Loader(files, lent).vector(HIDDEN).reshape(1, -1)
    state = weights.inject.of(unknown, len(config.reads), weights.norm.dtype)
    return replace(weights, feedback=None, masked=Masked(places.mask, state), depth=places.count)


def _places(files: DrafterFiles, config: Eagle3Config) -> Places:
    """How many places it guesses, and by which token. Raises UserError."""
    said = files.config
    mask = eagle3.mask_token(said)
    if type(mask) is not int or not 0 <= mask < config.vocabulary:
        raise files.wrong("its mask_token_id is no token of its vocabulary")
    return Places(files.number(said, "num_depths", _proposed(said)), mask)


def _proposed(config: Mapping[str, Any]) -> int:
    """Tokens that a config proposes to draft, in the layout of speculators."""
    methods = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    count = methods[0].get("speculative_tokens")
    return count if type(count) is int and count > 0 else PLACES


PEAGLE = Family("P-EAGLE", takes, read)
