"""The Python interface: load a pair, run prompts, compare methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.drafters.base import Method
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.caches import failure
from specdemo.session.door import MethodInfo
from specdemo.session.studio import Studio
from specdemo.trace.codec import dumps
from specdemo.trace.events import Event, ModelInfo, RunFailed, StandIn, Trace
from specdemo.trace.metrics import Metrics, answering, baseline, measure, output_text, speedup
from specdemo.trace.tables import token_rows

if TYPE_CHECKING:
    from specdemo.session.conversation import Conversation

NOTHING = "nothing"  # plain decoding, as a method
WARM_UP = 8  # tokens of the run before a measured one


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
    """Load a pair: a target, and what drafts for it. It reports on standard error.

    target, draft: a catalogue name, a hub id, a local folder or a GGUF file
    precision: of the target's weights: nf4, int8, bf16 or fp32
    device: cpu, cuda, mps or auto; threads: 0 uses every core
    store, trained: folders of a datastore and of trained drafters
    drafter: a published drafter for the target: a hub id or a folder
    cache_dir: where downloaded and converted models are kept

    What is not given comes from the environment, then from the defaults; docs/reference.md lists both.
    Raises UserError for what cannot be loaded.
    """
    from specdemo.cli.console import load_studio

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
    return Model(load_studio(settings))


class Run:
    """A run that goes on while it is read: iterate for its events, or ask for what they add up to.

    Iterating again begins with the first event. Whatever sums up waits for the end of the run first.
    """

    def __init__(self, events: Iterator[Event], plain: Metrics | None = None) -> None:
        self._source = events
        self._plain = plain
        self._events: list[Event] = []

    def __iter__(self) -> Iterator[Event]:
        """The events in order, each as soon as it has come."""
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
        """End the run within a step. What has come stays."""
        close = getattr(self._source, "close", None)
        if close:
            close()

    @property
    def trace(self) -> Trace:
        """All events of the run."""
        return Trace(tuple(self))

    @property
    def answer(self) -> Trace:
        """The lane that answers; the one before it, if any, is plain decoding. Raises UserError for a run that broke."""
        trace = self.trace
        for event in trace.events:
            if isinstance(event, RunFailed):
                raise failure(event)
        return answering(trace)

    @property
    def text(self) -> str:
        """The answer."""
        return output_text(self.answer)

    @property
    def metrics(self) -> Metrics:
        """Counts, times and rates of the lane that answers."""
        return measure(self.answer)

    @property
    def baseline(self) -> Metrics | StandIn | None:
        """Plain decoding, which the run is compared with; None where there was none."""
        return self._plain or baseline(self.trace)

    @property
    def speedup(self) -> float | None:
        """Tokens per second over those of plain decoding; None without a baseline."""
        plain = self.baseline
        return speedup(plain, self.metrics) if plain else None

    def rows(self) -> list[dict[str, Any]]:
        """A row for each token of the trace, refused ones included; `pandas.DataFrame(run.rows())` is a table."""
        return list(token_rows(self))

    def save(self, path: str | Path) -> None:
        """Write the trace as JSON lines, which the page, `replay` and `export` read."""
        Path(path).write_text(dumps(self), encoding="utf-8")


class Chat:
    """A conversation: each prompt is answered with what was said before as its context."""

    def __init__(self, studio: Studio, conversation: Conversation) -> None:
        self._studio = studio
        self._conversation = conversation

    def run(
        self, prompt: str, method: str | Method = "auto", *, system: str = "", **settings: Any
    ) -> Run:
        """Answer a prompt; see `Model.run`."""
        chosen = _asked(self._studio, method, settings)
        return Run(self._conversation.run(prompt, chosen, system=system, every=LOOK_SECONDS))

    def close(self) -> None:
        """Free its caches."""
        self._conversation.close()


class Model:
    """A loaded pair. Several threads may use it: runs that go on at the same time share passes."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio

    @property
    def target(self) -> ModelInfo:
        """Name, precision and kernel of the target."""
        return self.studio.target

    def methods(self) -> list[MethodInfo]:
        """Every drafting method, and whether this pair can do it."""
        return self.studio.methods()

    def run(
        self, prompt: str, method: str | Method = "auto", *, system: str = "", **settings: Any
    ) -> Run:
        """Answer a prompt in a conversation of its own, plain decoding first. It runs while the events are read.

        method: a name of `methods()`, or the entry of a method of your own
        settings: of a run by name, as `lookahead=4`, `temperature=0.7`, `max_new_tokens=64` or `baseline=False`;
            docs/reference.md lists them with their ranges
        Raises UserError for a setting that is not possible; for a prompt that is not, when the first event is read.
        """
        return Run(self._alone(prompt, _asked(self.studio, method, settings), system))

    def compare(
        self,
        prompt: str,
        methods: Iterable[str | Method] = ("auto",),
        *,
        repeat: int = 3,
        system: str = "",
        **settings: Any,
    ) -> dict[str, Run]:
        """Run plain decoding and methods in turn on one prompt, each warmed up by a short run.

        repeat: measured runs of each; the one of median speed is kept
        settings: of all runs; they need no baseline of their own
        returns: the runs by method, "nothing" first; each one's `speedup` is over that one
        Raises UserError for what is not possible, and for a run that breaks.
        """
        settings["baseline"] = False
        chosen = [_asked(self.studio, method, settings) for method in (NOTHING, *methods)]
        taken: dict[str, list[list[Event]]] = {one.method: [] for one in chosen}
        lanes = {one.method: one for one in chosen}
        for _ in range(max(1, repeat)):
            for name, lane in lanes.items():
                short = replace(lane, max_new_tokens=min(WARM_UP, lane.max_new_tokens))
                _ = Run(self._alone(prompt, short, system)).text
                taken[name].append(list(self._alone(prompt, lane, system)))
        kept = {name: sorted(takes, key=_rate)[len(takes) // 2] for name, takes in taken.items()}
        plain = Run(iter(kept[NOTHING])).metrics
        return {name: Run(iter(events), plain) for name, events in kept.items()}

    def chat(self) -> Chat:
        """A conversation of several prompts."""
        return Chat(self.studio, self.studio.open())

    def _alone(self, prompt: str, settings: RunSettings, system: str) -> Iterator[Event]:
        with closing(self.studio.open()) as conversation:
            yield from conversation.run(prompt, settings, system=system, every=LOOK_SECONDS)


def _asked(studio: Studio, method: str | Method, settings: dict[str, Any]) -> RunSettings:
    """Settings of a run. A method that is given by its entry is known from here on."""
    if isinstance(method, Method):
        studio.add(method)
        method = method.name
    if method not in studio.known:
        names = ", ".join(studio.known)
        raise UserError("method.unknown", method=method, names=names)
    return RunSettings.from_values({**settings, "method": method})


def _rate(events: list[Event]) -> float:
    return measure(events).tokens_per_second or 0.0
