"""The compared variants: our methods in this process and peers in their own answer the same prompts in turn.

Two bounds for comparison: the oracle of lookahead policies (modelled), and the floor that memory bandwidth sets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol

from specdemo.bench.results import BenchAnswers, Row, Table, as_factor, as_percent
from specdemo.config.errors import UserError
from specdemo.config.settings import POLICIES, RunSettings
from specdemo.config.strings import Json, JsonView
from specdemo.drafters.methods import METHODS
from specdemo.engine.cost import CostProfile
from specdemo.engine.runner import LOOK_SECONDS
from specdemo.files.folder import read_config, tensors
from specdemo.models.devices import BYTES_PER_WEIGHT
from specdemo.session.conversation import Conversation
from specdemo.session.studio import Studio
from specdemo.trace.events import Event, RunFailed, Trace, Verified
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

if TYPE_CHECKING:
    from torch import Tensor


PLAIN_METHOD = "nothing"  # the variant that all others are compared with
CONSTANTS = (1, 2, 3, 4, 6, 10)  # lookaheads, of which the fastest is the best constant
FLOOR = "floor"
LANE_GROUPS = ("policies", "methods", "trained", "peers")
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
    repeats: whether the answer repeats itself, see `trace.metrics`
    events: the trace of the run, if there is one
    """

    name: str
    metrics: Metrics
    ids: tuple[int, ...]
    probs: tuple[float, ...] = ()
    accepted: tuple[int, ...] = ()
    events: tuple[Event, ...] = ()
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Paired:
    """A variant's answer, and the answer of plain decoding to the same prompt that was measured right before or after it."""

    result: LaneResult
    plain: LaneResult
    disturbed: bool = False

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

    def to_dict(self) -> Json:
        """Return plain values without the traces."""
        result, plain = (replace(one, events=()) for one in (self.result, self.plain))
        return asdict(Paired(result, plain, self.disturbed))


class Lane(Protocol):
    """A timed program or method that answers prompts. In a conversation every turn continues its own answers."""

    def open(self) -> Lane:
        """Return the variant with a conversation."""

    def answer(self, prompt: str) -> LaneResult:
        """Answer a prompt. Raises UserError for a bad prompt, LaneLost if the variant fails."""

    def close(self) -> None:
        """Free the caches."""


class LaneLost(RuntimeError):
    """One variant has failed; the message has the reason. The others are unaffected."""


@dataclass(frozen=True, slots=True)
class OwnLane:
    """One of our methods on the loaded pair, in this process."""

    studio: Studio
    name: str
    settings: RunSettings
    system: str = ""
    online_weights: Path | None = None
    conversation: Conversation | None = None

    def open(self) -> OwnLane:
        """Start a conversation with its own caches, so that no variant profits from another."""
        conversation = self.studio.open()
        if self.online_weights:
            conversation.memory.saved_head = self.online_weights
        return replace(self, conversation=conversation)

    def answer(self, prompt: str) -> LaneResult:
        assert self.conversation
        return run_once(self.conversation, self.name, prompt, self.settings, self.system)

    def close(self) -> None:
        assert self.conversation
        self.conversation.close()


