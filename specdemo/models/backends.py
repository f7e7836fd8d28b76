"""Choice of the fastest of several devices for a model, measured at its first start and then cached.

If only one device is possible, nothing is read, measured or written.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.engine.limits import Limits
from specdemo.engine.loop import greedy_steps
from specdemo.engine.passes import Decoder
from specdemo.engine.target import CachedModel
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import resolve
from specdemo.models.devices import AUTO_DEVICE, best_device, candidates
from specdemo.models.loading import load_model, pack_as
from specdemo.models.measurements import BACKENDS, LIBRARIES, Measurement, machine, measurement
from specdemo.models.tokenizers import load_tokenizer

TOKENS, WARM_UP = (
    16,
    4,
)  # new tokens of a greedy text, and the number of first ones that are not timed
MAX_SECONDS = 60.0  # including loading, after which no further device is tried
TIMED_PROMPT = "Three things that a lighthouse keeper does before sunset:"


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of trying one device. seconds: of its fastest pass of one row, None if it was rejected for a `reason`"""

    backend: str
    seconds: float | None
    reason: str = ""

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.backend} {self.reason}"
        return f"{self.backend} {1e3 * self.seconds:.1f} ms a pass"


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The chosen device and all trials, that of the default device first."""

    chosen: str
    trials: tuple[Trial, ...]


def fastest(
    backends: Mapping[str, Callable[[], Decoder]],
    prompt_ids: Sequence[int],
    limit: float = MAX_SECONDS,
) -> BackendChoice:
    """Choose the fastest backend whose greedy tokens equal those of the first one.

    backends: load the model, by name, the default first; they may raise UserError if a model does not fit
    limit: seconds after which no further backend is tried
    """
    started, trials, expected = time.perf_counter(), list[Trial](), None
    for name, load in backends.items():
        if trials and time.perf_counter() - started > limit:
            trials.append(Trial(name, None, "was not tried: there was no time for it"))
            continue
        try:
            ids, seconds = _greedy(load(), prompt_ids)
        except UserError as error:
            trials.append(Trial(name, None, f"is out: {error.message}"))
            continue
        except Exception as error:  # noqa: BLE001 - an operation that the device lacks
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            trials.append(Trial(name, None, f"is out: {reason}"))
            continue
        expected = expected or ids
        same = ids == expected
        trials.append(Trial(name, seconds) if same else Trial(name, None, "writes other tokens"))
    timed = [(trial.seconds, trial.backend) for trial in trials if trial.seconds]
    chosen = min(timed, key=lambda one: one[0])[1] if timed else next(iter(backends))
    return BackendChoice(chosen, tuple(trials))


def _greedy(decoder: Decoder, prompt_ids: Sequence[int]) -> tuple[list[int], float]:
    """Return a greedy text and the seconds of its fastest pass."""
    steps = greedy_steps(CachedModel(decoder), prompt_ids, Limits(TOKENS))
    ids = [step.next.token_id for step in steps if step.next]
    return ids, min(step.verify_seconds for step in steps[WARM_UP:])


def choose_by_measure(settings: AppSettings, progress: ProgressCallback = silent) -> str:
    """Return the device for the settings' target: the named one, or for `auto` the fastest."""
    names = _devices(settings)
    if len(names) < 2:
        return settings.device
    cached = _measurement(settings, names)
    known = cached.read()
    if known is None:
        progress(Progress("warm up", None, f"measuring {settings.target} on {', '.join(names)}"))
        loads = {name: _loader(settings, name, progress) for name in names}
        files = resolve(settings.target, settings.cache_dir)
        known = fastest(loads, load_tokenizer(files)(TIMED_PROMPT)["input_ids"])
        cached.write(known)
        gc.collect()
    return known.chosen


def describe_choice(settings: AppSettings) -> str:
    """Return which device the settings' target uses and why; "" if only one is possible."""
    names = _devices(settings)
    if len(names) < 2:
        return ""
    if known := _measurement(settings, names).read():
        trials = ", ".join(map(str, known.trials))
        return f"{known.chosen} for {settings.target} in {settings.precision}, measured: {trials}"
    best = best_device(settings.precision)
    others = ", ".join(names[1:])
    return f"{best.device} for {settings.precision}: {best.why}; the first start of {settings.target} measures {others} too"


def _devices(settings: AppSettings) -> tuple[str, ...]:
    return candidates(settings.precision) if settings.device.strip().lower() == AUTO_DEVICE else ()


def _loader(
    settings: AppSettings, device: str, progress: ProgressCallback
) -> Callable[[], Decoder]:
    def load() -> Decoder:
        gc.collect()  # frees the model of the previous trial
        dtype = pack_as(settings.precision, device)
        files = resolve(settings.target, settings.cache_dir, progress, dtype)
        return load_model(
            files, settings.precision, device, progress,
            head=settings.head, cache_dir=settings.cache_dir,
        ).decoder  # fmt: skip

    return load


def _measurement(settings: AppSettings, names: Sequence[str]) -> Measurement[BackendChoice]:
    key = [settings.target, settings.precision, settings.head, *names, *map(version, LIBRARIES)]
    return measurement(settings.cache_dir, BACKENDS, BackendChoice, (machine(), key))
