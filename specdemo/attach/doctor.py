"""Finds faults of a server's drafts by a few prompts, which a plain server may answer too.

`examine` observes, `diagnose` decides. A row of the decision table is a function of the observations. A few hundred tokens
suffice for its thresholds, and a healthy server passes them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import sqrt
from statistics import fmean, linear_regression, median, stdev

from specdemo.attach.audit import Difference, GreedyComparison, difference, upper_limit
from specdemo.attach.llama_server import LlamaServer
from specdemo.attach.pasted import Findings
from specdemo.attach.servers import Generation, Round, Server, ask, whole_answer
from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.config.strings import ASSETS, Json
from specdemo.trace.events import Knowledge

TOKENS = 96  # length of an answer
_SUITE: Json = json.loads((ASSETS / "suites/probes.json").read_text(encoding="utf-8"))
PROBES: dict[str, list[str]] = _SUITE["probes"]  # prompts by kind
MORE_PROSE: list[str] = _SUITE["more_prose"]  # prompts that are sent if the others leave a doubt
WARM = 0.7  # temperature of the probe that samples
ENOUGH = 200  # drafted tokens from which a fraction near 0 or of 1 means something
SAME_SPEED = 0.1  # largest difference of two plain repeats on a machine that is not busy
SELDOM = 0.5  # fraction of rounds with a draft below which n-gram drafts are called rare
LOSS = 0.95  # speed / plain below which drafts cost time
T_5 = (6.31, 2.92, 2.35, 2.13, 2.02)  # Student's t, one-sided 5 %, for 1 to 5 degrees of freedom
PASSES_FIXED = 1.5  # plain steps that a round may cost, however short its draft
FEW_ROUNDS = 3  # rounds of one draft length whose median counts
FEWEST = 40  # rounds that reached a position at which nothing was accepted
SHORT_CONTEXT = 1024  # tokens: an answer of usual length does not fit behind a prompt
OTHERS = 3  # requests at the same time as a prompt of the control
SLOWER = 1.25  # time of a step without a draft / plain step from which the target itself is slower


@dataclass(frozen=True, slots=True)
class Probe:
    """One prompt and its answer at temperature 0.

    plain: the plain server's answers, before and after it; crowded: whether others' requests change these
    """

    kind: str
    prompt: str
    answer: Generation
    plain: tuple[Generation, ...] = ()
    difference: Difference | None = None
    crowded: bool | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that was observed on a server. warm: answers at temperature WARM; context: tokens of a slot; log: of the server, which has these requests"""

    about: Generation
    drafting: bool | None
    probes: tuple[Probe, ...] = ()
    warm: tuple[Generation, ...] = ()
    context: int | None = None
    busy: bool = False
    log: Findings | None = None

    def answers(self, *kinds: str) -> list[Generation]:
        """Return the answers to the probes of these kinds; to all if none is named."""
        return [one.answer for one in self.probes if not kinds or one.kind in kinds]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding. kind: names its strings; level: `problem`, `unknown` or `note`; sure: `certain`, `likely` or `possible`"""

    kind: str
    level: str
    sure: str
    values: Json = field(default_factory=dict)


def prompts() -> list[str]:
    """Return all prompts, for requests that are not examined by kind."""
    return [*chain(*PROBES.values()), *MORE_PROSE]


def examine(
    server: Server,
    plain: Server | None = None,
    report: Callable[[float, str], None] = lambda _done, _about: None,
) -> Examination:
    """Send the probes to a server, and each also to the plain server. Raises UserError."""
    slots = server.slots() if isinstance(server, LlamaServer) else ()
    context = min((one.n_ctx for one in slots if one.n_ctx), default=None)
    busy = any(one.is_processing for one in slots)
    asked = [(kind, prompt) for kind, prompts in PROBES.items() for prompt in prompts]
    probes, warm = list[Probe](), list[Generation]()
    for number, (kind, prompt) in enumerate(asked):
        report(number / (len(asked) + 2), kind)
        probes.append(_probe(server, plain, kind, prompt))
    for prompt in MORE_PROSE:
        drafted, accepted = _sums([one.answer for one in probes if one.kind == "prose"])
        if drafted and accepted == drafted < ENOUGH:
            probes.append(_probe(server, None, "prose", prompt))
    if plain and any(one.difference for one in probes):
        report(0.8, "control")
        probes = [
            replace(one, crowded=_crowded(plain, one)) if one.plain else one for one in probes
        ]
    if any(one.answer.drafted for one in probes):
        report(0.9, "sampled")
        for prompt in (PROBES["code"][0], *PROBES["repetition"]):
            request = ask(prompt, TOKENS, Sampling(temperature=WARM, seed=1))
            warm.append(whole_answer(server, request))
    about = replace(server.about, method=probes[-1].answer.method or server.about.method)
    return Examination(about, server.drafting, tuple(probes), tuple(warm), context, busy)


def _probe(server: Server, plain: Server | None, kind: str, prompt: str) -> Probe:
    request = ask(prompt, TOKENS)
    if plain is None:
        return Probe(kind, prompt, whole_answer(server, request))
    before, answer, after = (whole_answer(one, request) for one in (plain, server, plain))
    # Only the plain server tells how likely the other token was, in an answer of its own.
    apart = difference(plain, request, answer) if answer.text != before.text else None
    return Probe(kind, prompt, answer, (before, after), apart)


def _crowded(plain: Server, seen: Probe) -> bool:
    """Return whether the plain server's answer differs from its first one while it answers other requests too."""
    over = threading.Event()

    def other(prompt: str) -> None:
        with suppress(UserError):
            for _ in plain.stream(ask(prompt, TOKENS), over):
                pass

    threads = [
        threading.Thread(target=other, args=[prompt], daemon=True)
        for prompt in (*MORE_PROSE, *PROBES["prose"])[:OTHERS]
    ]
    for one in threads:
        one.start()
    try:
        return whole_answer(plain, ask(seen.prompt, TOKENS)).text != seen.plain[0].text
    finally:
        over.set()
        for one in threads:
            one.join()


