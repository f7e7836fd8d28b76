"""Every number about a run, defined once. Rates and means are None when there is nothing to divide by."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from os.path import commonprefix
from typing import TypeAlias

from specdemo.trace.events import (
    DROPPED,
    PLAIN,
    Drafted,
    Event,
    FinishReason,
    Knowledge,
    Node,
    Reason,
    RunFinished,
    RunStarted,
    Status,
    Trace,
    Verified,
)

TENTHS = 10
USUAL_DIFFERENCE = 0.1  # relative difference of times on a quiet machine
USUAL_PASSES = (
    128  # number of passes in which that difference may occur: later ones read a longer text
)
FEWEST_PASSES = 4  # fewest passes whose mean is compared
REPEATED_WORDS = 4  # consecutive words that are compared with earlier ones
REPEATED_SHARE = 0.15  # share of repeated groups of words from which an answer repeats itself
# Chinese, Japanese and the scripts of Thailand, Laos, Burma and Cambodia are written without spaces.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]{{1,16}}")
DERIVED = ("tokens_per_second", "tokens_per_step", "drafted_accept_rate", "first_accept_rate")
# Number of tokens, the sum of their predicted probabilities, and the number that was accepted.
Foreseen: TypeAlias = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Totals and rates of one run; times in seconds, decoding only (the prompt is read before the clock starts).

    drafted_accept_rate: accepted drafted tokens / drafted tokens (vLLM's draft acceptance rate)
    first_accept_rate: steps whose first drafted token was accepted / steps that drafted
    tokens_per_step: new tokens / steps, the target's own included
    hit_rate: steps whose draft had been prepared while the target was busy / steps that could have had one
    saved_seconds: drafting time that the target's passes hid
    survivals: for each tenth of the predicted probability of acceptance: drafted tokens, the sum of their
        probabilities, accepted tokens
    positions: (tested, accepted) for each position in the draft, its depth in a tree: drafts with a token there
        that was tested, and those of them in which one was accepted
    draws, draws_kept: drafted tokens that were drawn, not chosen, and tested before their siblings; accepted ones
    draws_overlap: sum of min(1, p / q) over them, for the target's probability p of the token and the draft's q. Of a token
        that q draws, its mean is 1 - TV, the overlap of both distributions (TV: total variation distance)
    """

    steps: int
    new_tokens: int
    drafted: int
    accepted: int
    drafting_steps: int = 0
    first_accepted: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    overhead_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    prefill_seconds: float = 0.0
    hits: int = 0
    chances: int = 0
    saved_seconds: float = 0.0
    positions: tuple[tuple[int, int], ...] = ()
    survivals: tuple[Foreseen, ...] = ()
    draws: int = 0
    draws_kept: int = 0
    draws_overlap: float = 0.0

    @property
    def hit_rate(self) -> float | None:
        """Fraction of the steps with a possible prepared draft that used one."""
        return _ratio(self.hits, self.chances)

    @property
    def drafted_accept_rate(self) -> float | None:
        """Fraction of the drafted tokens that was accepted."""
        return _ratio(self.accepted, self.drafted)

    @property
    def first_accept_rate(self) -> float | None:
        """Fraction of the drafting steps whose first drafted token was accepted."""
        return _ratio(self.first_accepted, self.drafting_steps)

    @property
    def accept_by_position(self) -> tuple[float | None, ...]:
        """Fraction of the drafts tested at each position whose token there was accepted; the first position first."""
        return tuple(_ratio(kept, tested) for tested, kept in self.positions)

    @property
    def tokens_per_step(self) -> float | None:
        """New tokens per step: accepted drafted tokens and the target's own."""
        return _ratio(self.new_tokens, self.steps)

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens per second of decoding."""
        return _ratio(self.new_tokens, self.elapsed_seconds)

    def values(self) -> dict[str, object]:
        """Return all values by name, including the rates that follow from others."""
        return {**asdict(self), **{name: getattr(self, name) for name in DERIVED}}


def measure(events: Iterable[Event]) -> Metrics:
    """Compute the metrics of one run's events."""
    items = list(events)
    steps = [event for event in items if isinstance(event, Verified)]
    known = _knowledge(items)
    exact = known in (None, Knowledge.EXACT)
    drafting = [step for step in steps if step.nodes] if exact else []
    ended = next((event for event in items if isinstance(event, RunFinished)), None)
    told = None if exact else ended  # what another program's server reports about its rounds
    sums = (told.drafted or 0, told.accepted or 0) if told else (0, 0)
    new_tokens = sum(len(step.committed) for step in steps)
    grouped = exact or known is Knowledge.ARRIVAL
    prepared = [event for event in items if isinstance(event, Drafted) and event.hit is not None]
    draws = [node for step in drafting for node in _first_draws(step)]
    return Metrics(
        steps=len(steps) if grouped else 0,
        new_tokens=new_tokens if exact or not ended else ended.new_tokens,
        drafted=sum(len(step.nodes) for step in drafting) or sums[0],
        accepted=sum(len(step.path) for step in drafting) or sums[1],
        drafting_steps=len(drafting),
        first_accepted=sum(
            any(node.parent == -1 and node.status is Status.ACCEPTED for node in step.nodes)
            for step in drafting
        ),
        draft_seconds=sum(step.draft_seconds or 0.0 for step in steps),
        verify_seconds=sum(step.verify_seconds for step in steps),
        overhead_seconds=sum(step.overhead_seconds for step in steps),
        elapsed_seconds=steps[-1].elapsed_seconds if steps else 0.0,
        prefill_seconds=sum(
            event.prefill_seconds for event in items if isinstance(event, RunStarted)
        ),
        hits=sum(bool(event.hit) for event in prepared),
        chances=len(prepared),
        saved_seconds=sum(event.saved_seconds or 0.0 for event in prepared),
        positions=tuple(each[1:] for each in told.positions) if told else _positions(drafting),
        survivals=_survivals(drafting),
        draws=len(draws),
        draws_kept=sum(node.status is Status.ACCEPTED for node in draws),
        draws_overlap=sum(
            min(1.0, (one.target_prob or 0.0) / (one.draft_prob or 1.0)) for one in draws
        ),
    )


