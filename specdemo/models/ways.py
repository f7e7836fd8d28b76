"""Choice of the fastest of several devices for a model, measured at its first start and then cached.

Where only one device is possible, nothing is read, measured or written.
"""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.engine.passes import Decoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import resolve
from specdemo.models.devices import AUTO, best_device, candidates
from specdemo.models.loading import load_model, pack_as
from specdemo.models.measured import machine
from specdemo.models.tokenizers import load_tokenizer

TOKENS, WARM = 16, 4  # of a greedy text, and those of them that are not timed
LIMIT = 60.0  # seconds, with loading, after which no further way is tried
PROMPT = "Three things that a lighthouse keeper does before sunset:"
LIBRARIES = ("transformers", "bitsandbytes")


@dataclass(frozen=True, slots=True)
class Trial:
    """One way. seconds: of a pass of one row, the fastest; None where it is out. why: it is out"""

    way: str
    seconds: float | None
    why: str = ""

    @property
    def words(self) -> str:
        """For a list."""
        return f"{self.way} {self.why}" if self.seconds is None else f"{self.way} {1e3 * self.seconds:.1f} ms a pass"  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """The way that was taken, and all that were tried, that of the rule first."""

    taken: str
    trials: tuple[Trial, ...]

    @property
    def words(self) -> str:
        """Why it was taken."""
        return f"measured: {', '.join(trial.words for trial in self.trials)}"


def fastest(
    ways: Mapping[str, Callable[[], Decoder]], prompt_ids: Sequence[int], limit: float = LIMIT
) -> Finding:
    """Write a short greedy text in each way. The fastest is taken that says what the first says.

    ways: by name, that of the rule first; they may raise UserError where a model does not fit
    limit: seconds after which no further way is tried
    """
    begun, trials, said = time.perf_counter(), list[Trial](), None
    for way, load in ways.items():
        if trials and time.perf_counter() - begun > limit:
            trials.append(Trial(way, None, "was not tried: there was no time for it"))
            continue
        try:
            ids, seconds = _greedy(load(), prompt_ids)
        except UserError as error:
            trials.append(Trial(way, None, f"is out: {error.message}"))
            continue
        except Exception as error:  # noqa: BLE001 - what a device or an optional package cannot do
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            trials.append(Trial(way, None, f"is out: {reason}"))
            continue
        said = said or ids
        same = ids == said
        trials.append(Trial(way, seconds if same else None, "" if same else "says other words"))
    timed = [(trial.seconds, number) for number, trial in enumerate(trials) if trial.seconds]
    taken = trials[min(timed)[1]].way if timed else next(iter(ways))
    return Finding(taken, tuple(trials))


def _greedy(decoder: Decoder, prompt_ids: Sequence[int]) -> tuple[list[int], float]:
    """A greedy text, and the seconds of its fastest pass."""
    target, ids, spent = CachedModel(decoder), [prompt_ids[-1]], []
    target.read(prompt_ids[:-1])
    for _ in range(TOKENS):
        begun = time.perf_counter()
        logits = target.forward(ids[-1], Proposal.chain([])).logits[0]
        ids.append(int(logits.argmax()))  # sync: a GPU has computed it by now
        spent.append(time.perf_counter() - begun)
        target.keep([])
    return ids[1:], min(spent[WARM:])


def choose_by_measure(settings: AppSettings, progress: ProgressCallback = silent) -> str:
    """The device for the settings' target: theirs, or for `auto` the fastest that is there. It is kept for later starts."""
    names = _devices(settings)
    if len(names) < 2:
        return settings.device
    known = _read(_file(settings, names))
    if known is None:
        progress(Progress("warm up", None, f"measuring {settings.target} on {', '.join(names)}"))
        known = fastest({name: _loads(settings, name, progress) for name in names}, _ids(settings))
        _write(_file(settings, names), known)
        gc.collect()
    return known.taken


def told(settings: AppSettings) -> str:
    """Which device the settings' target gets, and why, in words; "" where that is no question."""
    names = _devices(settings)
    if len(names) < 2:
        return ""
    known = _read(_file(settings, names))
    if known:
        return f"{known.taken} for {settings.target} in {settings.precision}, {known.words}"
    best = best_device(settings.precision)
    others = ", ".join(names[1:])
    return f"{best.device} for {settings.precision}: {best.why}; the first start of {settings.target} measures {others} too"


def _devices(settings: AppSettings) -> tuple[str, ...]:
    return candidates(settings.precision) if settings.device.strip().lower() == AUTO else ()


def _loads(settings: AppSettings, device: str, progress: ProgressCallback) -> Callable[[], Decoder]:
    def load() -> Decoder:
        gc.collect()  # what was tried before may go
        kept_in = pack_as(settings.precision, device)
        files = resolve(settings.target, settings.cache_dir, progress, kept_in)
        head, kept = settings.head, settings.cache_dir
        return load_model(files, settings.precision, device, progress, head=head, cache_dir=kept).decoder  # fmt: skip

    return load


def _ids(settings: AppSettings) -> list[int]:
    ids: list[int] = load_tokenizer(resolve(settings.target, settings.cache_dir))(PROMPT)["input_ids"]  # fmt: skip
    return ids


def _file(settings: AppSettings, names: Sequence[str]) -> Path:
    """One for each target, precision, head and choice."""
    of = [settings.target, settings.precision, settings.head, *names, *map(version, LIBRARIES)]
    return _named(settings, of)


def _named(settings: AppSettings, of: Sequence[str]) -> Path:
    """A file of this machine, named by what it is about."""
    name = hashlib.sha256(repr((machine(), of)).encode()).hexdigest()[:16]
    return settings.cache_dir / "ways" / f"{name}.json"


def _read(file: Path) -> Finding | None:
    """None for a file that is not there or says nothing usable."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        trials = tuple(Trial(**trial) for trial in found["trials"])
        return Finding(str(found["taken"]), trials) if trials else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, finding: Finding) -> None:
    """A cache that cannot be written costs the same measurement at the next start."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(finding)), encoding="utf-8")
        part.replace(file)
    except OSError:
        pass
