"""The loaded pair with its shipped data and settings, as one value that is replaced as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.models.devices import processor

LARGEST, USUAL = "largest", "usual"

if TYPE_CHECKING:
    from specdemo.drafters.memory.datastore import Datastore
    from specdemo.models.outlook import Measured
    from specdemo.models.pair import LoadedPair


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


def fetch(settings: AppSettings, report: ProgressCallback) -> None:
    """Download the files of a pair without loading them. Raises UserError."""
    from specdemo.models.pair import fetch_pair

    fetch_pair(settings, report)


def load(settings: AppSettings, report: ProgressCallback) -> Loaded:
    """Load, quantise, warm up and measure; to be called in the compute thread. Raises UserError."""
    from specdemo.models.pair import load_pair

    set_threads(settings.threads)
    return _with_store(settings, load_pair(settings, report))


def place(settings: AppSettings, report: ProgressCallback) -> Loaded:
    """Load and quantise without a pass: `warm` makes it ready, in the process that runs it. Raises UserError."""
    from specdemo.models.pair import place_pair

    set_threads(settings.threads)
    return _with_store(settings, place_pair(settings, report))


def warm(placed: Loaded, report: ProgressCallback) -> Loaded:
    """Run the first passes on the result of `place`; called in the compute thread. Raises UserError."""
    from specdemo.models.pair import warm_pair

    pair = warm_pair(placed.pair, placed.settings, report)
    return replace(placed, pair=pair)


def _with_store(settings: AppSettings, pair: LoadedPair) -> Loaded:
    from specdemo.drafters.memory.datastore import fingerprint, open_store

    tokenizer = fingerprint(pair.tokenizer.get_vocab())
    return Loaded(settings, pair, open_store(pair.target.known, tokenizer, settings.store))


def named(settings: AppSettings) -> tuple[AppSettings, str]:
    """Resolve the target "auto". returns: the settings, and `Loaded.chosen`"""
    if settings.target != "auto":
        return settings, ""
    from specdemo.models.outlook import choose

    pair, larger = choose(settings, timed_passes(settings))
    return replace(settings, target=pair.name), LARGEST if larger else USUAL


def timed_passes(settings: AppSettings) -> list[Measured]:
    """Return the costs that were measured on the device of the settings, the newest last."""
    from specdemo.models.measurements import card_name, known_costs
    from specdemo.models.outlook import on_gpu

    device = settings.device
    return known_costs(settings.cache_dir, gpu=on_gpu(device), card=card_name(device))


def set_threads(threads: int) -> None:
    """Let torch use this many cores; 0 leaves its choice, one thread a core."""
    import torch

    if threads:
        torch.set_num_threads(threads)


@cache
def machine_name(device: str = "cuda") -> str:
    """Return the name of the graphics card, or of the processor with the number of threads at the first call.

    device: on which models run, if there is such a device
    """
    import torch

    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{processor()['model name']}, {torch.get_num_threads()} threads"


class Starting:
    """Loads in the background. A subclass implements `bring` and `ready`.

    error: why loading failed, or why there is nothing to load
    """

    thread_name: ClassVar[str]
    failed: ClassVar[str]  # start of the message for an unexpected error
    advice: ClassVar[str] = ""

    def __init__(self, error: UserError | None = None) -> None:
        self.error = error
        self._progress = Progress("start", None, "")
        self._lock = threading.Lock()
        self._started = False

    @property
    def ready(self) -> bool:
        """Whether runs are possible."""
        raise NotImplementedError

    def bring(self, report: ProgressCallback) -> None:
        """Load, and wait for it. Raises any error."""
        raise NotImplementedError

    def start(self) -> None:
        """Start loading in a separate thread; a second call has no effect."""
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self.load, name=self.thread_name, daemon=True).start()

    def load(self, report: Callable[[Progress], None] | None = None) -> None:
        """Load and wait. A failure is stored in `error`, and `start` has no effect afterwards."""
        self._started = True
        try:
            self.bring(report or self._report)
        except UserError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the thread must not die without a word
            self.error = UserError(self.failed, error=error)

    def progress(self) -> Progress | None:
        """Return the progress; None if runs are possible or loading has failed."""
        return None if self.ready or self.error else self._progress

    def _report(self, progress: Progress) -> None:
        self._progress = progress