def _knowledge(events: Iterable[Event]) -> Knowledge | None:
    """Return how much is known of the rounds of a run; None for a run of our own engine."""
    return next((event.knowledge for event in events if isinstance(event, RunStarted)), None)


def speedup(plain: Metrics, speculative: Metrics) -> float | None:
    """Return speculative tokens per second divided by plain ones; None if either is unknown."""
    if not plain.tokens_per_second or not speculative.tokens_per_second:
        return None
    return speculative.tokens_per_second / plain.tokens_per_second


def disturbed(trace: Trace, plain: Trace | None = None) -> bool:
    """Return whether other programs were busy while a run was measured, so that its speedup means nothing.

    On a quiet machine a speedup is at most the tokens per step, since a pass with drafts costs at least a plain one, and
    plain passes cost the same in both halves of plain decoding and in the steps of the drafted run that have no draft.
    Variants that ran beside each other were disturbed alike: of them, what plain decoding wrote alone is the second half.
    Runs that shared passes have other costs; of them only the first is checked, and of those of another program's
    servers, which have other costs too, only that the passes of plain decoding cost the same.

    plain: plain decoding of another trace; default: that of the same trace
    """
    drafted = answering(trace)
    before = plain or trace.lane(PLAIN)
    if before == drafted:
        return False
    figures, slow = measure(drafted), measure(plain) if plain else baseline(trace)
    attached = _knowledge(drafted.events) is not None
    ratio = speedup(slow, figures) if slow and not attached else None
    if ratio and ratio > (figures.tokens_per_step or 0) * (1 + USUAL_DIFFERENCE):
        return True
    steps = [event for event in drafted.events if isinstance(event, Verified)]
    first = [event for event in before.events if isinstance(event, Verified)]
    if any((step.runs or 1) > 1 for step in (*first, *steps)):
        return False
    passes = [step.verify_seconds for step in first]
    asked = next((event.settings for event in before if isinstance(event, RunStarted)), {})
    beside = not plain and not attached and asked.get("baseline")
    shared = sum(step.elapsed_seconds <= figures.elapsed_seconds for step in first)
    half = shared if beside else len(passes) // 2
    bare = [step.verify_seconds for step in steps if not step.nodes and not attached]
    usual = 1 + USUAL_DIFFERENCE * max(1.0, len(passes) / USUAL_PASSES)
    pairs = ((passes[:half], passes[half:]), (passes, bare))
    return any(_differ(one, other, usual) for one, other in pairs)


