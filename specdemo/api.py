"""The Python interface: load a pair, run prompts, compare methods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import Json
from specdemo.drafters.base import Method
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.files.progress import ProgressLines
from specdemo.files.store import write_file
from specdemo.session.door import MethodInfo
from specdemo.session.runs import failure
from specdemo.session.studio import Conversation, Studio
from specdemo.trace.codec import dumps
from specdemo.trace.events import NOTHING, Event, ModelInfo, RunFailed, Trace
from specdemo.trace.metrics import ComparedRun, answering, measure
from specdemo.trace.replay import token_rows

WARM_UP_TOKENS = 8  # tokens of the warm-up before a measured run


def load(
    target: str | None = None,
    draft: str | None = None,
    *,
    precision: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    store: str | None = None,
    trained: str | None = None,
    drafter: str | None = None,
    cache_dir: str | Path | None = None,
) -> Model:
    """Load a pair of a target and its drafter. Reports progress on standard error.

    target, draft: a catalogue name, a hub id, a local folder or a GGUF file
    precision: of the target's weights: nf4, file, auto, int8, bf16 or fp32
    device: cpu, cuda, mps or auto; threads: 0 uses every core
    store, trained: folders of a datastore and of trained drafters
    drafter: a published drafter for the target: a hub id or a folder
    cache_dir: folder of downloaded and converted models

    Missing arguments come from the environment, then from the defaults; docs/reference.md lists both.
    Raises UserError if the pair cannot be loaded.
    """
    settings = AppSettings.from_environment(
        target=target,
        draft=draft,
        precision=precision,
        device=device,
        threads=threads,
        store=store,
        trained=trained,
        drafter=drafter,
        cache_dir=None if cache_dir is None else Path(cache_dir),
    )
    studio = Studio(settings)
    studio.load(ProgressLines(lambda line: sys.stderr.write(f"{line}\n")))
    if studio.error:
        raise studio.error
    return Model(studio)


class Run(ComparedRun):
    """A run that continues while it is read: iterate for its events, or use the properties for its results.

    Iterating again starts with the first event. Properties wait for the end of the run.
    """

    def __init__(self, events: Iterator[Event], plain: Trace | None = None) -> None:
        super().__init__(Trace(), plain)
        self._source = events
        self._events: list[Event] = []

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in order, each when it arrives."""
        place = 0
        while place < len(self._events) or self._grow():
            yield self._events[place]
            place += 1

    def _grow(self) -> bool:
        """Wait for one more event. returns: whether there was one"""
        for event in self._source:
            self._events.append(event)
            return True
        return False

    def close(self) -> None:
        """End the run within a step. Received events stay."""
        close = getattr(self._source, "close", None)
        if close:
            close()

    @property
    def trace(self) -> Trace:
        """All events of the run."""
        return Trace(tuple(self))

    @property
    def answer(self) -> Trace:
        """The variant that answers; plain decoding may precede it. Raises UserError for a failed run."""
        trace = self.trace
        for event in trace.events:
            if isinstance(event, RunFailed):
                raise failure(event)
        return answering(trace)

    def rows(self) -> list[Json]:
        """Return a row for each token of the trace, rejected ones included; `pandas.DataFrame(run.rows())` is a table."""
        return list(token_rows(self))

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON lines, the format of the page, `replay` and `export`."""
        write_file(Path(path), dumps(self))


class Chat:
    """A conversation: each prompt is answered with the earlier messages as context."""

    def __init__(self, studio: Studio, conversation: Conversation) -> None:
        self._studio = studio
        self._conversation = conversation

    def run(
        self, prompt: str, method: str | Method = "auto", *, system: str = "", **settings: object
    ) -> Run:
        """Answer a prompt; see `Model.run`."""
        chosen = _asked(self._studio, method, settings)
        return Run(self._conversation.run(prompt, chosen, system=system, every=LOOK_SECONDS))

    def close(self) -> None:
        """Free the caches."""
        self._conversation.close()


class Model:
    """A loaded pair. Thread-safe: concurrent runs share passes."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

    @property
    def target(self) -> ModelInfo:
        return self.studio.target

    def methods(self) -> list[MethodInfo]:
        """Return every drafting method, with its availability for this pair."""
        return self.studio.methods()

    def run(
        self, prompt: str, method: str | Method = "auto", *, system: str = "", **settings: object
    ) -> Run:
        """Answer a prompt in a new conversation, with plain decoding beside it. The run continues while its events are read.

        method: a name of `methods()`, or a `Method` of your own
        settings: by name, such as `lookahead=4`, `temperature=0.7`, `max_new_tokens=64` or `baseline=False`;
            docs/reference.md lists them with their ranges
        Raises UserError for an invalid setting; for an invalid prompt, when the first event is read.
        """
        return Run(self._alone(prompt, _asked(self.studio, method, settings), system))

    def compare(
        self,
        prompt: str,
        methods: Iterable[str | Method] = ("auto",),
        *,
        repeat: int = 3,
        system: str = "",
        **settings: object,
    ) -> dict[str, Run]:
        """Run plain decoding and methods in turn on one prompt, each after a short warm-up run.

        repeat: measured runs of each; the run of median speed is returned
        settings: of all runs; a baseline is not needed
        returns: the runs by method, "nothing" first; each `speedup` is relative to that one
        Raises UserError for invalid settings and for a failed run.
        """
        settings["baseline"] = False
        chosen = [_asked(self.studio, method, settings) for method in (NOTHING, *methods)]
        taken: dict[str, list[list[Event]]] = {one.method: [] for one in chosen}
        lanes = {one.method: one for one in chosen}
        for _ in range(max(1, repeat)):
            for name, lane in lanes.items():
                short = replace(lane, max_new_tokens=min(WARM_UP_TOKENS, lane.max_new_tokens))
                _ = Run(self._alone(prompt, short, system)).text
                taken[name].append(list(self._alone(prompt, lane, system)))
        kept = {name: sorted(takes, key=_rate)[len(takes) // 2] for name, takes in taken.items()}
        plain = Run(iter(kept[NOTHING])).answer
        return {name: Run(iter(events), plain) for name, events in kept.items()}

    def chat(self) -> Chat:
        """Open a conversation of several prompts."""
        return Chat(self.studio, self.studio.open())

    def _alone(self, prompt: str, settings: RunSettings, system: str) -> Iterator[Event]:
        with closing(self.studio.open()) as conversation:
            yield from conversation.run(prompt, settings, system=system, every=LOOK_SECONDS)


def _asked(studio: Studio, method: str | Method, settings: Json) -> RunSettings:
    """Return the settings of a run, and add a `Method` to those that the studio knows. Raises UserError for an unknown name."""
    if isinstance(method, Method):
        studio.add(method)
        method = method.name
    if method not in studio.known:
        names = ", ".join(studio.known)
        raise UserError("method.unknown", method=method, names=names)
    return RunSettings.from_values({**settings, "method": method})


def _rate(events: list[Event]) -> float:
    return measure(events).tokens_per_second or 0.0
