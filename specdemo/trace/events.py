"""The one declaration of a trace: the events of a run, each field with the values that it may have.

The engine creates these values; files, views and metrics read them. `codec` reads and writes them as JSON lines. The
types and rules of the page's scripts and the table in docs/trace-format.md are generated from here. Creating an event
checks nothing; reading one checks every field.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    with_config,
)
from pydantic_core import core_schema

SCHEMA_VERSION = 2
PLAIN, SPECULATIVE = "plain", "speculative"
NOTHING = "nothing"  # plain decoding, as a method
DROPPED = "dropped"  # reason of steps after the run's drafter has failed
LANES = (PLAIN, SPECULATIVE)
LARGEST_FILE = 16 * 2**20  # bytes of a saved trace: about five thousand steps with every detail
MOST_ITEMS = 1024  # items of each list in a line: nodes of a step, a path, alternatives
LARGEST_NUMBER = 2**53 - 1  # JavaScript represents whole numbers up to here exactly
LONGEST_SECONDS = 10**9  # seconds
DEEPEST = 32  # levels of lists and objects in `settings`
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which UTF-8 cannot encode
T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def part(cls: type[T]) -> type[T]:
    """Make a class an event or a part of one: a frozen dataclass that is read without unknown fields."""
    return with_config(extra="forbid")(dataclass(frozen=True, slots=True)(cls))


def _whole(value: object) -> object:
    """Return 2 for 2.0: JSON does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(value: object, levels: int = DEEPEST) -> object:
    """Return a JSON value of at most `levels` levels with finite numbers and whole characters, or raise ValueError."""
    if isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _plain(item, levels - 1)
        wrong = levels <= 0
    elif isinstance(value, str):
        wrong = bool(LONE_SURROGATE.search(value))
    else:
        wrong = isinstance(value, int | float) and abs(value) > sys.float_info.max
    if wrong:
        raise ValueError
    return value


def _limited(value: object) -> object:
    """Raise ValueError for a list of too many items before any of them is checked."""
    if isinstance(value, list) and len(value) > MOST_ITEMS:
        raise ValueError
    return value


def _number(low: float, high: float) -> object:
    return Field(strict=True, ge=low, le=high)


