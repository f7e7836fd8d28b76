"""The events of a run: frozen values that the engine emits and that every view, file and metric reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

SCHEMA_VERSION = 2
LANES = ("plain", "speculative")
LARGEST_FILE = 16 * 2**20  # bytes of a saved trace: some five thousand steps with every detail
MOST_ITEMS = 1024  # of any list in a line: nodes of a step, a path, choices of a place
LARGEST = 2**53 - 1  # whole numbers up to here are exact in JavaScript too
LONGEST = 10**9  # seconds


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that a field may hold, both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OneOf:
    """The texts that a field may hold."""

    texts: tuple[str, ...]


Lane = Annotated[str, OneOf(LANES)]
Count = Annotated[int, Range(0, LARGEST)]
Index = Annotated[int, Range(-1, MOST_ITEMS - 1)]  # of a node of the step; -1 is the pending token
Probability = Annotated[float, Range(0, 1 + 1e-6)]  # a sum of float32 may be a hair above 1
Amount = Annotated[float, Range(0, LARGEST)]
Seconds = Annotated[float, Range(0, LONGEST)]
Difference = Annotated[float, Range(-LONGEST, LONGEST)]  # of seconds


class Status(StrEnum):
    """What became of a token. One enumeration for colours, tables and tests."""

    DRAFTED = "drafted"  # proposed, not judged yet
    ACCEPTED = "accepted"  # proposed and kept
    REJECTED = "rejected"  # proposed, tested and refused
    UNREACHED = "unreached"  # proposed, never tested: an ancestor was refused or a sibling was kept
    CORRECTION = "correction"  # the target's own token in place of a refused one
    BONUS = "bonus"  # the target's own token after a draft that was kept whole
    PLAIN = "plain"  # the target's own token in a step without a draft


PLAIN, SPECULATIVE = "plain", "speculative"  # the lanes of a run


class FinishReason(StrEnum):
    """Why a run ended."""

    STOP = "stop"  # the target ended its answer
    LENGTH = "length"  # the token limit or the context was reached
    CANCELLED = "cancelled"  # the user stopped it


class Origin(StrEnum):
    """How a drafter came to a token."""

    DRAWN = "drawn"  # by chance, from the drafter's distribution
    CHOSEN = "chosen"  # without chance: the likeliest, or a copy of earlier text


@dataclass(frozen=True, slots=True)
class Node:
    """One drafted token, or the target's own token at the end of a step.

    parent: index of the parent among the step's nodes; -1 follows the pending token
    target_prob: probability under the target, after temperature, top-k, top-p and repetition penalty
    draft_prob: probability q with which a drawn token was drawn, siblings drawn before it taken out; the
        target keeps it with min(1, p / q), or as part of a block. None for every other token: a chosen one counts as drawn with 1
    accept_prob: probability with which it was kept; draw: the uniform number it was tested with
    survival: chance to be kept with all before it, as foreseen before it was judged
    confidence: the drafter's own number for the token, its probability or an estimate; decides nothing
    origin: None for the target's own token, and where a trace of schema 1 cannot say
    block_prob: where the draft was judged as a block, the probability with which this token and all before it were
        kept, given the whole draft; accept_prob is then its share of the one before
    """

    token_id: Count
    text: str = ""
    parent: Index = -1
    status: Status = Status.DRAFTED
    target_prob: Probability | None = None
    draft_prob: Probability | None = None
    accept_prob: Probability | None = None
    draw: Probability | None = None
    survival: Probability | None = None
    confidence: Probability | None = None
    origin: Origin | None = None
    block_prob: Probability | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A token that could have stood at a place, and its probability there."""

    token_id: Count
    prob: Probability
    text: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """What was thought of the token that follows a node of a step, likeliest first; a few of the whole distribution.

    after: index of the node, -1 for the pending token
    target, draft: shaped as the token was drawn, at temperature 1 when decoding is greedy; the draft's is
        missing where nothing was drafted or the drafter has no distribution
    residual: what the target's own token was drawn from after a refusal
    """

    after: Index
    target: tuple[Choice, ...]
    draft: tuple[Choice, ...] = ()
    residual: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Which weights ran, and how.

    precision: nf4, int8, bf16 or fp32; kernel: the arithmetic path taken, in words
    """

    name: str
    revision: str = ""
    precision: str = ""
    kernel: str = ""
    parameters: Count = 0


@dataclass(frozen=True, slots=True)
class StandIn:
    """A plain run of another prompt, in place of one that was not run beside this lane because others waited.

    age_seconds: how long before this lane it ended
    """

    tokens_per_second: Amount
    new_tokens: Count
    prompt_tokens: Count
    age_seconds: Seconds


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First event of a lane. `prompt_tokens` counts the whole context, `cached_tokens` what was reused."""

    lane: Lane
    method: str
    prompt: str
    settings: dict[str, object]
    target: ModelInfo
    draft: ModelInfo | None = None
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    prefill_seconds: Seconds = 0.0
    machine: str = ""
    started_at: str = ""  # ISO 8601, UTC
    lossy: bool = False  # the method changes what the target would say, on purpose
    verify_costs: tuple[
        tuple[Count, Seconds], ...
    ] = ()  # (rows, seconds) of a target pass, measured
    draft_cost: Seconds | None = None  # seconds of one draft step, measured
    history: tuple[
        Probability, ...
    ] = ()  # accepted share of this visitor's earlier runs of the method
    stand_in: StandIn | None = None  # what the lane is compared with where no plain one was run
    schema: Count = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Drafted:
    """A proposal, before it was judged. `lookahead` is what the policy allowed, `reason` why.

    source: which drafter it came from, where a method chooses among several
    expected_tokens, expected_seconds: what the cost model foresaw for this step, its own token included
    hit: whether the draft had been prepared while the target was busy; None where none is
    saved_seconds: drafting time that the target's pass hid
    """

    lane: Lane
    step: Count
    lookahead: Count
    reason: str
    nodes: tuple[Node, ...]
    draft_seconds: Seconds
    source: str = ""
    expected_tokens: Amount | None = None
    expected_seconds: Seconds | None = None
    hit: bool | None = None
    saved_seconds: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """A judged proposal: `path` are the kept nodes, root first; `next` is the target's own token.

    `elapsed_seconds` is decoding time since the prompt was read: laps of the engine, never of a viewer.
    `next` is None only when the draft itself ended the run (end of answer, or limit reached).
    `runs` shared the target's pass of this step; None when it was alone.
    `places` along the kept path, when the run was asked for detail.
    """

    lane: Lane
    step: Count
    nodes: tuple[Node, ...]
    path: tuple[Index, ...]
    next: Node | None
    draft_seconds: Seconds
    verify_seconds: Seconds
    overhead_seconds: Difference  # what is left of the step; rounding may put it below zero
    elapsed_seconds: Seconds
    runs: Count | None = None
    places: tuple[Place, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunFinished:
    """Last event of a lane that ended by itself or by the user's wish."""

    lane: Lane
    reason: FinishReason
    new_tokens: Count
    elapsed_seconds: Seconds


@dataclass(frozen=True, slots=True)
class RunFailed:
    """Last event of a lane that broke: one sentence each on what happened, what is unharmed, what to do."""

    lane: Lane
    message: str
    unharmed: str = ""
    advice: str = ""


Event = RunStarted | Drafted | Verified | RunFinished | RunFailed


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run: its events in order. Equal by content."""

    events: tuple[Event, ...] = field(default=())

    def lane(self, name: str) -> Trace:
        """The events of one lane."""
        return Trace(tuple(event for event in self.events if event.lane == name))

    @property
    def lanes(self) -> tuple[str, ...]:
        """Lane names in order of appearance."""
        return tuple(dict.fromkeys(event.lane for event in self.events))