def diagnose(seen: Examination) -> list[Diagnosis]:
    """Return the findings, problems first; one that nothing is wrong if there is no problem."""
    found = list(chain.from_iterable(row(seen) for row in ROWS))
    if not any(one.level == "problem" for one in found) and _sums(seen.answers())[0]:
        found.append(Diagnosis("healthy", "note", "likely", _figures(seen.answers())))
    return sorted(found, key=lambda one: ("problem", "unknown", "note").index(one.level))


def _sums(answers: Sequence[Generation]) -> tuple[int, int]:
    """Return drafted and accepted tokens of answers."""
    return sum(one.drafted or 0 for one in answers), sum(one.accepted or 0 for one in answers)


def _rounds(answers: Sequence[Generation]) -> list[Round]:
    """Return the rounds with a draft whose numbers are known."""
    return [
        each for one in answers for each in one.rounds if each.drafted and each.accepted is not None
    ]


def _figures(answers: Sequence[Generation]) -> Json:
    """Return drafted and accepted tokens, their ratio in percent, and tokens a round if rounds are known."""
    drafted, accepted = _sums(answers)
    rounds = _rounds(answers)
    length = 1 + sum(each.accepted or 0 for each in rounds) / len(rounds) if rounds else None
    percent = 100 * accepted / drafted if drafted else 0.0
    return {"drafted": drafted, "accepted": accepted, "percent": percent, "length": length}


Row = Iterator[Diagnosis]


def _no_drafts(seen: Examination) -> Row:
    """Find a server that drafted nothing, or n-gram drafts that are rare."""
    drafted, _ = _sums(seen.answers())
    names = {"server": seen.about.server, "method": seen.about.method or "unknown"}
    counted = any(one.drafted is not None for one in seen.answers())
    rounds = [each for one in seen.answers() for each in one.rounds]
    share = sum(bool(each.drafted) for each in rounds) / max(1, len(rounds))
    if seen.about.method.startswith("ngram") and share < SELDOM:
        values = {"drafted": drafted, "percent": 100 * share}
        yield Diagnosis("ngram", "note", "certain", names | values)
    elif drafted:
        return
    elif seen.drafting is False:
        kind = "no_drafts_llama" if seen.about.server == "llama-server" else "no_drafts"
        kind = "left_out" if seen.log and "draft" not in seen.log.facts else kind
        yield Diagnosis(kind, "problem", "certain", names)
    elif seen.drafting:
        yield Diagnosis("idle_drafts", "problem", "likely", names)
    elif counted:
        yield Diagnosis("no_drafts", "problem", "likely", names)
    else:
        yield Diagnosis("no_report", "unknown", "certain", names)


def _broken(seen: Examination) -> Row:
    """Find a drafter of which nearly nothing is accepted, even in code and repetitions."""
    answers = seen.answers("code", "repetition")
    drafted, accepted = _sums(answers)
    if drafted < ENOUGH:
        return
    rounds = _rounds(answers)
    first = sum(bool(each.accepted) for each in rounds)
    upper, limit = (upper_limit(first, len(rounds)), 0.1) if rounds else (upper_limit(accepted, drafted), 0.02)  # fmt: skip
    if upper < limit:
        sure = "certain" if rounds else "likely"
        yield Diagnosis("broken", "problem", sure, _figures(answers))


