"""Runs one prompt in several lanes, each really run, on the same target in the same process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specdemo.session import Conversation, Studio
from specdemo.settings import POLICIES, RunSettings
from specdemo.trace.events import Event, RunFailed
from specdemo.trace.metrics import Metrics, measure, output_ids, output_probs

CONSTANTS = (1, 2, 3, 4, 6, 10)  # lookaheads among which the best constant is looked for


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One lane on one prompt.

    name: the lane's label; ids: what it wrote; probs: the target's probability of each of them
    events: the run itself
    """

    name: str
    metrics: Metrics
    ids: tuple[int, ...]
    probs: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()


def run_lanes(
    studio: Studio, turns: Sequence[str], lanes: dict[str, RunSettings], *, system: str = ""
) -> Iterator[list[LaneResult]]:
    """For each turn of a conversation, every lane's result, in order.

    Each lane has a conversation of its own, so that none profits from what another has cached. The
    order rotates from turn to turn, so that a drifting machine favours none.
    """
    conversations = {name: studio.open() for name in lanes}
    names = list(lanes)
    for turn in turns:
        results = {
            name: run_once(conversations[name], name, turn, lanes[name], system) for name in names
        }
        names = names[1:] + names[:1]
        yield [results[name] for name in lanes]
    for conversation in conversations.values():
        conversation.close()


def run_once(
    conversation: Conversation,
    name: str,
    prompt: str,
    settings: RunSettings,
    system: str = "",
) -> LaneResult:
    """Run one lane without a baseline. Raises RuntimeError when it broke."""
    events: list[Event] = []
    for event in conversation.run(
        prompt,
        replace(settings, baseline=False),
        system=system,
        cancel=threading.Event(),
    ):
        if isinstance(event, RunFailed):
            raise RuntimeError(event.message)
        events.append(event)
    return LaneResult(
        name, measure(events), tuple(output_ids(events)), tuple(output_probs(events)), tuple(events)
    )


def expand(lanes: str, studio: Studio) -> list[str]:
    """Lane names of a comma-separated list; `policies`, `methods` and `trained` stand for all of theirs.

    trained: methods that draft with weights trained for this very target, its draft model aside
    """
    from specdemo.drafters.base import METHODS
    from specdemo.models.trained import KINDS

    names: list[str] = []
    for name in (part.strip() for part in lanes.split(",") if part.strip()):
        if name == "policies":
            names += [f"draft_model:constant:{count}" for count in CONSTANTS]
            names += [f"draft_model:{policy}" for policy in POLICIES if policy != "constant"]
        elif name == "methods":
            names += [m.name for m in studio.methods() if m.available and m.name != "nothing"]
        elif name == "trained":
            here = {m.name for m in studio.methods() if m.available}
            names += [n for n, m in METHODS.items() if n in here and set(m.needs) & set(KINDS)]
        else:
            names.append(name)
    return names


def plain_settings(settings: RunSettings) -> RunSettings:
    """The same request, decoded plainly."""
    return replace(settings, method="nothing", baseline=False)


def same_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens until two outputs first differ; the shorter one's length when they never do."""
    length = min(len(one), len(other))
    return next((place for place in range(length) if one[place] != other[place]), length)
