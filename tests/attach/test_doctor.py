"""The doctor and the audit: each finding where it belongs, none in healthy servers, and a real server that is lossy."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from specdemo.attach import audit, doctor
from specdemo.attach.doctor import Examination, Probe, diagnose
from specdemo.attach.pasted import read_text
from specdemo.attach.servers import Generation, Piece, Round
from specdemo.cli.parser import main
from specdemo.config.strings import flat, load
from specdemo.trace.events import Choice, Knowledge
from tests.attach import recorded
from tests.attach.stand_in import KEY, VLLM, chat, llama, serving, simulated, sse

ABOUT = Generation("llama-server", "b1", Knowledge.EXACT, method="draft-simple")
STEP = 0.04  # seconds of a plain step
KINDS = [kind for kind, prompts in doctor.PROBES.items() for _ in prompts]


def answer(rng: random.Random, chances: list[float], cost: float = 0.0, fixed: float = STEP, tokens: int = doctor.TOKENS) -> Generation:  # fmt: skip
    """Return an answer of a server with these chances of acceptance by position. cost: seconds a drafted token"""

    def seconds(drafted: int) -> float:
        return (fixed + cost * drafted) * rng.uniform(0.97, 1.03)

    rounds = simulated(tokens, chances, rng.random, seconds)
    sums = (sum(getattr(each, name) for each in rounds) for name in ("drafted", "accepted"))
    spent = sum(each.seconds or 0.0 for each in rounds)
    return replace(ABOUT, first=(Piece("x", 1),), rounds=rounds, decode_seconds=spent, finish="length", **dict(zip(("drafted", "accepted"), sums, strict=True)))  # fmt: skip


def examined(seed: int, chances: list[float], cost: float = 0.0, fixed: float = STEP, noise: float = 0.02, more: int = 0) -> Examination:  # fmt: skip
    """Return the examination of a simulated server next to a plain one."""
    rng = random.Random(seed)
    probes = []
    for kind in [*KINDS, *["prose"] * more]:
        plain = [answer(rng, []) for _ in range(2)]
        plain = [replace(one, decode_seconds=95 * STEP * rng.uniform(1 - noise, 1 + noise)) for one in plain]  # fmt: skip
        probes.append(Probe(kind, "", answer(rng, chances, cost, fixed), tuple(plain)))
    warm = (answer(rng, chances), answer(rng, chances))
    return Examination(ABOUT, True, tuple(probes), warm, 4096)


def kinds(seen: Examination, level: str = "") -> list[str]:
    return [one.kind for one in diagnose(seen) if level in ("", one.level)]


GOOD = [0.8, 0.8, 0.7, 0.7, 0.6]


def test_diagnose_raises_no_false_alarm_in_50_healthy_servers() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        first, length = rng.uniform(0.55, 0.95), rng.randint(1, 8)
        chances = [first * rng.uniform(0.85, 1.0) for _ in range(length)]
        seen = examined(seed, chances, cost=rng.uniform(0, 0.05) * STEP)
        counting = [one if one.kind != "counting" else replace(one, answer=answer(rng, [1.0] * length)) for one in seen.probes]  # fmt: skip
        found = diagnose(replace(seen, probes=tuple(counting)))
        assert not [one for one in found if one.level != "note"], (seed, chances)
        assert found[-1].kind == "healthy"


def with_gap(seen: Examination, *gaps: float) -> Examination:
    parts = [audit.Difference(3, gap) for gap in gaps]
    probes = [replace(one, difference=part) for one, part in zip(seen.probes, parts, strict=False)]
    return replace(seen, probes=(*probes, *seen.probes[len(parts) :]))


def drafting_only(seen: Examination, *named: str, **about: object) -> Examination:
    """Return an examination in which only some kinds of probes have drafts."""
    rng = random.Random(1)
    probes = [one if one.kind in named else replace(one, answer=answer(rng, [])) for one in seen.probes]  # fmt: skip
    return replace(seen, probes=tuple(probes), about=replace(seen.about, **about))


def silent(server: str, *, counted: bool = True) -> Examination:
    """Return the examination of a server that drafts nothing, or does not report it."""
    seen = drafting_only(examined(1, GOOD), server=server, method="")
    totals = {} if counted else {"drafted": None, "accepted": None}
    probes = [replace(one, answer=replace(one.answer, **totals)) for one in seen.probes]
    return replace(seen, probes=tuple(probes), drafting=None, warm=())


def plain_steps(ratio: float) -> Examination:
    """Return the examination of a server whose steps without a draft take this many plain steps."""
    seen, rng = examined(9, GOOD), random.Random(9)
    probes = [replace(one, answer=answer(rng, [], fixed=ratio * STEP)) for one in seen.probes]
    return replace(seen, probes=(*probes[:2], *seen.probes[2:]))


def with_crowd(seen: Examination, changed: int) -> Examination:
    """Return an examination in which other requests change so many of the plain server's answers."""
    probes = [replace(one, crowded=n < changed) for n, one in enumerate(seen.probes)]
    return replace(seen, probes=tuple(probes))


