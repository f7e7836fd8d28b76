"""Audit: honest drafters pass, biased ones are detected, and the result is saved."""

import json
from dataclasses import replace

import pytest
import torch
from conftest import (
    PROMPT,
    VOCABULARY,
    disturbed_target,
    drafter_for,
    open_draft,
    open_target,
    run_lane,
)
from lanes import Scripted
from tiny_studio import TinyStudio

from specdemo.bench import audit
from specdemo.bench.audit import (
    CONDITIONS,
    AuditResult,
    GreedyAudit,
    MethodAudit,
    run_audit,
)
from specdemo.bench.lanes import LaneLost, LaneResult, Paired
from specdemo.bench.results import text
from specdemo.bench.statistics import (
    SamplingAudit,
    judge_sampling,
    reread,
)
from specdemo.cli import console
from specdemo.cli.commands import bench
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.config.settings import TOKEN, AppSettings, Sampling
from specdemo.drafters.base import Plain
from specdemo.drafters.draft_model import LookBack
from specdemo.drafters.policies.guard import Wrapper
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import PrefixReader
from specdemo.engine.types import Proposal
from specdemo.engine.verify import verify_sampling
from specdemo.session.studio import AUDIT_FILE
from specdemo.trace.events import ModelInfo
from specdemo.trace.metrics import measure, output_ids

PROMPTS = (PROMPT, [9, 9, 8, 4])
LIMIT = 0.01 / 40
UNLIKELY = 0.3


def sampler(weights, shaper):
    """A drafter of chains from a tiny draft model, which stops after an unlikely token."""
    settings = {"policy": "confidence", "threshold": UNLIKELY, "verification": TOKEN}
    draft = open_draft(weights)
    return drafter_for("draft_model", draft, sampling=shaper.sampling, **settings)


class Misreporting(Wrapper):
    """A drafter that reports flat distributions in place of those that it drew from."""

    def propose(self, committed, budget):
        proposal = self.drafter.propose(committed, budget)
        flat = torch.full((len(proposal), VOCABULARY), 1 / VOCABULARY)
        return replace(proposal, draft_probs=flat)


def guesses(committed, budget):
    """A tree of chosen tokens: two guesses for the next one, and one below the second."""
    if budget < 2:
        return Proposal()
    first = (committed[-1] * 7 + 3) % VOCABULARY
    return Proposal((first, 41, (first + 9) % VOCABULARY), (-1, -1, 1))


@pytest.fixture(scope="module")
def draft():
    """A copy of the target with enough noise that half of its draft tokens are rejected."""
    return disturbed_target(0.35)


@pytest.fixture(scope="module")
def makers(target_weights, draft):
    """Drafters by name, each made for one run. Looking back is worst with a good draft, so it has the target's copy."""
    return {
        "nothing": lambda _shaper: Plain(),
        "sampler": lambda shaper: sampler(draft, shaper),
        "guesses": lambda _shaper: Scripted(guesses),
        "look back": lambda shaper: LookBack(sampler(target_weights, shaper), UNLIKELY),
        "wrong rows": lambda shaper: Misreporting(sampler(draft, shaper)),
        "broken": lambda _shaper: Scripted(lambda *_: Proposal((1,), (7,))),
    }


def sampled(target_weights, make, sampling, runs, verifier):
    """(prompt ids, new ids) of seeded runs through the real loop."""
    target = open_target(target_weights)
    for seed in range(runs):
        seeded = replace(sampling, seed=seed)
        prompt = PROMPTS[seed % len(PROMPTS)]
        target.rollback(0)
        events = run_lane(
            target_weights, make(Shaper(seeded)), prompt, sampling=seeded, max_new_tokens=16,
            target=target, verifier=verifier,
        )  # fmt: skip
        yield prompt, output_ids(events)


