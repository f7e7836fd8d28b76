"""What is compared: lanes that answer the same prompts in turn, ours in this process, peers in one of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specdemo.config.settings import POLICIES, RunSettings
from specdemo.drafters.methods import METHODS
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.conversation import Conversation
from specdemo.session.studio import Studio
from specdemo.trace.events import Event, RunFailed
from specdemo.trace.metrics import Metrics, measure, output_ids, output_probs

PLAIN = "nothing"  # the lane that every other is compared with
CONSTANTS = (1, 2, 3, 4, 6, 10)  # lookaheads among which the best constant is looked for
FLOOR = "floor"
PEERS = (
    "transformers",
    "transformers:assisted",
    "transformers:lookup",
    "llama.cpp",
    "llama.cpp:lookup",
)


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One lane on one prompt.

    name: the lane's label; ids: what it wrote, empty when it is computed and not run
    probs: the target's probability of each of them, where the lane reports it
    events: the run itself, where there is one
    """

    name: str
    metrics: Metrics
    ids: tuple[int, ...]
    probs: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()


class Talk(Protocol):
    """One conversation with a lane: every turn goes on from the lane's own answers."""

    def answer(self, prompt: str) -> LaneResult:
        """Answer a prompt. Raises UserError for the prompt, LaneLost for the lane."""

    def close(self) -> None:
        """Free what the conversation has cached."""


class Lane(Protocol):
    """Something that answers prompts and is timed."""

    def open(self) -> Talk:
        """A fresh conversation."""


class LaneLost(RuntimeError):
    """A lane cannot go on; the message says why. The others can."""


@dataclass(frozen=True, slots=True)
class OwnLane:
    """One of our methods, on the loaded pair, in this process."""

    studio: Studio
    name: str
    settings: RunSettings
    system: str = ""

    def open(self) -> OwnTalk:
        """A conversation with caches of its own, so that no lane profits from another."""
        return OwnTalk(self, self.studio.open())


@dataclass(frozen=True, slots=True)
class OwnTalk:
    """A conversation with one of our methods."""

    lane: OwnLane
    conversation: Conversation

    def answer(self, prompt: str) -> LaneResult:
        """Answer a prompt."""
        lane = self.lane
        return run_once(self.conversation, lane.name, prompt, lane.settings, lane.system)

    def close(self) -> None:
        """Free its caches."""
        self.conversation.close()


def run_lanes(
    lanes: dict[str, Lane],
    turns: Sequence[str],
    *,
    first: int = 0,
    lost: Callable[[str, str], None],
) -> Iterator[list[LaneResult]]:
    """For each turn of a conversation, every lane's result, in order; one lane works at a time.

    first: index of the lane that begins. The order rotates from turn to turn, so that a drifting machine favours none
    lost: gets a lane's name and a sentence when it cannot go on; it is taken out of `lanes`
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
    """Run one lane without a baseline. Raises RuntimeError when it broke."""
    events: list[Event] = []
    for event in conversation.run(
        prompt,
        replace(settings, baseline=False),
        system=system,
        cancel=cancel or threading.Event(),
        every=LOOK_SECONDS,
    ):
        if isinstance(event, RunFailed):
            raise RuntimeError(event.message)
        events.append(event)
    return LaneResult(
        name, measure(events), tuple(output_ids(events)), tuple(output_probs(events)), tuple(events)
    )


def expand(lanes: str, studio: Studio) -> list[str]:
    """Lane names of a comma-separated list; `policies`, `methods`, `trained` and `peers` stand for all of theirs.

    trained: methods that draft with weights trained for this very target, its draft model aside
    peers: other programs on the same weights, and the floor that memory sets
    """
    names: list[str] = []
    for name in (part.strip() for part in lanes.split(",") if part.strip()):
        if name == "policies":
            names += [f"draft_model:constant:{count}" for count in CONSTANTS]
            names += [f"draft_model:{policy}" for policy in POLICIES if policy != "constant"]
        elif name == "methods":
            names += [m.name for m in studio.methods() if m.available and m.name != PLAIN]
        elif name == "trained":
            here = {m.name for m in studio.methods() if m.available}
            names += [n for n, method in METHODS.items() if n in here and method.states]
        elif name == "peers":
            names += [*PEERS, FLOOR]
        else:
            names.append(name)
    return names


def is_own(lane: str) -> bool:
    """Whether a lane is one of our methods."""
    return lane not in PEERS and lane != FLOOR
