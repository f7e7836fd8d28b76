"""The loaded pair with its shipped data and settings, as one value that is replaced as a whole."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from specdemo.config.settings import AppSettings
from specdemo.drafters.methods import NEEDED
from specdemo.files.progress import ProgressCallback
from specdemo.models.devices import choose_device, on_gpu, processor
from specdemo.models.outlook import Measured, choose

LARGEST, USUAL, COMPLETES = "largest", "usual", "completes"

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.models.pair import Finder, LoadedPair


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Loaded:
    """A pair that is ready for runs.

    settings: those that it was loaded with; store: its datastore, if there is one
    chosen: LARGEST or USUAL if the program chose the target, else ""
    """

    settings: AppSettings
    pair: LoadedPair
    store: Datastore | None = None
    chosen: str = ""

    @property
    def remark(self) -> str:
        """`chosen`, or COMPLETES for a target without a chat template, which continues the prompt; "" for nothing."""
        return self.chosen or ("" if self.pair.tokenizer.chat_template else COMPLETES)

    def missing(self, need: str) -> str:
        """Return the reason why a method's need is not met; "" if it is."""
        if need != "store":
            return self.pair.missing(need, NEEDED[need])
        if self.store is None:
            return "There is no datastore for this target; python -m specdemo train datastore builds one."
        return ""

    def memory_mb(self, need: str) -> float:
        """Return the memory of what meets a need, besides the target; 0 if nothing does."""
        found = self.store if need == "store" else self.pair.drafts.get(need)
        return found.memory_bytes / 1e6 if found else 0.0


def fetch(settings: AppSettings, report: ProgressCallback) -> Finder:
    """Download and convert the files of a pair without loading them; return them for `load`. Raises UserError."""
    from specdemo.models.pair import fetch_pair

    return fetch_pair(settings, report)


def compiling(settings: AppSettings) -> AbstractContextManager[None]:
    """Return a context in which the compiled pass is made ready at the same time, if the target will use it."""
    from specdemo.kernels import runtime
    from specdemo.models.loading import pack_as

    on_cpu = choose_device(settings.device, settings.precision).type == "cpu"
    packed = pack_as(settings.precision, settings.device) is not None
    return runtime.compiling() if on_cpu and packed else nullcontext()


def load(settings: AppSettings, report: ProgressCallback, found: Finder | None = None) -> Loaded:
    """Load, quantise, warm up and measure; to be called in the compute thread. found: from `fetch`. Raises UserError."""
    return warm(place(settings, report, found), report)


def place(settings: AppSettings, report: ProgressCallback, found: Finder | None = None) -> Loaded:
    """Load and quantise without a pass: `warm` makes it ready, in the process that runs it. found: from `fetch`. Raises UserError."""
    import torch

    from specdemo.drafters.memory.datastore import fingerprint, open_store
    from specdemo.models.pair import place_pair

    if settings.threads:  # torch itself chooses one thread a core
        torch.set_num_threads(settings.threads)
    pair = place_pair(settings, found or fetch(settings, report), report)
    tokenizer = fingerprint(pair.tokenizer.get_vocab())
    return Loaded(settings, pair, open_store(pair.target.known, tokenizer, settings.store))


def warm(placed: Loaded, report: ProgressCallback) -> Loaded:
    """Run the first passes of a pair that `place` has loaded, in the thread that computes. Raises UserError."""
    from specdemo.models.pair import warm_pair

    pair = warm_pair(placed.pair, placed.settings, report)
    return replace(placed, pair=pair)


def named(settings: AppSettings) -> tuple[AppSettings, str]:
    """Resolve the target "auto". returns: the settings, and `Loaded.chosen`"""
    if settings.target != "auto":
        return settings, ""
    pair, larger = choose(settings, timed_passes(settings))
    return replace(settings, target=pair.name), LARGEST if larger else USUAL


def timed_passes(settings: AppSettings) -> list[Measured]:
    """Return the costs that were measured on the device of the settings, the newest last."""
    from specdemo.models.measurements import card_name, known_costs

    device = settings.device
    return known_costs(settings.cache_dir, gpu=on_gpu(device), card=card_name(device))


@cache
def machine_name(device: str = "cuda") -> str:
    """Return the name of the graphics card, or of the processor with the number of threads at the first call.

    device: on which models run, if there is such a device
    """
    import torch

    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{processor()['model name']}, {torch.get_num_threads()} threads"