def _only_greedy(seen: Examination) -> Row:
    """Find drafts that are compared by equality, so that sampling accepts none."""
    drafted, accepted = _sums(seen.answers())
    warm, kept = _sums(seen.warm)
    if warm >= ENOUGH / 4 and accepted > 0.3 * drafted and kept < 0.02 * warm:
        values = {"greedy": 100 * accepted / drafted, "sampled": 100 * kept / warm}
        yield Diagnosis("only_greedy", "problem", "likely", values | {"temperature": WARM})


def _cliff(seen: Examination) -> Row:
    """Find a position from which on nothing is ever accepted."""
    rounds = _rounds(seen.answers())
    for place in range(1, max((each.drafted or 0 for each in rounds), default=0)):
        reached = [each for each in rounds if (each.drafted or 0) > place and (each.accepted or 0) >= place]  # fmt: skip
        if len(reached) < FEWEST:
            return
        if not any((each.accepted or 0) > place for each in reached):
            yield Diagnosis("cliff", "problem", "likely", {"place": place + 1, "rounds": len(reached)})  # fmt: skip
            return


def _too_long(seen: Examination) -> Row:
    """Find drafts whose first tokens are good and whose last ones are not."""
    drafted, accepted = _sums(seen.answers())
    rounds = _rounds(seen.answers())
    first = sum(bool(each.accepted) for each in rounds) / len(rounds) if rounds else 0.0
    if drafted >= ENOUGH and accepted < 0.3 * drafted and first > 0.6:
        longest = max(each.drafted or 0 for each in rounds)
        shorter = max(1, round(fmean(each.accepted or 0 for each in rounds) + 1))
        yield Diagnosis("too_long", "note", "likely", _figures(seen.answers()) | {"first": 100 * first, "longest": longest, "shorter": shorter})  # fmt: skip


def _always_accepted(seen: Examination) -> Row:
    """Find a server that accepts every draft of prose. Counting is no evidence: healthy servers accept all of it."""
    drafted, accepted = _sums(seen.answers("prose"))
    if drafted >= ENOUGH and accepted == drafted:
        yield Diagnosis("always_accepted", "problem", "likely", _figures(seen.answers("prose")))


def _logged(seen: Examination) -> Row:
    """Find simulated acceptance and a slow draft model, which only a log shows."""
    if seen.log is None:
        return
    if "synthetic" in seen.log.facts:
        yield Diagnosis("synthetic", "problem", "certain")
    rounds = [each for one in seen.log.records if one.generation for each in one.generation.rounds]
    timed = [each for each in rounds if each.drafted and each.seconds and each.draft_seconds]
    if not timed:
        return
    spent, drafting = (sum(getattr(each, name) or 0.0 for each in timed) for name in ("seconds", "draft_seconds"))  # fmt: skip
    step = drafting / sum(max(each.drafted or 0, len(each.candidates)) for each in timed)
    # Without a plain server a verification, which is slower where rows are not free.
    plain = _plain_step(seen) or (spent - drafting) / len(timed)
    # A draft model reads each verified batch too, so even a very slow one drafts for about half of a round.
    if drafting > 0.4 * spent and step > 0.5 * plain:
        yield Diagnosis("slow_draft", "problem", "likely", {"percent": 100 * drafting / spent, "ratio": step / plain})  # fmt: skip


def _rate(one: Generation) -> float | None:
    """Return tokens a second of an answer after its first token; None for a short one."""
    count = (one.reported_tokens or one.tokens) - 1
    return count / one.decode_seconds if count >= 8 and one.decode_seconds else None


def _plain_step(seen: Examination) -> float | None:
    rates = [rate for one in seen.probes for each in one.plain if (rate := _rate(each))]
    return 1 / median(rates) if rates else None


def _rates(seen: Examination) -> list[tuple[float, float, float]]:
    """Return tokens a second of each answer and of the plain server's two, where all are known."""
    rows = [[_rate(each) for each in (one.answer, *one.plain)] for one in seen.probes]
    return [(a, b, c) for a, b, c in (row for row in rows if len(row) == 3) if a and b and c]


def _apart(seen: Examination) -> float:
    """Return by how much the plain server's two answers to a prompt differ in speed."""
    return median(abs(b - c) / fmean((b, c)) for _, b, c in _rates(seen))


