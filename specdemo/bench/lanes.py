"""The compared variants: our methods in this process and peers in their own answer the same prompts in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from specdemo.config.settings import POLICIES, RunSettings
from specdemo.config.strings import Json, JsonView
from specdemo.drafters.methods import METHODS
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.conversation import Conversation
from specdemo.session.studio import Studio
from specdemo.trace.events import Event, RunFailed, Verified
from specdemo.trace.metrics import Metrics, dropped, measure, output_ids, output_probs

PLAIN_METHOD = "nothing"  # the variant that all others are compared with
CONSTANTS = (1, 2, 3, 4, 6, 10)  # lookaheads, of which the fastest is the best constant
FLOOR = "floor"
GROUPS = ("policies", "methods", "trained", "peers")
PEERS = (
    "transformers",
    "transformers:assisted",
    "transformers:lookup",
    "llama.cpp",
    "llama.cpp:lookup",
)


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One variant on one prompt.

    name: the variant's label; ids: its output, empty if it is computed and not run
    probs: the target's probability of each token, if reported
    accepted: number of accepted draft tokens of each step
    events: the trace of the run, if there is one
    """

    name: str
    metrics: Metrics
    ids: tuple[int, ...]
    probs: tuple[float, ...] = ()
    accepted: tuple[int, ...] = ()
    events: tuple[Event, ...] = ()

    def to_dict(self) -> Json:
        """Return plain values without the trace."""
        return asdict(replace(self, events=()))

    @classmethod
    def from_dict(cls, data: JsonView) -> LaneResult:
        """Return the result that `to_dict` described."""
        lists = {name: tuple(data[name]) for name in ("ids", "probs", "accepted")}
        return cls(data["name"], Metrics(**data["metrics"]), **lists)


class Talk(Protocol):
    """One conversation with a variant: every turn continues its own answers."""

    def answer(self, prompt: str) -> LaneResult:
        """Answer a prompt. Raises UserError for a bad prompt, LaneLost if the variant fails."""

    def close(self) -> None:
        """Free the caches."""


class Lane(Protocol):
    """A timed program or method that answers prompts."""

    def open(self) -> Talk:
        """Start a conversation."""


class LaneLost(RuntimeError):
    """One variant has failed; the message has the reason. The others are unaffected."""


@dataclass(frozen=True, slots=True)
class OwnLane:
    """One of our methods on the loaded pair, in this process."""

    studio: Studio
    name: str
    settings: RunSettings
    system: str = ""

    def open(self) -> OwnTalk:
        """Start a conversation with its own caches, so that no variant profits from another."""
        return OwnTalk(self, self.studio.open())


@dataclass(frozen=True, slots=True)
class OwnTalk:
    """A conversation with one of our methods."""

    lane: OwnLane
    conversation: Conversation

    def answer(self, prompt: str) -> LaneResult:
        lane = self.lane
        return run_once(self.conversation, lane.name, prompt, lane.settings, lane.system)

    def close(self) -> None:
        """Free the caches."""
        self.conversation.close()


def run_lanes(
    lanes: dict[str, Lane],
    turns: Sequence[str],
    *,
    first: int = 0,
    lost: Callable[[str, str], None],
) -> Iterator[list[LaneResult]]:
    """Yield the results of all variants for each turn of a conversation; one variant runs at a time.

    first: index of the first variant. The order rotates from turn to turn, so that changes of the machine affect all alike
    lost: called with the name of a variant that failed and a sentence; it is removed from `lanes`
    """
    talks = {name: lane.open() for name, lane in lanes.items()}
    try:
        for number, turn in enumerate(turns, start=first):
            names, results = list(lanes), {}
            start = number % len(names)
            for name in names[start:] + names[:start]:
                try:
                    results[name] = talks[name].answer(turn)
                except LaneLost as error:
                    del lanes[name]
                    lost(name, str(error))
            yield [results[name] for name in lanes]
    finally:
        for talk in talks.values():
            talk.close()


def run_once(
    conversation: Conversation,
    name: str,
    prompt: str,
    settings: RunSettings,
    system: str = "",
    cancel: threading.Event | None = None,
) -> LaneResult:
    """Run one variant without a baseline. Raises LaneLost if it failed, or its drafter did."""
    events: list[Event] = []
    for event in conversation.run(
        prompt,
        replace(settings, baseline=False),
        system=system,
        cancel=cancel or threading.Event(),
        every=LOOK_SECONDS,
    ):
        if isinstance(event, RunFailed):
            raise LaneLost(event.message)
        events.append(event)
    if error := dropped(events):
        raise LaneLost(error)
    accepted = tuple(len(event.path) for event in events if isinstance(event, Verified))
    ids, probs = tuple(output_ids(events)), tuple(output_probs(events))
    return LaneResult(name, measure(events), ids, probs, accepted, tuple(events))


def expand(lanes: str, studio: Studio) -> list[str]:
    """Return the names in a comma-separated list; `policies`, `methods`, `trained` and `peers` name groups.

    trained: methods that draft with weights trained for this target, without its draft model
    peers: other programs on the same weights, and the floor that memory sets
    """
    names: list[str] = []
    for name in (part.strip() for part in lanes.split(",") if part.strip()):
        if name == "policies":
            names += [f"draft_model:constant:{count}" for count in CONSTANTS]
            names += [f"draft_model:{policy}" for policy in POLICIES if policy != "constant"]
        elif name == "methods":
            names += [m.name for m in studio.methods() if m.available and m.name != PLAIN_METHOD]
        elif name == "trained":
            here = {m.name for m in studio.methods() if m.available}
            names += [n for n, method in METHODS.items() if n in here and method.states]
        elif name == "peers":
            names += [*PEERS, FLOOR]
        else:
            names.append(name)
    return names


def single_lanes(lanes: str) -> list[str]:
    """Return the names of our methods in a comma-separated list, without those of groups."""
    names = (part.strip() for part in lanes.split(","))
    return [name for name in names if name and name not in GROUPS and is_own(name)]


def is_own(lane: str) -> bool:
    """Return whether a name is one of our methods."""
    return lane not in PEERS and lane != FLOOR