LOG_TEXT = recorded.LOG.read_text(encoding="utf-8")
LOG = read_text(LOG_TEXT, "log")
SLOW_DRAFT = Round((Piece("x", 1),), 2, 0, 0.5, 0.45, ((Choice(1, 0.5),),) * 2)
SEEN = examined(1, GOOD)
WARM = tuple(answer(random.Random(seed), [0.0] * 5) for seed in range(2))
CASES = {
    "no_drafts_llama": replace(silent("llama-server"), drafting=False),
    "idle_drafts": replace(silent("llama-server"), drafting=True),
    "no_drafts": silent("SGLang"),
    "no_report": silent("OpenAI-compatible", counted=False),
    "ngram": drafting_only(SEEN, "repetition", method="ngram-simple"),
    "broken": examined(2, [0.02] * 5),
    "only_greedy": replace(SEEN, warm=WARM),
    "cliff": examined(3, [0.9, 0.9, 0.0, 0.0]),
    "too_long": examined(4, [0.85, 0.5, *[0.3] * 10]),
    "always_accepted": examined(5, [1.0] * 5, more=2),
    "loses": examined(6, GOOD, cost=STEP),
    "fixed_cost": examined(6, [0.3, 0.3, 0.3, 0.3], cost=0.5 * STEP, fixed=4 * STEP),
    "faster": SEEN,
    "no_gain": examined(7, [0.5], fixed=1.55 * STEP),
    "busy": examined(8, GOOD, noise=0.4),
    "no_speed": replace(SEEN, probes=tuple(replace(one, plain=()) for one in SEEN.probes)),
    "same_text": SEEN,
    "rounding": with_gap(SEEN, 0.1, 0.02),
    "unclear_text": with_gap(SEEN, 0.1, 0.4),
    "lossy": with_gap(SEEN, 0.1, 1.4),
    "context": replace(SEEN, context=512),
    "synthetic": replace(SEEN, log=replace(LOG, facts={"synthetic": "is enabled"})),
    "left_out": replace(silent("llama-server"), drafting=False, log=LOG),
    "slow_target": plain_steps(1.5),
    "pushed_out": replace(plain_steps(1.5), log=read_text(f"{LOG_TEXT}\n0.00.100.000 I load_tensors: offloaded 42/57 layers to GPU\n", "log")),
    "control": with_crowd(with_gap(SEEN, 0.1, 0.02), 2),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "seen"), CASES.items(), ids=CASES)
def test_diagnose_finds_each_row_of_the_table(kind: str, seen: Examination) -> None:
    found = kinds(seen)
    assert kind in found
    alarms = {"only_greedy", "always_accepted", "lossy", "context", "synthetic", "no_drafts"}
    assert not (alarms - {kind}) & set(found)


def test_a_cut_answer_and_a_slow_draft_are_found() -> None:
    probes = list(SEEN.probes)
    probes[0] = replace(probes[0], answer=answer(random.Random(1), GOOD, tokens=40))
    assert "context" in kinds(replace(SEEN, probes=tuple(probes)), "problem")
    record = replace(LOG.records[0], generation=replace(ABOUT, rounds=(SLOW_DRAFT,) * 9))
    assert "slow_draft" in kinds(replace(SEEN, log=replace(LOG, records=[record])), "problem")
    assert "slow_draft" not in kinds(replace(SEEN, log=LOG))


def test_no_row_is_found_where_it_does_not_belong() -> None:
    """A loaded draft model was not left out, a fast server was not pushed, a difference that nothing else makes is no control."""
    loaded = replace(LOG, facts={"draft": "draft"})
    assert "left_out" not in kinds(replace(CASES["left_out"], log=loaded))
    assert not {"slow_target", "pushed_out"} & {*kinds(plain_steps(1.1)), *kinds(SEEN)}
    assert "control" not in kinds(with_crowd(with_gap(SEEN, 0.1, 0.02), 1))


def test_every_finding_has_its_strings() -> None:
    names = {path.split("/")[3] for path, _ in flat(load("servers")) if "/doctor/findings/" in path}
    assert names == {*CASES, "healthy", "slow_draft"}


def test_doctor_examines_a_recorded_server(capsys, monkeypatch) -> None:
    """All prompts get the recorded answer, of which 38 of 45 drafted tokens were accepted."""
    monkeypatch.setenv("SPECDEMO_SERVER_KEY", KEY)
    with serving(llama([recorded.DRAFTED.encode()])) as url:
        assert main(["doctor", url, "--json"]) == 3
        found = json.loads(capsys.readouterr().out)
        assert main(["doctor", url]) == 3
    assert found["server"] == "llama-server"
    (problem,) = [one for one in found["findings"] if one["level"] == "problem"]
    # the recording ends after 48 tokens of the 96 that are requested
    assert problem["kind"] == "context"
    assert "--ctx-size" in capsys.readouterr().out


@pytest.fixture
def few_probes(monkeypatch) -> None:
    """One prompt and a short answer."""
    monkeypatch.setattr(doctor, "TOKENS", 8)
    monkeypatch.setattr(doctor, "MORE_PROSE", ())
    monkeypatch.setattr(doctor, "PROBES", {"prose": doctor.PROBES["prose"][:1]})