@pytest.fixture
def judged(target_weights, draft):
    """Return a function that audits a drafter under a condition."""

    def judged(make, condition, said_under="", runs=40, verifier=verify_sampling):
        sampling = CONDITIONS[said_under or condition]
        said = sampled(target_weights, make, sampling, runs, verifier)
        readers = [PrefixReader(open_draft(weights)) for weights in (target_weights, draft)]
        return judge_sampling(*readers, condition, CONDITIONS[condition], said, LIMIT)

    return judged


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("method", ["nothing", "sampler", "guesses"])
def test_honest_drafters_hold(judged, makers, method, condition):
    found = judged(makers[method], condition, runs=20)
    assert found.held, found
    assert found.samples == 320
    assert found.impossible == 0


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("method", ["look back", "wrong rows"])
def test_dishonest_drafters_are_caught(judged, makers, method, condition):
    found = judged(makers[method], condition)
    assert not found.held, found


def test_a_verifier_that_accepts_too_much_is_caught(judged, makers):
    def lenient(proposal, target_probs, generator):
        drawn = proposal.draft_probs
        softer = drawn and [row * 0.5 for row in drawn]  # doubles each probability of acceptance
        return verify_sampling(replace(proposal, draft_probs=softer), target_probs, generator)

    found = judged(makers["sampler"], "temperature 1", runs=120, verifier=lenient)
    assert found.p_draft < LIMIT / 100, found
    assert not found.held


def test_a_method_that_draws_from_another_distribution_is_caught(judged, makers):
    """Without top-p a target draws tokens that are impossible with it."""
    condition = "top-p 0.9, repetition penalty 1.2"
    found = judged(makers["nothing"], condition, said_under="temperature 1")
    assert not found.held
    assert found.impossible > 0


def test_reading_again_gives_each_token_the_row_before_it(target_weights):
    sampling = Sampling(temperature=1.0, repetition_penalty=1.3)
    reader = PrefixReader(open_target(target_weights))
    ids = [3, 9, 3, 14]
    for _ in range(2):  # the second time from the cache
        probs = reread(reader, PROMPTS[0], ids, sampling)
        assert probs.shape == (4, VOCABULARY)
        for place in range(len(ids)):
            text = [*PROMPTS[0], *ids[:place]]
            logits = target_weights(torch.tensor([text])).logits[0, -1:]
            alone = Shaper(sampling).probs(logits, text, [[]])[0]
            assert torch.allclose(probs[place], alone, atol=1e-5)


def test_greedy_outputs_are_compared_token_by_token():
    ids, probs = tuple(range(8)), (0.5,) * 8
    plain = LaneResult("nothing", measure(()), ids, probs)
    other = replace(plain, ids=(*ids[:6], 40, 7), probs=(*probs[:6], 0.375, 0.5))
    same = GreedyAudit.of([Paired(plain, plain)] * 2, required=True)
    assert same == GreedyAudit(2, 2, 1.0, None, required=True)
    assert same.held
    differs = GreedyAudit.of([Paired(plain, plain), Paired(other, plain)], required=True)
    assert (differs.equal, differs.same_share, differs.median_margin) == (1, 14 / 16, 0.125)
    assert not differs.held
    assert replace(differs, required=False).held


@pytest.fixture
def studio(target_weights, draft, makers, tmp_path):
    drafters = {
        name: lambda settings, make=make: make(Shaper(settings.sampling))
        for name, make in makers.items()
    }
    studio = TinyStudio(
        target_weights, drafters, {"copy": "There is no copy."}, draft_info=ModelInfo("tiny draft"),
        open_draft=lambda *_: PrefixReader(open_draft(draft)), open_target=lambda: None,
    )  # fmt: skip
    studio.infos = [replace(one, lossy=one.name == "look back") for one in studio.infos]
    studio.settings = AppSettings(cache_dir=tmp_path)
    return studio