def measuring_order(names: Sequence[str], number: int) -> list[tuple[str, int]]:
    """Return the order of variants on a prompt, each with the index of the plain run next to it.

    Plain runs have the name of plain decoding. From prompt to prompt the order is reversed, and every second time it
    rotates, so that each variant follows plain decoding as often as it precedes it.

    names: a, b, c -> plain 0, a 0, b 1, plain 1, c 1
    """
    start = number // 2 % max(1, len(names))
    order = [(PLAIN_METHOD, 0)]
    for index, name in enumerate([*names[start:], *names[:start]]):
        order.append((name, (index + 1) // 2))
        if index % 2:
            order.append((PLAIN_METHOD, (index + 1) // 2))
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
    talks = {(name, name == PLAIN_METHOD and index): lanes[name].open() for name, index in opened}
    try:
        for number, turn in enumerate(turns, start=first):
            found: dict[tuple[str, int], LaneResult] = {}
            order = measuring_order(_drafted(lanes), number)
            for name, index in order:
                try:
                    talk = talks[name, name == PLAIN_METHOD and index]
                    found[name, index] = talk.answer(turn)
                except LaneLost as error:
                    del lanes[name]
                    if name == PLAIN_METHOD:
                        raise UserError("bench.plain_lost", message=error) from error
                    lost(name, str(error))
            pairs = {
                name: Paired.of(found[name, index], found[PLAIN_METHOD, index])
                for name, index in sorted(found, reverse=True)  # of plain runs, the first stays
            }
            yield [pairs[name] for name in lanes]
    finally:
        for talk in talks.values():
            talk.close()


def _drafted(lanes: Iterable[str]) -> list[str]:
    return [name for name in lanes if name != PLAIN_METHOD]


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
    again = repeats_itself(events)
    return LaneResult(name, measure(events), ids, probs, accepted, tuple(events), again)


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
    return [name for name in names if name and name not in LANE_GROUPS and is_own(name)]


def is_own(lane: str) -> bool:
    return lane not in PEERS and lane != FLOOR


CONSTANT = ":constant:"
BUFFER_BYTES = 1 << 29  # bytes, far more than any cache
READS = 4  # timed reads of the buffer; the fastest counts


def oracle_speedup(measured: BenchAnswers, costs: JsonView) -> float | None:
    """Return the modelled speedup of a policy that drafts exactly the tokens that will be accepted. It is never run.

    The oracle follows the variant of the longest constant lookahead: at each step it drafts only the tokens accepted
    there, so its text is the same and no draft token is rejected. Costs are the measured profile, scaled by the
    time of this prompt's plain steps. If that variant's whole draft was accepted, a longer draft might have been
    accepted too, so the bound is a little low. None without a variant of constant lookahead.
    """
    profile = CostProfile(**costs)
    # A name with more after the number has another verification, and therefore another text.
    constants = [lane for lane in measured.lanes if lane.partition(CONSTANT)[2].isdigit()]
    longest = max(constants, key=lambda lane: int(lane.rpartition(":")[2]), default=None)
    ratios = []
    for pair in (answer.pair for answer in measured.answers if answer.lane == longest):
        metrics, plain = pair.result.metrics, pair.plain.metrics
        if pair.result.repeats or not plain.steps or not plain.tokens_per_second:
            continue
        scale = plain.verify_seconds / plain.steps / profile.verify_seconds(1)
        # The first draft token of a step also pays for reading the committed ones, so the mean of the run is used.
        per_draft = metrics.draft_seconds / max(1, metrics.drafted)
        seconds = sum(
            scale * profile.verify_seconds(1 + count) + count * per_draft
            for count in pair.result.accepted
        )
        ratios.append(metrics.new_tokens / seconds / plain.tokens_per_second)
    return median(ratios) if ratios else None


def policies_table(rows: Sequence[Row], oracle: float | None) -> Table:
    """Compare the speedup of each policy with the best constant lookahead and with the oracle's speedup.

    rows: over all tasks. The table has no rows without a constant lane. The best constant is chosen on these very
    prompts, which is an advantage over the policies.
    """
    rates = {row["lane"]: row["speedup"] for row in rows if row["speedup"] is not None}
    constants = {lane: rate for lane, rate in rates.items() if CONSTANT in lane}
    others = {lane: rate for lane, rate in rates.items() if ":" in lane and lane not in constants}
    columns = ["policy", "speedup", "against the best constant", "of the oracle's"]
    if not constants or not others:
        return Table(columns, [])
    best = max(constants, key=lambda lane: constants[lane])
    shown = {f"{best} (best constant)": constants[best], **others}
    if oracle:
        shown["oracle (modelled)"] = oracle
    body = [
        [
            lane,
            as_factor(rate),
            f"{100 * (rate / constants[best] - 1):+.1f} %",
            as_percent(rate / oracle) if oracle else "-",
        ]
        for lane, rate in shown.items()
    ]
    return Table(columns, body)


def pass_bytes(folder: Path, name: str, precision: str) -> int:
    """Return the bytes of weights that a pass over one row reads; the cache of a short text is small in comparison.

    An embedding is read as a whole only if it is the output head too; otherwise a pass reads one row of it.
    """
    tied = bool(read_config(folder, name).get("tie_word_embeddings"))
    plain, rate = (4.0 if precision == "fp32" else 2.0), BYTES_PER_WEIGHT[precision]
    return int(
        sum(
            count * (rate if quantised else plain)
            for key, count, quantised in tensors(folder, name)
            if tied or "embed" not in key
        )
    )


@dataclass(frozen=True, slots=True)
class FloorLane:
    """A variant that writes nothing and reports the least time for its tokens: each pass reads every weight once.

    The bandwidth is measured at each prompt, so that the floor follows the load of the machine.
    within: runs a function in the thread that computes, see `engine.runner`
    """

    num_bytes: int
    buffer: Tensor
    tokens: int
    within: Callable[[Callable[[], float]], float]

    def open(self) -> FloorLane:
        """Return the variant itself, which has no state."""
        return self

    def answer(self, _prompt: str) -> LaneResult:
        rate = self.within(lambda: bandwidth(self.buffer))
        seconds = self.tokens * self.num_bytes / rate
        metrics = Metrics(self.tokens, self.tokens, 0, 0, 0, 0, 0.0, seconds, 0.0, seconds, 0.0)
        return LaneResult(FLOOR, metrics, ())

    def close(self) -> None:
        """Do nothing: there is no cache."""


def bandwidth(buffer: Tensor) -> float:
    """Return the bytes per second of reading a large tensor once: the fastest of READS, because noise only slows."""

    def reading_seconds() -> float:
        started = time.perf_counter()
        float(buffer.sum())  # sync: a graphics card has read all of it, too
        return time.perf_counter() - started

    return buffer.nbytes / min(reading_seconds() for _ in range(READS))