def _short(value: float) -> float:
    """Round a number to seven significant digits: it is then half as long, and a measured one has no more."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


Many = Annotated[tuple[T, ...], Field(max_length=MOST_ITEMS), BeforeValidator(_limited)]
Text = Annotated[
    str, Field(max_length=LARGEST_FILE)
]  # the limit makes pydantic check the characters
Lane = Annotated[str, GetPydanticSchema(lambda *_: core_schema.literal_schema([*LANES]))]
Flag = Annotated[bool, Field(strict=True)]
Free = Annotated[dict[str, object], AfterValidator(_plain)]
Count = Annotated[int, _number(0, LARGEST_NUMBER), BeforeValidator(_whole)]
# Index of a node of the step; -1 is the pending token.
Index = Annotated[int, _number(-1, MOST_ITEMS - 1), BeforeValidator(_whole)]
Short = PlainSerializer(_short, return_type=Any, when_used="json")
# A sum of float32 may be slightly above 1.
Probability = Annotated[float, _number(0, 1 + 1e-6), Short]
Amount = Annotated[float, _number(0, LARGEST_NUMBER), Short]
Seconds = Annotated[float, _number(0, LONGEST_SECONDS), Short]
SecondsDifference = Annotated[float, _number(-LONGEST_SECONDS, LONGEST_SECONDS), Short]
Finite = Annotated[float, _number(-LARGEST_NUMBER, LARGEST_NUMBER), Short]


class Status(StrEnum):
    """Fate of a token. One enumeration for colours, tables and tests."""

    DRAFTED = "drafted"  # proposed, not verified yet
    ACCEPTED = "accepted"  # proposed and accepted
    REJECTED = "rejected"  # proposed, tested and rejected
    UNREACHED = (
        "unreached"  # proposed, never tested: an ancestor was rejected or a sibling was accepted
    )
    CORRECTION = "correction"  # the target's own token instead of a rejected one
    BONUS = "bonus"  # the target's own token after a draft that was accepted completely
    PLAIN = "plain"  # the target's own token in a step without a draft


class FinishReason(StrEnum):
    """Why a run ended."""

    STOP = "stop"  # the target ended its answer
    LENGTH = "length"  # the token limit or the context was reached
    CANCELLED = "cancelled"  # the user stopped it


class Origin(StrEnum):
    """Method by which a drafter selected a token."""

    DRAWN = "drawn"  # sampled from the drafter's distribution
    CHOSEN = "chosen"  # without chance: the most likely token, or a copy of earlier text


class Knowledge(StrEnum):
    """How much is known of a run's rounds, if another program's server made it."""

    EXACT = "exact"  # the server reports the drafted and accepted tokens of each round
    ARRIVAL = "arrival"  # rounds are the groups in which tokens arrived
    TOTALS = "totals"  # the server reports only sums over the whole run
    NONE = "none"  # the server reports nothing about drafts


@part
class Node:
    """One drafted token, or the target's own token at the end of a step.

    token_id: None for a token of another server that its stream does not contain: its text is then empty, or a piece
        of the answer that may be several tokens
    parent: index of the parent among the step's nodes; -1 follows the pending token
    target_prob: probability under the target, after temperature, top-k, top-p and repetition penalty. None for tokens
        whose parent was not accepted, unless the draft was verified as a block, and in recordings that lack it
    draft_prob: probability q with which a drawn token was drawn, without the siblings drawn before it; the
        target accepts it with min(1, p / q), or as part of a block. None for all other tokens: a chosen one counts
        as drawn with probability 1
    accept_prob: probability with which it was accepted; draw: the uniform number that it was tested with
    survival: probability that it and all tokens before it are accepted, estimated before the verification
    confidence: the drafter's own number for the token, its probability or an estimate; it decides nothing
    origin: None for the target's own token, and in some recordings of the first trace format
    block_prob: if the draft was verified as a block, the probability with which this token and all before it were
        accepted, given the whole draft; accept_prob is then its ratio to the one before
    ticket: the token's noise if target and drafter share it: each draws the token with the largest log probability +
        ticket, and a drafted token is accepted if it is the target's. None for tokens that were not tested
    """

    token_id: Count | None = None
    text: Text = ""
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
    ticket: Finite | None = None


@part
class Choice:
    """A token that is possible at a position, and its probability there. ticket: see `Node`"""

    token_id: Count
    prob: Probability
    text: Text = ""
    ticket: Finite | None = None


@part
class Place:
    """The most likely tokens after a node of a step, in descending order; a few of the whole distribution.

    after: index of the node, -1 for the pending token
    target, draft: as the token was drawn, at temperature 1 when decoding is greedy; `draft` is empty if
        nothing was drafted or the drafter has no distribution
    residual: distribution that the target's own token was drawn from after a rejection
    """

    after: Index
    target: Many[Choice]
    draft: Many[Choice] = ()
    residual: Many[Choice] = ()


@part
class Reason:
    """One reason for a step's draft: a key of the strings in `reasons`, and the numbers that it contains."""

    code: Text
    values: dict[Text, Finite] = field(default_factory=dict)


COMPILED = "compiled pass"  # in a kernel's description: a row's bits do not depend on other rows


@part
class ModelInfo:
    """Weights of a run and how they were computed.

    precision: nf4, file, int8, bf16 or fp32; kernel: description of the arithmetic path
    """

    name: Text
    revision: Text = ""
    precision: Text = ""
    kernel: Text = ""
    parameters: Count = 0

    @property
    def rounds_by_rows(self) -> bool:
        """Whether a row's result may depend on the other rows of its pass, so that greedy texts may differ at near ties."""
        return bool(self.kernel) and self.precision != "fp32" and COMPILED not in self.kernel