def _differ(one: Sequence[float], other: Sequence[float], usual: float) -> bool:
    """Return whether the means differ by more than a factor and by more than chance, which is two standard errors of their
    difference (Welch 1947): one stalled pass is no busy machine. False for too few values.
    """
    if min(len(one), len(other)) < FEWEST_PASSES:
        return False
    low, high = sorted((sum(one) / len(one), sum(other) / len(other)))
    return high > low * usual + 2 * math.sqrt(_error(one) + _error(other))


def _error(values: Sequence[float]) -> float:
    """Return the squared standard error of the values' mean."""
    mean, count = sum(values) / len(values), len(values)
    return sum((value - mean) ** 2 for value in values) / (count * (count - 1))


def answering(trace: Trace) -> Trace:
    """Return the run whose answer counts: the last one. The one before it, if any, is plain decoding."""
    return trace.lane(trace.lanes[-1]) if trace.lanes else trace


def baseline(trace: Trace) -> Metrics | None:
    """Return the plain decoding that a run is compared with; None if there was none."""
    return measure(trace.lane(PLAIN)) if PLAIN in trace.lanes else None


class ComparedRun:
    """A run next to plain decoding. plain: of another trace; default: that of the same trace"""

    def __init__(self, trace: Trace, plain: Trace | None = None) -> None:
        self._trace, self._plain = trace, plain

    @property
    def trace(self) -> Trace:
        """All events of the run."""
        return self._trace

    @property
    def answer(self) -> Trace:
        """The variant that answers; plain decoding may precede it."""
        return answering(self.trace)

    @property
    def text(self) -> str:
        """The answer."""
        return output_text(self.answer)

    @property
    def metrics(self) -> Metrics:
        """Counts, times and rates of the variant that answers."""
        return measure(self.answer)

    @property
    def baseline(self) -> Metrics | None:
        """Plain decoding that the run is compared with; None without a comparison."""
        return measure(self._plain) if self._plain else baseline(self.trace)

    @property
    def comparable(self) -> bool:
        """Whether no other programs were busy during the run and plain decoding; their times mean nothing otherwise."""
        return not disturbed(self.trace, self._plain)

    @property
    def repeats_itself(self) -> bool:
        """Whether more than 15 % of the answer's groups of four words occurred before; the speedup means little then."""
        return repeats_itself(self.answer)

    @property
    def speedup(self) -> float | None:
        """Tokens per second divided by those of plain decoding; None without a baseline, or if not `comparable`."""
        plain = self.baseline
        return speedup(plain, self.metrics) if plain and self.comparable else None


def dropped(events: Iterable[Event]) -> str:
    """Return the error for which the drafter of a run was dropped; empty if it was not."""
    for event in events:
        if isinstance(event, Drafted) and Reason(DROPPED) in (event.reasons or ()):
            return event.reason
    return ""


def output_ids(events: Iterable[Event]) -> list[int]:
    """Return the new token ids of one run, in order; those that a server does not report are missing."""
    return [node.token_id for node in _committed(events) if node.token_id is not None]


