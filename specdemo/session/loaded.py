"""What is loaded: the pair, what ships for it and the settings that chose it, as one value that is replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdemo.config.settings import AppSettings
from specdemo.files.progress import ProgressCallback
from specdemo.session.machine import set_threads

LARGEST, USUAL = "largest", "usual"

if TYPE_CHECKING:
    from specdemo.drafters.shipped import Shipped
    from specdemo.models.pair import LoadedPair


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Loaded:
    """A pair that runs can use.

    settings: what it was loaded for; shipped: its datastore and policy weights
    chosen: where the program chose the target: LARGEST, or USUAL where nothing larger can be used; else ""
    """

    settings: AppSettings
    pair: LoadedPair
    shipped: Shipped
    chosen: str = ""


def fetch(settings: AppSettings, report: ProgressCallback) -> None:
    """Bring the files of a pair to this machine; computes nothing. Raises UserError."""
    from specdemo.models.pair import fetch_pair

    fetch_pair(settings, report)


def load(settings: AppSettings, report: ProgressCallback) -> Loaded:
    """Load, quantise, warm up and measure; to be called in the compute thread. Raises UserError."""
    from specdemo.models.pair import load_pair

    set_threads(settings.threads)
    return _with_shipped(settings, load_pair(settings, report))


def place(settings: AppSettings, report: ProgressCallback) -> Loaded:
    """Load and quantise without a pass: `warm` makes it ready, in the process that runs it. Raises UserError."""
    from specdemo.models.pair import place_pair

    set_threads(settings.threads)
    return _with_shipped(settings, place_pair(settings, report))


def warm(placed: Loaded, report: ProgressCallback) -> Loaded:
    """What `place` gave, after its first passes; to be called in the compute thread. Raises UserError."""
    from specdemo.models.pair import warm_pair

    pair = warm_pair(placed.pair, placed.settings, report)
    return replace(placed, pair=pair)


def _with_shipped(settings: AppSettings, pair: LoadedPair) -> Loaded:
    from specdemo.drafters.memory.datastore import fingerprint
    from specdemo.drafters.shipped import find_shipped

    tokenizer = fingerprint(pair.tokenizer.get_vocab())
    return Loaded(settings, pair, find_shipped(pair.target.info.name, tokenizer, settings.store))


def named(settings: AppSettings) -> tuple[AppSettings, str]:
    """The settings with the target by name where it is "auto", and `Loaded.chosen`."""
    if settings.target != "auto":
        return settings, ""
    from specdemo.models.outlook import choose

    pair, larger = choose(settings)
    return replace(settings, target=pair.name), LARGEST if larger else USUAL