def _quiet_step(seen: Examination) -> float | None:
    """Return the seconds of a plain step; None if it is unknown or the machine is busy."""
    known = len(_rates(seen)) > 2 and _apart(seen) <= SAME_SPEED and not seen.busy
    return _plain_step(seen) if known else None


def _speed(seen: Examination) -> Row:
    """Compare the speed with plain decoding, if both repeats of the plain server are alike."""
    ratios = [own / fmean(plain) for own, *plain in _rates(seen)]
    if len(ratios) < 3:
        yield Diagnosis("no_speed", "note", "certain")
        return
    step = _quiet_step(seen)
    if step is None:
        yield Diagnosis("busy", "unknown", "certain", {"percent": 100 * _apart(seen)})
        return
    rounds = [each for each in _rounds(seen.answers()) if each.seconds]
    cost = median(each.seconds or 0.0 for each in rounds) / step if rounds else None
    values = _figures(seen.answers()) | {"ratio": fmean(ratios), "cost": cost}
    margin = T_5[min(5, len(ratios) - 1) - 1] * stdev(ratios) / sqrt(len(ratios))
    if fmean(ratios) + margin < LOSS and _sums(seen.answers())[0]:
        yield Diagnosis("loses", "problem", "likely", values)
    elif rounds:
        yield Diagnosis("faster" if fmean(ratios) > 1 else "no_gain", "note", "likely", values)


def _fixed_cost(seen: Examination) -> Row:
    """Find a fixed cost: a line through the times of rounds of different lengths starts above PASSES_FIXED plain steps."""
    step = _quiet_step(seen)
    times: dict[int, list[float]] = {}
    for each in _rounds(seen.answers()):
        times.setdefault(each.drafted or 0, []).append(each.seconds or 0.0)
    middles = {drafted: median(each) for drafted, each in times.items() if len(each) >= FEW_ROUNDS}
    if step and len(middles) > 2:
        start = linear_regression([*middles], [*middles.values()]).intercept
        if start > PASSES_FIXED * step:
            yield Diagnosis("fixed_cost", "note", "possible", {"cost": start / step})


def _slow_target(seen: Examination) -> Row:
    """Find steps without a draft that take longer than the plain server's, since the drafter takes memory or time."""
    step = _quiet_step(seen)
    rounds = [each for one in seen.answers() for each in one.rounds if each.drafted == 0 and each.seconds]  # fmt: skip
    if not step or len(rounds) < FEWEST:
        return
    ratio = median(each.seconds or 0.0 for each in rounds) / step
    facts = seen.log.facts if seen.log else {}
    if ratio > SLOWER and "offloaded" in facts:
        yield Diagnosis("pushed_out", "problem", "likely", {"ratio": ratio, **facts})
    elif ratio > SLOWER:
        yield Diagnosis("slow_target", "note", "possible", {"ratio": ratio})


def _text(seen: Examination) -> Row:
    """Compare the texts at temperature 0 with plain decoding's, and with those beside other requests."""
    parts = tuple(one.difference for one in seen.probes if one.difference)
    compared = sum(bool(one.plain) for one in seen.probes)
    found = GreedyComparison(compared, 0, parts)
    values = {"different": len(parts), **found.values()}
    if found.verdict == "lossy":
        yield Diagnosis("lossy", "problem", "certain", values)
    elif found.verdict == "unclear":
        yield Diagnosis("unclear_text", "unknown", "possible", values)
    elif compared:
        kind, sure = ("rounding", "likely") if parts else ("same_text", "certain")
        yield Diagnosis(kind, "note", sure, values)
    crowded = [one.crowded for one in seen.probes if one.crowded is not None]
    if sum(crowded) >= len(parts) > 0:
        values = {"changed": sum(crowded), "prompts": len(crowded), "others": OTHERS}
        yield Diagnosis("control", "note", "likely", values)


def _context(seen: Examination) -> Row:
    """Find a context that ended an answer, or is too short for usual ones."""
    cut = [one for one in seen.answers() if one.finish == "length" and 0 < one.tokens < TOKENS and one.knowledge is Knowledge.EXACT]  # fmt: skip
    if cut or (seen.context or SHORT_CONTEXT) < SHORT_CONTEXT:
        sure = "certain" if cut else "likely"
        yield Diagnosis("context", "problem", sure, {"context": seen.context or 0, "cut": len(cut)})


ROWS: tuple[Callable[[Examination], Row], ...] = (
    _no_drafts,
    _broken,
    _only_greedy,
    _cliff,
    _too_long,
    _always_accepted,
    _logged,
    _speed,
    _fixed_cost,
    _slow_target,
    _text,
    _context,
)