def _committed(events: Iterable[Event]) -> Iterator[Node]:
    return (node for event in events if isinstance(event, Verified) for node in event.committed)


def same_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the tokens until two texts first differ; the shorter one's length if they never do."""
    return len(commonprefix([list(one), list(other)]))  # noqa: RUF071 - of lists, not of paths


def output_text(events: Iterable[Event]) -> str:
    """Return the answer of one run so far, without the token that ends an answer."""
    texts: list[str] = []
    for event in events:
        if isinstance(event, Verified):
            texts += [node.text for node in event.committed]
        elif isinstance(event, RunFinished) and event.reason is FinishReason.STOP:
            texts = texts[:-1]
    return "".join(texts)


def repeated_share(text: str) -> float:
    """Return the share of a text's groups of four consecutive words that occurred before in it; 0 for a shorter text.

    White space separates words, so in code an expression may be one; of more than 16 characters, every 16 count
    as a word. Each character of a script that is written without spaces is a word.

    "to be or not to be or not": to be or not, be or not to, or not to be, not to be or, to be or not -> 1/5
    """
    words = WORD.findall(text)
    groups = [tuple(words[start : start + REPEATED_WORDS]) for start in range(len(words) - 3)]
    return 1 - len(set(groups)) / len(groups) if groups else 0.0


def repeats_itself(trace: Iterable[Event]) -> bool:
    """Return whether an answer repeats itself: its speedup means little, since a repetition is easy to draft."""
    events = trace if isinstance(trace, Trace) else Trace(tuple(trace))
    return repeated_share(output_text(answering(events))) > REPEATED_SHARE


def output_probs(events: Iterable[Event]) -> list[float]:
    """Return the target's probability of each new token of one run, in the order of `output_ids`."""
    return [node.target_prob or 0.0 for node in _committed(events)]


def _positions(drafting: Sequence[Verified]) -> tuple[tuple[int, int], ...]:
    """Count (tested, accepted) drafts for each position, see `Metrics`.

    status    accepted  rejected  unreached     one draft of three tokens
    tested       1         1          0
    accepted     1         0          0
    """
    tested: list[int] = []
    kept: list[int] = []
    for step in drafting:
        depths: list[int] = []
        fates: dict[int, set[Status]] = {}
        for node in step.nodes:
            depths.append(0 if node.parent == -1 else depths[node.parent] + 1)
            fates.setdefault(depths[-1], set()).add(node.status)
        more = [0] * (len(fates) - len(tested))
        tested, kept = tested + more, kept + more
        for depth, statuses in fates.items():
            tested[depth] += bool(statuses & {Status.ACCEPTED, Status.REJECTED})
            kept[depth] += Status.ACCEPTED in statuses
    return tuple(zip(tested, kept, strict=True))


def _survivals(drafting: Sequence[Verified]) -> tuple[Foreseen, ...]:
    """Count the survivals of `Metrics`."""
    found = [(0, 0.0, 0)] * TENTHS
    for node in (node for step in drafting for node in step.nodes):
        if node.survival is not None:
            tenth = min(int(node.survival * TENTHS), TENTHS - 1)
            count, said, kept = found[tenth]
            found[tenth] = count + 1, said + node.survival, kept + (node.status is Status.ACCEPTED)
    return tuple(found)


def _first_draws(step: Verified) -> Iterator[Node]:
    """Yield the tested nodes of `Metrics.draws`; later siblings were drawn from the residual of the earlier ones."""
    parents: set[int] = set()
    for node in step.nodes:
        first = node.parent not in parents
        parents.add(node.parent)
        if first and node.draft_prob and node.status is not Status.UNREACHED:
            yield node


def calibration_error(foreseen: Iterable[Foreseen]) -> float | None:
    """Return the expected calibration error (Naeini 2015): the mean distance of predicted and observed acceptance, over bins of the prediction."""
    bins = list(foreseen)
    return _ratio(sum(abs(said - came) for _, said, came in bins), sum(count for count, *_ in bins))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