@pytest.mark.usefixtures("few_probes")
def test_doctor_sees_that_a_real_server_does_not_draft(real_server, capsys) -> None:
    assert main(["doctor", real_server("plain"), "--json"]) == 3
    kinds = [one["kind"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert kinds == ["no_drafts_llama", "context", "no_speed"]


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize(("kind", "code", "verdict"), [("ngram", 0, "held"), ("lossy", 3, "lossy")])
def test_audit_distinguishes_a_real_lossy_server_from_a_lossless_one(kind, code, verdict, real_server, capsys) -> None:  # fmt: skip
    """The lossy server accepts every n-gram draft; the same seeds give the same text in the other one."""
    plain, server = real_server("plain"), real_server(kind)
    options = ["--tokens", "20", "--samples", "12", "--json"]
    assert main(["audit", server, "--plain", plain, *options]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == verdict
    assert verdict == "lossy" or found["draws"]["equal"] == 1


class Foreign:
    """Stand-in for a vLLM server: answers of two tokens, of which the second is drawn with `chance` for "b".

    seeded: whether the seed of a request determines the draw
    """

    def __init__(self, chance: float, *, seeded: bool = True) -> None:
        self.chance, self.seeded, self.rng = chance, seeded, random.Random(7)

    def answer(self, body: bytes) -> list[bytes]:
        asked = json.loads(body)
        rng = random.Random(asked["seed"]) if self.seeded and asked["seed"] else self.rng
        drawn = rng.random() if asked["temperature"] else 0.5
        tokens = ["a", "b" if drawn < self.chance else "c"]
        listed = [("b", math.log(self.chance)), ("c", math.log(1 - self.chance))]
        rows = [[("a", -0.1), ("x", -3.0)], sorted(listed, key=lambda one: -one[1])]
        parts = []
        for token, row in zip(tokens, rows, strict=True):
            top = [{"token": text, "logprob": chance} for text, chance in row]
            own = {"token": token, "logprob": dict(row)[token], "top_logprobs": top}
            parts.append({"delta": {"content": token}, "logprobs": {"content": [own]}})
        parts.append({"delta": {}, "finish_reason": "stop"})
        return sse(*({"choices": [part]} for part in parts))


class Crowded:
    """Stand-in for a plain server whose text at temperature 0 changes beside another request.

    alone: requests before the control, which sends another one and, once that is being answered, its own
    """

    def __init__(self, alone: int) -> None:
        self.alone, self.asked, self.answered = alone, 0, threading.Event()

    def answer(self, body: bytes) -> Iterator[bytes]:
        self.asked += 1
        place = self.asked - self.alone
        first, *rest = Foreign(0.49 if place == 2 else 0.51).answer(body)
        yield first
        if place == 1:
            assert self.answered.wait(60)
        yield from rest
        if place == 2:
            self.answered.set()


@pytest.mark.usefixtures("few_probes")
@pytest.mark.parametrize(
    ("chance", "found"), [(0.49, {"rounding", "control"}), (0.51, {"same_text"})]
)
def test_doctor_asks_the_plain_server_again_beside_other_requests(chance, found, capsys) -> None:
    """If that alone changes its text too, drafts are not to blame for the difference."""
    plain_server = chat(Crowded(alone=3).answer, VLLM)
    with serving(chat(Foreign(chance).answer, VLLM)) as url, serving(plain_server) as plain:
        main(["doctor", url, "--plain", plain, "--json"])
    kinds = {one["kind"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert kinds & {"rounding", "control", "same_text", "unclear_text", "lossy"} == found


@pytest.mark.parametrize(
    ("server", "code", "printed"),
    [
        (Foreign(0.85), 0, "are equal, so the drafts change at most"),
        (Foreign(0.4), 3, "The server changes the text"),
        (Foreign(0.85, seeded=False), 0, "frequencies agree"),
        (Foreign(0.52, seeded=False), 3, "frequencies differ"),
    ],
)
def test_audit_compares_the_texts_of_other_servers(server, code, printed, capsys) -> None:
    plain_server = chat(Foreign(0.85).answer, VLLM)
    with serving(chat(server.answer, VLLM)) as url, serving(plain_server) as plain:
        assert main(["audit", url, "--plain", plain, "--samples", "80"]) == code
        assert printed in capsys.readouterr().out


def test_same_frequencies_finds_the_bias_that_it_promises() -> None:
    """Of 200 correct servers at most a few are found, of biased ones nine in ten."""
    found = {0.0: 0, 1.0: 0}
    for seed in range(200):
        for share in found:
            rng, count = random.Random(seed), 1000
            bias = share * math.sqrt(audit._noncentrality(2) / (2 * count))
            samples = [rng.choices("abc", weights, k=count) for weights in ((0.5, 0.3, 0.2), (0.5 + bias, 0.3 - bias, 0.2))]  # fmt: skip
            p_value, freedom = audit.same_frequencies(*([("p", text) for text in one] for one in samples))  # fmt: skip
            found[share] += p_value < audit.LEVEL
            assert freedom == 2
    assert found[0.0] <= 6
    assert found[1.0] >= 175