def test_an_audit_of_every_method(studio):
    reports = []
    *_, result = run_audit(studio, None, runs=16, tokens=12, report=reports.append)
    verdicts = {method.name: method.verdict for method in result.methods}
    assert verdicts == {
        "nothing": "held",
        "sampler": "held",
        "guesses": "held",
        "look back": "lossy by design",
        "wrong rows": "did not hold",
        "broken": "broke",
        "copy": "not available",
    }
    assert not result.held
    found = {method.name: method for method in result.methods}
    assert found["sampler"].greedy.equal == found["sampler"].greedy.outputs == 6
    assert [row.samples for row in found["sampler"].sampling] == [192, 192]
    assert result.limit == 0.01 / (3 * 2 * 6)
    assert all(0 <= report.done <= 1 for report in reports)
    assert [report.done for report in reports] == sorted(report.done for report in reports)
    saved = json.loads((studio.settings.cache_dir / AUDIT_FILE).read_text(encoding="utf-8"))
    values = result.result().values
    assert [method["verdict"] for method in saved["methods"]] == list(verdicts.values())
    assert {name: saved[name] for name in values} == json.loads(json.dumps(values))
    table = text(result.result())
    assert "There is no copy." in table
    assert "IndexError" in table or "ValueError" in table
    assert all(word in table for word in ("did not hold", "lossy by design", "not available"))


def test_an_audit_of_one_method_has_its_control_and_holds(studio):
    last = studio.settings.cache_dir / AUDIT_FILE
    last.write_text("{}")
    *_, result = run_audit(studio, ["sampler"], runs=4, tokens=8)
    assert [path.name for path in studio.settings.cache_dir.iterdir()] == [AUDIT_FILE]
    assert json.loads(last.read_text(encoding="utf-8"))["held"] is True
    assert [method.name for method in result.methods] == ["nothing", "sampler"]
    assert result.held


@pytest.fixture
def command(studio, monkeypatch):
    """A function that audits `sampler` by the command line."""
    monkeypatch.setattr(console, "open_studio", lambda _: studio)
    monkeypatch.setattr(bench, "check_method", lambda _: None)
    return lambda: main(["audit", "--methods", "sampler", "--runs", "4", "--tokens", "8"])


def test_an_interrupted_audit_shows_the_methods_before(studio, command, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    one = audit._Auditor.audited
    monkeypatch.setattr(
        audit._Auditor, "audited",
        lambda self, row, report: one(self, row, report) if row.name == "nothing" else interrupt(),
    )  # fmt: skip
    assert command() == 130
    assert "| nothing " in capsys.readouterr().out
    assert not (studio.settings.cache_dir / AUDIT_FILE).exists()


def test_an_audit_without_plain_decoding_ends_with_its_message(studio, monkeypatch):
    def lose(*_):
        raise LaneLost("it broke")

    monkeypatch.setattr(audit, "run_once", lose)
    with pytest.raises(UserError, match="Plain decoding failed: it broke"):
        next(run_audit(studio, ["sampler"], 4, 8))


def test_an_audit_that_cannot_be_stored_is_shown(studio, command, capsys):
    studio.settings.cache_dir.joinpath(AUDIT_FILE).mkdir(parents=True)
    assert command() == 0
    assert "| sampler " in capsys.readouterr().out


RESULT = AuditResult(
    model="tiny", draft="", precision="nf4", kernel="k", seconds=1.5, runs=2, tokens=3, limit=0.001,
    methods=(
        MethodAudit(
            "ngram", "N-gram", lossy=False, available=True,
            greedy=GreedyAudit(3, 2, 0.9, 0.01, required=False),
            sampling=(SamplingAudit("temperature 1", 6, 1, 0.5, 0.25, None, held=True),) * 2,
        ),
        MethodAudit("copy", "Copy", lossy=False, available=False, why_not="There is no copy."),
    ),
)  # fmt: skip


def test_the_table_says_what_low_precision_means():
    table = text(RESULT.result())
    assert "2 of 3" in table
    assert "near-ties may fall the other way" in table
    assert "1 of 6 tokens are impossible" in table
    exact = replace(RESULT.methods[0], greedy=GreedyAudit(1, 1, 1, None, True))
    assert "near-ties" not in text(replace(RESULT, methods=(exact,)).result())
