"""Finds faults of a server's drafts by a few prompts, which a plain server may answer too.

`examine` observes, `diagnose` decides. A row of the decision table is a function of the observations. A few hundred tokens
suffice for its thresholds, and a healthy server passes them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import sqrt
from statistics import fmean, linear_regression, median, stdev

from specdemo.attach.audit import Difference, GreedyComparison, difference, upper_limit
from specdemo.attach.llama_server import LlamaServer
from specdemo.attach.pasted import Findings
from specdemo.attach.servers import Generation, Server, ask, whole_answer
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
FEWEST = 40  # rounds that reached a position at which nothing was accepted
SHORT_CONTEXT = 1024  # tokens: an answer of usual length does not fit behind a prompt
PASSES_FIXED = 1.5  # plain steps that a round may cost, however short its draft
FEW_ROUNDS = 3  # rounds of one draft length whose median counts
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
        prose = Drafts(one.answer for one in probes if one.kind == "prose")
        if prose.drafted and prose.accepted == prose.drafted < ENOUGH:
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
    over, prompts = threading.Event(), (*MORE_PROSE, *PROBES["prose"])[:OTHERS]
    begun = [threading.Event() for _ in prompts]

    def other(prompt: str, begun: threading.Event) -> None:
        try:
            with suppress(UserError):
                while not over.is_set():  # an answer may be short
                    for _ in plain.stream(ask(prompt, TOKENS), over):
                        begun.set()
        finally:
            begun.set()

    threads = [threading.Thread(target=other, args=pair, daemon=True) for pair in zip(prompts, begun, strict=True)]  # fmt: skip
    for one in threads:
        one.start()
    for each in begun:
        each.wait()
    try:
        return whole_answer(plain, ask(seen.prompt, TOKENS)).text != seen.plain[0].text
    finally:
        over.set()
        for one in threads:
            one.join()


class Drafts:
    """The drafts of some answers: numbers of tokens.

    rounds: (drafted, accepted) of each round with a draft, where they are known; first: rounds that accepted the first token
    """

    def __init__(self, answers: Iterable[Generation]) -> None:
        answers = list(answers)
        self.drafted = sum(one.drafted or 0 for one in answers)
        self.accepted = sum(one.accepted or 0 for one in answers)
        rounds = [(each.drafted, each.accepted) for one in answers for each in one.rounds]
        self.rounds = [(drafted, kept) for drafted, kept in rounds if drafted and kept is not None]
        self.first = sum(kept > 0 for _, kept in self.rounds)

    @property
    def mean(self) -> float:
        """Accepted tokens a round; 0 if no rounds are known."""
        return fmean(kept for _, kept in self.rounds) if self.rounds else 0.0

    def values(self) -> Json:
        """Return drafted and accepted tokens, their ratio in percent, and tokens a round if rounds are known."""
        percent = 100 * self.accepted / self.drafted if self.drafted else 0.0
        length = 1 + self.mean if self.rounds else None
        return {"drafted": self.drafted, "accepted": self.accepted, "percent": percent, "length": length}  # fmt: skip


class Speeds:
    """Speeds next to those of the plain server.

    ratios: speed / plain speed of each answer; apart: median difference of the plain server's two answers to a prompt
    plain_step: seconds of a plain step; quiet_step: the same, None if the machine is busy or too little is known
    """

    def __init__(self, seen: Examination) -> None:
        rows = [(_rate(one.answer), *map(_rate, one.plain)) for one in seen.probes]
        known = [(row[0], row[1:]) for row in rows if len(row) == 3 and all(row)]
        self.ratios = [own / fmean(plain) for own, plain in known]
        self.apart = median(abs(a - b) / fmean((a, b)) for _, (a, b) in known) if known else 0.0
        plain = [rate for row in rows for rate in row[1:] if rate]
        self.plain_step = 1 / median(plain) if plain else None
        quiet = len(known) > 2 and self.apart <= SAME_SPEED and not seen.busy
        self.quiet_step = self.plain_step if quiet else None


def _rate(one: Generation) -> float:
    """Return tokens a second of an answer after its first token; 0 for a short one."""
    count = (one.reported_tokens or one.tokens) - 1
    return count / one.decode_seconds if count >= 8 and one.decode_seconds else 0.0


def diagnose(seen: Examination) -> list[Diagnosis]:
    """Return the findings, problems first; one that nothing is wrong if there is no problem."""
    found = list(chain.from_iterable(row(seen) for row in ROWS))
    drafts = Drafts(seen.answers())
    if not any(one.level == "problem" for one in found) and drafts.drafted:
        found.append(Diagnosis("healthy", "note", "likely", drafts.values()))
    return sorted(found, key=lambda one: ("problem", "unknown", "note").index(one.level))


Row = Iterator[Diagnosis]


def _no_drafts(seen: Examination) -> Row:
    """Find a server that drafted nothing, or n-gram drafts that are rare."""
    drafted = Drafts(seen.answers()).drafted
    names = {"server": seen.about.server, "method": seen.about.method or "unknown"}
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
    elif any(one.drafted is not None for one in seen.answers()):
        yield Diagnosis("no_drafts", "problem", "likely", names)
    else:
        yield Diagnosis("no_report", "unknown", "certain", names)


def _acceptance(seen: Examination) -> Row:
    """Find what is wrong with the fractions of drafts that are accepted."""
    easy, prose, warm = Drafts(seen.answers("code", "repetition")), Drafts(seen.answers("prose")), Drafts(seen.warm)  # fmt: skip
    drafts = Drafts(seen.answers())
    # Nearly nothing is accepted, even in code and repetitions. Without rounds only all tokens are counted.
    count, kept, limit = (len(easy.rounds), easy.first, 0.1) if easy.rounds else (easy.drafted, easy.accepted, 0.02)  # fmt: skip
    if easy.drafted >= ENOUGH and upper_limit(kept, count) < limit:
        sure = "certain" if easy.rounds else "likely"
        yield Diagnosis("broken", "problem", sure, easy.values())
    # Drafts that are compared by equality: sampling accepts none.
    many = drafts.accepted > 0.3 * drafts.drafted
    if many and warm.drafted >= ENOUGH / 4 and warm.accepted < 0.02 * warm.drafted:
        percent = {"greedy": drafts.values()["percent"], "sampled": warm.values()["percent"]}
        yield Diagnosis("only_greedy", "problem", "likely", percent | {"temperature": WARM})
    # The first tokens are good and the last ones are not.
    if drafts.drafted >= ENOUGH and drafts.accepted < 0.3 * drafts.drafted and drafts.first > 0.6 * len(drafts.rounds):  # fmt: skip
        first, longest = 100 * drafts.first / len(drafts.rounds), max(drafts.rounds)[0]
        shape = {"first": first, "longest": longest, "shorter": max(1, round(drafts.mean + 1))}
        yield Diagnosis("too_long", "note", "likely", drafts.values() | shape)
    # Counting is no evidence: healthy servers accept all of it.
    if prose.drafted >= ENOUGH and prose.accepted == prose.drafted:
        yield Diagnosis("always_accepted", "problem", "likely", prose.values())


def _cliff(seen: Examination) -> Row:
    """Find a position from which on nothing is ever accepted."""
    rounds = Drafts(seen.answers()).rounds
    for place in range(1, max(rounds, default=(0, 0))[0]):
        reached = [kept for drafted, kept in rounds if drafted > place <= kept]
        if len(reached) < FEWEST:
            return
        if max(reached) == place:
            values = {"place": place + 1, "rounds": len(reached)}
            yield Diagnosis("cliff", "problem", "likely", values)
            return


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
    spent, drafting = (sum(getattr(each, name) for each in timed) for name in ("seconds", "draft_seconds"))  # fmt: skip
    step = drafting / sum(max(each.drafted or 0, len(each.candidates)) for each in timed)
    # Without a plain server a verification, which is slower where rows are not free.
    plain = Speeds(seen).plain_step or (spent - drafting) / len(timed)
    # A draft model reads each verified batch too, so even a very slow one drafts for about half of a round.
    if drafting > 0.4 * spent and step > 0.5 * plain:
        values = {"percent": 100 * drafting / spent, "ratio": step / plain}
        yield Diagnosis("slow_draft", "problem", "likely", values)


def _speed(seen: Examination) -> Row:
    """Compare the speed with plain decoding, if both repeats of the plain server are alike."""
    speeds, drafts = Speeds(seen), Drafts(seen.answers())
    ratios, step = speeds.ratios, speeds.quiet_step
    if len(ratios) < 3:
        yield Diagnosis("no_speed", "note", "certain")
        return
    if step is None:
        yield Diagnosis("busy", "unknown", "certain", {"percent": 100 * speeds.apart})
        return
    timed = [each for one in seen.answers() for each in one.rounds if each.seconds]
    rounds = [each.seconds / step for each in timed if each.seconds and each.drafted]
    values = drafts.values() | {"ratio": fmean(ratios), "cost": median(rounds) if rounds else None}
    margin = T_5[min(5, len(ratios) - 1) - 1] * stdev(ratios) / sqrt(len(ratios))
    if fmean(ratios) + margin < LOSS and drafts.drafted:
        yield Diagnosis("loses", "problem", "likely", values)
    elif rounds:
        yield Diagnosis("faster" if fmean(ratios) > 1 else "no_gain", "note", "likely", values)


def _step_times(seen: Examination) -> Row:
    """Find a fixed cost of each round, and steps without a draft that take longer than the plain server's."""
    step = Speeds(seen).quiet_step
    if step is None:
        return
    times: dict[int, list[float]] = {}  # of rounds by drafted tokens, in plain steps
    for each in chain.from_iterable(one.rounds for one in seen.answers()):
        if each.seconds and each.drafted is not None:
            times.setdefault(each.drafted, []).append(each.seconds / step)
    bare = times.pop(0, [])
    middles = {drafted: median(each) for drafted, each in times.items() if len(each) >= FEW_ROUNDS}
    if len(middles) > 2:
        start = linear_regression([*middles], [*middles.values()]).intercept
        if start > PASSES_FIXED:
            yield Diagnosis("fixed_cost", "note", "possible", {"cost": start})
    # The drafter may take memory or time.
    if len(bare) >= FEWEST and (ratio := median(bare)) > SLOWER:
        facts = seen.log.facts if seen.log else {}
        if "offloaded" in facts:
            yield Diagnosis("pushed_out", "problem", "likely", {"ratio": ratio, **facts})
        else:
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
    _acceptance,
    _cliff,
    _logged,
    _speed,
    _step_times,
    _text,
    _context,
)
