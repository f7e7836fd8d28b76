"""Predicts other settings of a server's drafts from recorded rounds: tokens a round, speed, and what to set.

A greedy draft depends only on the text before it. So the rounds tell for every place of the text whether the draft names
the right token, except after a draft that was accepted completely, where nothing was drafted:

    drafted    a b c x y     n_max 5: 3 accepted, 1 round      places   right right right wrong
    text       a b c d       n_max 2: 2 and 1 accepted, 2 rounds        a b [c] | d: the draft after c would be x again

`places` replays the text like that; the unknown places give an upper and a lower bound. `positions` shortens each recorded
round instead: for drafters whose quality depends on the position in the draft (heads, simulated acceptance) or of which
only counts are known. Intervals come from resampled requests. What can be wrong, and how it enters:

- Which drafts are accepted differs between requests, and rounds of one request are alike: a request is drawn with all its
  rounds. Resampled rounds would give intervals half as wide.
- The speed of a machine changes within seconds, by a third on a shared one. `ask_in_turn` sends each prompt to the server and
  to the plain one; both answers are drawn together, so what slows both does not widen the interval, and the rest does. Plain
  requests of another time are drawn independently.
- The time of a round is not linear in the length of its draft, and a recording at the longest has few shorter drafts. `ask_in_turn`
  also asks for answers whose limit shortens the first draft; they give times only. Without them, times between the
  recorded lengths are a straight line, which no resampling finds: it was up to 25 % wrong for two of eight tokens.
- A resample of few requests varies less than new requests would: the interval is widened accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import nan
from statistics import median

import numpy as np
from numpy.typing import NDArray

from specdemo.attach.records import Record, from_rounds
from specdemo.attach.servers import Request, Round, Server, whole_answer
from specdemo.config.errors import UserError
from specdemo.engine.cost import CostProfile, best_rate

RESAMPLES = 400
LEVEL = 0.9  # probability that the interval is meant to contain the true value
SEED = 20261125
FEWEST_REQUESTS = 4  # below that an interval means nothing
FEWEST_ROUNDS = 4  # of one draft length whose time counts; the shortest and longest always do
LARGEST_TIME = 4.0  # a round's time above so many medians of its length is cut to that: another program disturbed it
MOST_SHOWN = 6  # settings that a table shows
MOST_LENGTHS = 32  # n_max that are tried
SHORT_DRAFTS = (0, 1, 2, 4, 8, 16)  # tokens of drafts that are cut to measure the time of a round
P_MINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
Rounds = Sequence[Round]
Floats = NDArray[np.float64]
Step = tuple[int, int, int]  # drafted, accepted, refused by p_min


@dataclass(frozen=True, slots=True)
class DraftSetting:
    """Settings of llama-server's drafts: most drafted tokens, and the least probability of a drafted token."""

    n_max: int
    p_min: float = 0.0

    @property
    def flags(self) -> str:
        """Return the flags of llama-server."""
        return f"--spec-draft-n-max {self.n_max} --spec-draft-p-min {self.p_min:g}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted effect of a setting.

    over_current: speed / speed of the recorded setting; over_plain: / speed without drafts, None if that is unknown
    """

    setting: DraftSetting
    tokens_per_round: float
    tokens_per_second: float
    over_current: Estimate
    over_plain: Estimate | None


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """Result of tuning. assumption: `places` or `positions`; plain: whether the speed without drafts is known"""

    current: DraftSetting
    forecasts: tuple[Forecast, ...]
    assumption: str
    requests: int
    rounds: int
    plain: bool

    @property
    def best(self) -> Forecast:
        """Return the fastest setting."""
        return max(self.forecasts, key=lambda one: one.tokens_per_second)

    @property
    def loses(self) -> bool:
        """Return whether plain decoding is predicted to be at least as fast as the best setting."""
        return self.best.over_plain is not None and self.best.over_plain.value <= 1

    @property
    def clear(self) -> bool:
        """Return whether the interval excludes that the best setting changes nothing."""
        chosen = self.best.over_plain if self.loses else self.best.over_current
        return chosen is not None and not chosen.low <= 1 <= chosen.high

    def at(self, setting: DraftSetting) -> Forecast | None:
        """Return the forecast for a setting; None if it was not tried."""
        return next((one for one in self.forecasts if one.setting == setting), None)

    def shown(self) -> list[Forecast]:
        """Return the fastest setting for each of the best values of n_max, and the recorded setting."""
        ranked = sorted(self.forecasts, key=lambda one: -one.tokens_per_second)
        best: dict[int, Forecast] = {}
        for one in ranked:
            best.setdefault(one.setting.n_max, one)
        current = [one for one in ranked if one.setting == self.current]
        return list(dict.fromkeys([*list(best.values())[:MOST_SHOWN], *current]))


def plan(
    records: Sequence[Record],
    plain: Sequence[Record] = (),
    *,
    p_min: float = 0.0,
    assumption: str = "places",
) -> TuningPlan:
    """Predict all settings up to the recorded one. Raises UserError if the rounds or their times are not known.

    records: requests with drafts; plain: requests of the same server without
    Requests of the same name belong together, see the module; those shorter than a draft give only times.
    p_min: of the recording; assumption: see the module
    """
    timed, whole = dict[str, list[Round]](), dict[str, list[Rounds]]()
    longest = max((each.drafted or 0 for one in records for each in rounds_of(one)), default=0)
    for record in records:
        rounds = rounds_of(record)
        complete = sum(1 + (each.accepted or 0) for each in rounds) > longest
        timed.setdefault(record.name, []).extend(rounds)
        whole.setdefault(record.name, []).extend([rounds] if complete else [])
    requests = list(chain(*whole.values()))
    independent = sum(map(bool, whole.values()))
    if independent < FEWEST_REQUESTS:
        raise UserError("servers.few_requests", count=independent, needed=FEWEST_REQUESTS)
    probable = any(each.candidates for each in chain(*requests))
    weights = _resamples(len(timed))
    slow = _plain_seconds(plain, list(timed), weights)
    times, step = _times(list(timed.values()), longest, slow, weights)
    current = DraftSetting(longest, p_min)
    ways = (partial(replay, right=False), partial(replay, right=True)) if assumption == "places" else (shortened,)  # fmt: skip
    speeds: dict[DraftSetting, tuple[Floats, Floats, float]] = {}
    for setting in _tried(current, probable=probable):
        replays = [
            [chain(*(way(each, setting) for each in block)) for block in whole.values()]
            for way in ways
        ]
        sums = [_totals(each, longest) for each in replays]
        drawn = [weights @ one for one in sums]
        low, high = (
            each[:, -2] / ((each[:, :-2] * times).sum(axis=1) + step * each[:, -1])
            for each in (drawn[0], drawn[-1])
        )
        speeds[setting] = low, high, float(drawn[-1][0, -2] / drawn[-1][0, :-2].sum())
    base, trust = speeds[current][1], _first_accepted(requests)
    fewest = min(independent, len(plain) or independent)
    forecasts = [
        Forecast(
            setting,
            per_round,
            float(low[0] + trust * (high[0] - low[0])),
            _estimate(low / base, high / base, trust, independent),
            None if slow is None else _estimate(low * slow, high * slow, trust, fewest),
        )
        for setting, (low, high, per_round) in speeds.items()
    ]
    count = sum(map(len, requests))
    return TuningPlan(current, tuple(forecasts), assumption, len(requests), count, slow is not None)


def _tried(current: DraftSetting, *, probable: bool) -> list[DraftSetting]:
    """Return the settings that are compared, up to the recorded one and with it. probable: whether probabilities are known"""
    longest, least = current.n_max, current.p_min
    lengths = range(1, longest + 1) if longest <= MOST_LENGTHS else np.linspace(1, longest, MOST_LENGTHS, dtype=int)  # fmt: skip
    tried = [DraftSetting(int(n), p) for n in lengths for p in (P_MINS if probable else (least,)) if p >= least]  # fmt: skip
    return tried if current in tried else [*tried, current]


def ask_in_turn(
    server: Server | None,
    plain: Server | None,
    requests: Sequence[Request],
    report: Callable[[float], None] = lambda _done: None,
) -> tuple[list[Record], list[Record]]:
    """Send requests to a server and to a plain one in turn, and each to the first once more with short limits. Raises UserError.

    returns: what `plan` needs: records of the server and of the plain one, those of a request by the same name
    """
    drafted, bare = list[Record](), list[Record]()
    for number, request in enumerate(requests):
        report(number / len(requests))
        turn = [(server, drafted), (plain, bare)]
        for asked, records in turn[:: 1 if number % 2 else -1]:
            if asked:
                records.append(from_rounds(f"prompt {number + 1}", whole_answer(asked, request)))
        if server is None:
            continue
        longest = max((each.drafted or 0 for each in rounds_of(drafted[-1])), default=0)
        # Its first draft has at most two tokens less than the limit: the first token and the target's own are not drafted.
        limits = [2 + count for count in SHORT_DRAFTS if count < longest]
        answers = [whole_answer(server, replace(request, max_new_tokens=most)) for most in limits]
        drafted += [from_rounds(drafted[-1].name, one) for one in answers]
    return drafted, bare


def rounds_of(record: Record) -> Rounds:
    """Return the rounds of a request. A report without times and tokens gives their lengths only.

    A server that holds back the text of whole rounds reports several as one: then the request's rounds are left out.
    """
    if record.generation:
        rounds = [each for each in record.generation.rounds if each.drafted is not None]
        return [] if any(each.seconds == 0 for each in rounds) else rounds
    return [Round((), drafted, accepted) for accepted, drafted in record.steps]


def replay(rounds: Rounds, setting: DraftSetting, *, right: bool) -> Iterator[Step]:
    """Yield the rounds of a replay over the text.

    right: whether the draft is assumed to name the right token where nothing was drafted
    """
    places = list(_places(rounds))
    longest = max(each.drafted or 0 for each in rounds)
    last = rounds[-1]
    limited = (last.drafted or 0) < longest and len(last.candidates) <= (last.drafted or 0)
    at = 0
    while at < len(places):
        room = min(setting.n_max, len(places) - at - 1) if limited else setting.n_max
        kept, chances = 0, list[float]()
        for correct, own in places[at : at + room]:
            if not (right if correct is None else correct):
                chances += own
                break
            kept += 1
            chances.append(own[0])
        else:  # the answer may have ended within the draft
            chances += [1.0] * room
        drafted = _until(chances[:room], setting.p_min) if setting.p_min else room
        yield drafted, min(kept, drafted), int(drafted < room)
        at += min(kept, drafted) + 1


def shortened(rounds: Rounds, setting: DraftSetting) -> Iterator[Step]:
    """Yield the recorded rounds as `replay` does, with each draft cut to the setting."""
    for each in rounds:
        allowed = min(each.drafted or 0, setting.n_max)
        known = _probabilities(each)[:allowed]
        drafted = _until(known, setting.p_min) if known else allowed
        yield drafted, min(each.accepted or 0, drafted), int(drafted < allowed)


def _places(rounds: Rounds) -> Iterator[tuple[bool | None, tuple[float, ...]]]:
    """Yield for each place whether the draft is right there, None if nothing was drafted, and its probabilities from there on."""
    for each in rounds:
        accepted, drafted = each.accepted or 0, each.drafted or 0
        known = _probabilities(each) or (1.0,) * drafted
        yield from ((True, known[index : index + 1]) for index in range(accepted))
        # The last known one may be of a token that was refused by p_min.
        yield False if accepted < drafted else None, known[accepted:] or (1.0,)


def _probabilities(each: Round) -> tuple[float, ...]:
    return tuple(ranked[0].prob for ranked in each.candidates)


def _until(values: Sequence[float], least: float) -> int:
    """Return how many values come before the first that is less than `least`."""
    return next((index for index, value in enumerate(values) if value < least), len(values))


def _totals(requests: Sequence[Iterable[Step]], longest: int) -> Floats:
    """Sum the rounds of each request: rounds by drafted tokens, all tokens, tokens refused by p_min; (R, longest + 3)."""
    sums = np.zeros((len(requests), longest + 3))
    for row, steps in zip(sums, requests, strict=True):
        for drafted, accepted, refused in steps:
            row[drafted] += 1
            row[-2:] += accepted + 1, refused
    return sums


def _times(
    requests: Sequence[Rounds], longest: int, plain: Floats | None, weights: Floats
) -> tuple[Floats, Floats]:
    """Return seconds of a round by drafted tokens (B, N), and of a draft step (B,), 0 if only their sum was recorded.

    A round takes a pass of the cost model and a step for each token that was drafted or refused by p_min.
    """
    found: dict[int, list[float]] = {}
    for each in chain(*requests):
        found.setdefault(each.drafted or 0, []).append(each.seconds or 0.0)
    most = {drafted: LARGEST_TIME * median(seconds) for drafted, seconds in found.items()}
    count, spent = np.zeros((2, len(requests), longest + 1))
    steps, drafting = np.zeros((2, len(requests)))
    for row, rounds in enumerate(requests):
        for each in rounds:
            if each.seconds:
                drafted, draft = each.drafted or 0, each.draft_seconds or 0.0
                count[row, drafted] += 1
                spent[row, drafted] += max(0.0, min(each.seconds, most[drafted]) - draft)
                drafting[row] += draft
                steps[row] += max(drafted, len(each.candidates)) if draft else 0
    seen = count.sum(axis=0)
    known = np.flatnonzero(seen)
    if len(known) < 1 + (plain is None):
        raise UserError("servers.no_times", lengths=len(known))
    points = [int(n) for n in known if seen[n] >= FEWEST_ROUNDS or n in (known[0], known[-1])]
    drawn = weights @ count
    means = np.where(drawn > 0, weights @ spent, spent.sum(axis=0)) / np.where(drawn > 0, drawn, np.maximum(1, seen))  # fmt: skip
    if plain is not None and points[0] > 0:
        points, means[:, 0] = [0, *points], plain
    step = (weights @ drafting) / np.maximum(1, weights @ steps)
    costs = [CostProfile(tuple((1 + n, float(row[n])) for n in points)) for row in means]
    rows = np.array([[one.verify_seconds(1 + n) for n in range(longest + 1)] for one in costs])
    return rows + step[:, None] * np.arange(longest + 1), step


def _resamples(count: int) -> Floats:
    """Return how often each request is drawn: (B, R), the recording itself first."""
    draws = np.random.default_rng(SEED).multinomial(count, [1 / count] * count, RESAMPLES)
    return np.concatenate([np.ones((1, count)), draws])


def _first_accepted(requests: Sequence[Rounds]) -> float:
    """Return the fraction of drafts whose first token was accepted: the chance that an unknown place is right."""
    first = [bool(each.accepted) for each in chain(*requests) if each.drafted]
    return sum(first) / max(1, len(first))


def _estimate(low: Floats, high: Floats, trust: float, count: int) -> Estimate:
    """Return a value between both bounds and their interval, wider for few requests (Student's t instead of the normal)."""
    value = float(low[0] + trust * (high[0] - low[0]))
    tail = (1 - LEVEL) / 2
    freedom = max(1, count - 1)
    wider = (1 + 1 / freedom) ** 0.5 * (1 + 0.93 / freedom + 0.86 / freedom**2)
    least, most = float(np.quantile(low[1:], tail)), float(np.quantile(high[1:], 1 - tail))
    return Estimate(value, value - wider * (value - least), value + wider * (most - value))


def _plain_seconds(plain: Sequence[Record], names: Sequence[str], weights: Floats) -> Floats | None:
    """Return seconds a token without drafts by resample, (B,); None without requests.

    names, weights: of the blocks. Plain requests with the same names are drawn with them, others independently.
    """
    known = [one for one in plain if one.seconds and (one.tokens or 0) > 1]
    if plain and not known:
        raise UserError("servers.no_times", lengths=0)
    if not known:
        return None
    own = list(dict.fromkeys(one.name for one in known))
    if set(own) != set(names):
        names, weights = own, _resamples(len(own))
    sums = np.zeros((len(names), 2))
    for one in known:
        sums[names.index(one.name)] += one.seconds or 0.0, (one.tokens or 0) - 1
    drawn = weights @ sums
    seconds: Floats = drawn[:, 0] / drawn[:, 1]
    return seconds


def break_even(
    target_bytes: float, draft_bytes: float, longest: int = 16
) -> list[tuple[int, float, float, float]]:
    """Model a pair before it is downloaded: a pass reads all weights once, and nothing else takes time.

    returns: for each draft length the tokens a round and the acceptance per token, in steps of 0.1 %, above which it is faster
    than plain decoding (nan if none is), and its speedup if 80 % of the tokens are accepted
    """

    def seconds(length: int) -> float:  # a plain step is one
        return 1 + length * draft_bytes / target_bytes

    def speedup(chance: float, length: int) -> float:
        return best_rate([chance] * length, seconds, [length])

    lengths = range(1, longest + 1)
    chances = [number / 1000 for number in range(1001)]
    least = [next((one for one in chances if speedup(one, length) >= 1), nan) for length in lengths]
    return [(length, seconds(length), one, speedup(0.8, length)) for length, one in zip(lengths, least, strict=True)]  # fmt: skip
