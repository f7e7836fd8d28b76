"""The compared variants: our methods and other programs answer the same prompts in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Protocol, TypeAlias

from pydantic import Field

from specdemo.config.errors import UserError
from specdemo.config.settings import POLICIES, RunSettings
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.session.studio import Conversation, Studio
from specdemo.trace.events import NOTHING, Event, RunFailed, Trace
from specdemo.trace.metrics import (
    Metrics,
    disturbed,
    dropped,
    measure,
    output_ids,
    output_probs,
    repeats_itself,
    speedup,
)

CONSTANTS = (1, 2, 3, 4, 6, 10)  # lookaheads, of which the fastest is the best constant
LANE_GROUPS = ("policies", "methods", "trained", "peers")
PEERS = (
    "transformers",
    "transformers:assisted",
    "transformers:lookup",
)


@dataclass(frozen=True, slots=True)
class LaneResult:
    """The answer of one variant to one prompt, and its figures.

    name: the variant's label; ids: its output, empty if a server reports no ids
    probs: the target's probability of each token, if reported
    repeats: whether the answer repeats itself, see `trace.metrics`
    events: the trace of the run, if there is one; not stored in a `Journal`
    """

    name: str
    metrics: Metrics
    ids: tuple[int, ...]
    probs: tuple[float, ...] = ()
    events: Annotated[tuple[Event, ...], Field(exclude=True)] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Paired:
    """A variant's answer, and the answer of plain decoding to the same prompt that was measured right before or after it.

    disturbed: other programs were busy meanwhile; task, prompt: of the answer; each repetition of a prompt has its name
    """

    result: LaneResult
    plain: LaneResult
    disturbed: bool = False
    task: str = ""
    prompt: str = ""

    @classmethod
    def of(cls, result: LaneResult, plain: LaneResult) -> Paired:
        """Return the pair; traces show whether other programs were busy."""
        if not result.events or result is plain:
            return cls(result, plain)
        return cls(result, plain, disturbed(Trace(result.events), Trace(plain.events)))

    @property
    def ratio(self) -> float | None:
        """Tokens per second over plain decoding's."""
        return speedup(self.plain.metrics, self.result.metrics)


Answer: TypeAlias = Callable[[str], LaneResult]
"""Answers a prompt. Raises UserError for a bad prompt, LaneLost if the variant fails."""


class Lane(Protocol):
    """A timed program or method that answers prompts."""

    def talk(self) -> AbstractContextManager[Answer]:
        """Open a conversation, in which every turn continues the variant's own answers."""


class LaneLost(RuntimeError):
    """One variant has failed; the message has the reason. The others are unaffected."""


@dataclass(frozen=True, slots=True)
class OwnLane:
    """One of our methods on the loaded pair, in this process."""

    studio: Studio
    name: str
    settings: RunSettings
    system: str = ""

    @contextmanager
    def talk(self) -> Iterator[Answer]:
        """Open a conversation with its own caches, so that no variant profits from another."""
        with closing(self.studio.open()) as conversation:
            yield lambda prompt: run_once(
                conversation, self.name, prompt, self.settings, self.system
            )


def measuring_order(names: Sequence[str], number: int) -> list[tuple[str, int]]:
    """Return the order of variants on a prompt, each with the index of the plain run next to it.

    Plain runs have the name of plain decoding. From prompt to prompt the order is reversed, and every second time it
    rotates, so that each variant follows plain decoding as often as it precedes it.

    names: a, b, c -> plain 0, a 0, b 1, plain 1, c 1
    """
    start = number // 2 % max(1, len(names))
    order = [(NOTHING, 0)]
    for index, name in enumerate([*names[start:], *names[:start]]):
        order.append((name, (index + 1) // 2))
        if index % 2:
            order.append((NOTHING, (index + 1) // 2))
    return order[::-1] if number % 2 else order


def run_lanes(
    lanes: dict[str, Lane],
    turns: Sequence[str],
    *,
    first: int = 0,
    lost: Callable[[str, str], None],
) -> Iterator[list[Paired]]:
    """Yield the answers of all variants to each turn of a conversation, plain decoding's first; one runs at a time.

    first: number of the prompt, for the order; lost: called with the name of a variant that failed and a sentence;
        it is removed from `lanes`
    Raises UserError if plain decoding failed: no variant can be compared without it.
    """
    opened = measuring_order(_drafted(lanes), 0)
    with ExitStack() as open_talks:
        talks = {
            (name, name == NOTHING and index): open_talks.enter_context(lanes[name].talk())
            for name, index in opened
        }
        for number, turn in enumerate(turns, start=first):
            found: dict[tuple[str, int], LaneResult] = {}
            order = measuring_order(_drafted(lanes), number)
            for name, index in order:
                try:
                    found[name, index] = talks[name, name == NOTHING and index](turn)
                except LaneLost as error:
                    del lanes[name]
                    if name == NOTHING:
                        raise UserError("bench.plain_lost", message=error) from error
                    lost(name, str(error))
            pairs = {
                name: Paired.of(found[name, index], found[NOTHING, index])
                for name, index in sorted(found, reverse=True)  # of plain runs, the first stays
            }
            yield [pairs[name] for name in lanes]


def _drafted(lanes: Iterable[str]) -> list[str]:
    return [name for name in lanes if name != NOTHING]


def run_once(
    conversation: Conversation,
    name: str,
    prompt: str,
    settings: RunSettings,
    system: str = "",
) -> LaneResult:
    """Run one variant without a baseline. Raises LaneLost if it failed, or its drafter did."""
    events: list[Event] = []
    for event in conversation.run(
        prompt,
        replace(settings, baseline=False),
        system=system,
        every=LOOK_SECONDS,
    ):
        if isinstance(event, RunFailed):
            raise LaneLost(event.message)
        events.append(event)
    if error := dropped(events):
        raise LaneLost(error)
    ids, probs = tuple(output_ids(events)), tuple(output_probs(events))
    again = repeats_itself(events)
    return LaneResult(name, measure(events), ids, probs, tuple(events), again)


def expand(lanes: str, studio: Studio) -> list[str]:
    """Return the names in a comma-separated list; `policies`, `methods`, `trained` and `peers` name groups.

    methods, trained: with more after the name, each method that has a policy gets it:
        methods:constant:4 -> auto, draft_model:constant:4, ...
    trained: methods that draft with weights trained for this target, without its draft model
    peers: transformers on the same weights
    """
    names: list[str] = []
    here = [method for method in studio.methods() if method.available]
    for name in _listed(lanes):
        group, _, rest = name.partition(":")
        if name == "policies":
            names += [f"draft_model:constant:{count}" for count in CONSTANTS]
            names += [f"draft_model:{policy}" for policy in POLICIES if policy != "constant"]
        elif group in ("methods", "trained"):
            found = [studio.known[m.name] for m in here if m.name != NOTHING]
            found = [method for method in found if group == "methods" or method.states]
            names += [
                f"{method.name}:{rest}" if rest and "policy" in method.options else method.name
                for method in found
            ]
        elif name == "peers":
            names += PEERS
        else:
            names.append(name)
    return names


def single_lanes(lanes: str) -> list[str]:
    """Return the names of our methods in a comma-separated list, without those of groups."""
    return [
        name
        for name in _listed(lanes)
        if name.partition(":")[0] not in LANE_GROUPS and is_own(name)
    ]


def _listed(lanes: str) -> list[str]:
    return list(filter(None, map(str.strip, lanes.split(","))))


def is_own(lane: str) -> bool:
    """Return whether a variant is one of our methods, not another program."""
    return lane not in PEERS and "://" not in lane