@part
class RunStarted:
    """First event of a run.

    prompt_tokens: length of the whole context; cached_tokens: how many of them were reused
    started_at: ISO 8601, UTC
    lossy: whether the method changes the target's answer, by design
    verify_costs: (rows, seconds) of a target pass, measured; draft_cost: seconds of one draft step, measured
    history: fraction of drafted tokens that was accepted in this user's earlier runs of the method
    knowledge: of a run on another program's server, how much of its rounds is known; server: that program and its version
    """

    lane: Lane
    method: Text
    prompt: Text
    settings: Free
    target: ModelInfo
    draft: ModelInfo | None = None
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    prefill_seconds: Seconds = 0.0
    machine: Text = ""
    started_at: Text = ""
    lossy: Flag = False
    verify_costs: Many[tuple[Count, Seconds]] = ()
    draft_cost: Seconds | None = None
    history: Many[Probability] = ()
    knowledge: Knowledge | None = None
    server: Text = ""
    schema: Count = SCHEMA_VERSION

    @property
    def may_split(self) -> bool:
        """Whether a drafted greedy text may leave plain decoding's at a near tie."""
        drafts = self.method != NOTHING and not self.settings.get("exact")
        return drafts and not self.knowledge and self.target.rounds_by_rows


@part
class Drafted:
    """A proposal before its verification.

    lookahead: number of tokens that the policy allowed
    reason: in traces without `reasons`, why, as a sentence; otherwise the error of a drafter that was dropped here
    source: the drafter that it came from, if the method selects among several
    expected_tokens, expected_seconds: forecast of the cost model for this step, the target's own token included
    hit: whether the draft had been prepared while the target was busy; None if none is prepared
    saved_seconds: drafting time hidden by the target's pass
    reasons: why, each as a code with its numbers
    """

    lane: Lane
    step: Count
    lookahead: Count
    reason: Text
    nodes: Many[Node]
    draft_seconds: Seconds | None = None
    source: Text = ""
    expected_tokens: Amount | None = None
    expected_seconds: Seconds | None = None
    hit: Flag | None = None
    saved_seconds: Seconds | None = None
    reasons: Many[Reason] | None = None


@part
class Verified:
    """The same proposal after its verification.

    path: indices of the accepted nodes, root first
    next: the target's own token; None only if the draft itself ended the run (end of the answer, or the limit)
    draft_seconds: None if a server reports only the time of the whole step, which is then `verify_seconds`
    overhead_seconds: the rest of the step; rounding may make it negative
    elapsed_seconds: decoding time since the prompt was read, measured in the engine, never by a viewer
    runs: number of runs that shared the target's pass of this step; None when it was alone
    places: alternatives along the accepted path, if the run records details
    """

    lane: Lane
    step: Count
    nodes: Many[Node]
    path: Many[Index]
    next: Node | None
    draft_seconds: Seconds | None
    verify_seconds: Seconds
    overhead_seconds: SecondsDifference
    elapsed_seconds: Seconds
    runs: Count | None = None
    places: Many[Place] | None = None

    @property
    def committed(self) -> tuple[Node, ...]:
        """The tokens that the step adds to the answer."""
        return (*(self.nodes[node] for node in self.path), *([self.next] if self.next else []))


@part
class RunFinished:
    """Last event of a run that ended normally or was cancelled.

    drafted, accepted: sums that another program's server reports, if its rounds are not known exactly
    positions: by position in the draft, (drafts with a token there, tested ones, accepted ones), from the same report
    """

    lane: Lane
    reason: FinishReason
    new_tokens: Count
    elapsed_seconds: Seconds
    drafted: Count | None = None
    accepted: Count | None = None
    positions: Many[tuple[Count, Count, Count]] = ()


@part
class RunFailed:
    """Last event of a run that failed.

    message, unharmed, advice: one sentence each about the failure, the parts that are unaffected, and a remedy
    """

    lane: Lane
    message: Text
    unharmed: Text = ""
    advice: Text = ""


Event = RunStarted | Drafted | Verified | RunFinished | RunFailed
EVENTS: dict[str, type[Event]] = {
    "started": RunStarted,
    "drafted": Drafted,
    "verified": Verified,
    "finished": RunFinished,
    "failed": RunFailed,
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Events of a recording, in order. Equal by content."""

    events: tuple[Event, ...] = ()

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def lane(self, name: str) -> Trace:
        """Return the events of one run, by the name in `lane`."""
        return Trace(tuple(event for event in self.events if event.lane == name))

    @property
    def lanes(self) -> tuple[str, ...]:
        """Names of the runs in order of appearance."""
        return tuple(dict.fromkeys(event.lane for event in self.events))
