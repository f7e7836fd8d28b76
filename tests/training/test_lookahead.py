"""Training the learned lookahead: rows from what was tested, an exact replay, and honest held-out numbers."""

import random

import pytest

from specdemo.config.errors import UserError
from specdemo.drafters.policies.learned import FEATURES, Learned, LookaheadWeights
from specdemo.drafters.policies.lookahead import Constant
from specdemo.engine.cost import CostProfile
from specdemo.trace.codec import dumps
from specdemo.trace.events import ModelInfo, Node, RunStarted, Status, Trace, Verified
from specdemo.training import lookahead
from specdemo.training.lookahead import (
    Chain,
    Run,
    best_constant,
    fit,
    model_policy,
    recorded_costs,
    recorded_runs,
    rows_of,
    run_training,
    split,
    steps,
    train_lookahead,
)

COSTS = CostProfile(((1, 0.025), (5, 0.033), (16, 0.050)), 0.002)


def verified(chain: list[tuple[float, float]], accepted: int, *, ended: bool = False) -> Verified:
    """A step of a trace. chain: (confidence, accept_prob) of each drafted token"""
    nodes = tuple(
        Node(
            7,
            parent=place - 1,
            confidence=confidence,
            accept_prob=chance if place <= accepted else None,
            status=Status.ACCEPTED if place < accepted else Status.REJECTED,
        )
        for place, (confidence, chance) in enumerate(chain)
    )
    own = None if ended else Node(9, status=Status.CORRECTION)
    return Verified("speculative", 0, nodes, tuple(range(accepted)), own, 0.0, 0.0, 0.0, 0.0)


def trace_of(prompt: str, steps_: list[Verified], temperature: float = 0.0, **facts) -> Trace:
    settings = {"sampling": {"temperature": temperature}}
    models = {"target": ModelInfo("big"), "draft": ModelInfo("small")}
    header = RunStarted("speculative", "draft_model", prompt, settings, **{**models, **facts})
    return Trace((header, *steps_))


def easy_traces(prompts: int = 24, steps_each: int = 30, seed: int = 0) -> list[Trace]:
    """Tokens of confidence 0.95 are always kept, those of 0.15 always refused; prompts alternate greedy, drawn."""
    rng = random.Random(seed)
    traces = []
    for number in range(prompts):
        drafts = []
        for _ in range(steps_each):
            accepted = rng.choice((0, 1, 2, 8))
            chain = [(0.95, 1.0)] * accepted + [(0.15, 0.0)] * (12 - accepted)
            drafts.append(verified(chain, accepted))
        traces.append(trace_of(f"prompt {number}", drafts, temperature=number % 2))
    return traces


def test_only_tested_tokens_of_chains_are_read():
    chain = [(0.9, 1.0), (0.8, 0.25), (0.7, 0.5)]
    forked = tuple(Node(7, parent=-1, confidence=0.5, accept_prob=1.0) for _ in range(2))
    events = [
        verified(chain, 1),
        verified(chain, 2, ended=True),
        verified([], 0),
        Verified("speculative", 0, forked, (0,), Node(9), 0.0, 0.0, 0.0, 0.0),
        Verified("speculative", 0, (Node(7),), (), Node(9), 0.0, 0.0, 0.0, 0.0),
    ]
    (run,) = recorded_runs([trace_of("p", events, temperature=0.7), trace_of("no drafts", [])])
    assert not run.greedy
    assert run.chains == (
        Chain((0.9, 0.8, 0.7), (1.0, 0.25), 1),
        Chain((0.9, 0.8), (1.0, 0.25), 2),  # what followed the end of the answer does not count
    )


def test_a_policy_that_stops_earlier_takes_more_steps_over_the_same_text():
    """The example of `steps`: five kept and one refused, under a lookahead of two."""
    run = Run("p", True, (Chain((0.9,) * 8, (1.0,) * 5 + (0.0,), 5),))
    taken = [
        (len(left.confidences), left.accepted, drafted) for left, drafted in steps(run, Constant(2))
    ]
    assert taken == [(8, 5, 2), (5, 2, 2)]
    short, long = (
        model_policy([run], lambda _, length=length: Constant(length), COSTS) for length in (2, 8)
    )
    assert short.tokens == long.tokens == 6
    assert (short.steps, short.drafted) == (2, 4)
    assert long.seconds == pytest.approx(COSTS.verify_seconds(9) + 8 * 0.002)
    assert short.seconds == pytest.approx(2 * (COSTS.verify_seconds(3) + 2 * 0.002))


def test_a_draft_that_was_kept_whole_is_not_replayed_past_its_end():
    run = Run("p", True, (Chain((0.9,) * 4, (1.0,) * 4, 4),))
    assert [drafted for _, drafted in steps(run, Constant(3))] == [3]
    assert [drafted for _, drafted in steps(run, Constant(6))] == [4]


def test_rows_hold_what_was_tested_and_no_more(monkeypatch):
    monkeypatch.setattr(lookahead, "SEEN_WITH", (4,))
    run = Run("p", True, (Chain((0.9, 0.8, 0.7, 0.6), (1.0, 0.5), 1), Chain((0.4,), (0.0,), 0)))
    rows = rows_of([run])
    assert [chance for _, chance in rows] == [1.0, 0.5, 0.0]
    place = FEATURES.index("accepted_share")
    assert [values[place] for values, _ in rows] == pytest.approx([0.5, 0.5, 1.8 / 3.6])


def test_known_separable_data_are_learnt():
    weights, report = train_lookahead(easy_traces(), COSTS)
    for greedy in (True, False):
        policy = Learned(weights, 12, greedy=greedy)
        policy.allowed([1])
        assert policy.chance(policy.features.add(0.95)) > 0.9
        assert policy.chance(policy.features.add(0.15)) < 0.1
    assert report["log_loss"] < 0.1 < report["base_log_loss"]
    assert report["calibration_error"] < 0.1
    modelled = report["modelled"]
    assert set(modelled) == {"all", "greedy", "sampled"}
    assert modelled["all"]["gain"] > 0.05  # lengths vary, so that no constant can follow
    assert modelled["all"]["learned"] > modelled["all"]["plain"]


def test_the_regression_finds_the_slope_that_made_the_data():
    rng = random.Random(1)
    rows = []
    for _ in range(4000):
        values = tuple(rng.gauss(0, 1) for _ in FEATURES)
        chance = Learned(by_hand(values_slope=1.5), 8, greedy=True).chance(values)
        rows.append((values, chance))
    weights = fit(rows)
    slopes = [weight / scale for weight, scale in zip(weights.weights, weights.scale, strict=True)]
    assert slopes[0] == pytest.approx(1.5, abs=0.05)
    assert max(map(abs, slopes[1:])) < 0.02


def by_hand(values_slope: float) -> LookaheadWeights:
    zeros, ones = (0.0,) * len(FEATURES), (1.0,) * len(FEATURES)
    return LookaheadWeights(zeros, ones, (values_slope, *zeros[1:]), 0.0, 0.5)


def test_the_best_constant_is_the_fastest_of_all():
    runs = recorded_runs(easy_traces())
    length, best = best_constant(runs, COSTS, 12)
    rates = [
        model_policy(runs, lambda _, tried=tried: Constant(tried), COSTS).rate
        for tried in range(1, 13)
    ]
    assert best.rate == max(rates) == rates[length - 1]


def test_prompts_are_held_out_whole():
    traces = easy_traces() + easy_traces(seed=1)  # each prompt was run twice
    training, held = split(recorded_runs(traces), seed=0)
    assert len(held) == 12
    assert len(training) == 36
    assert not {run.prompt for run in training} & {run.prompt for run in held}


def test_held_out_numbers_come_from_runs_that_were_not_trained_on():
    """Where the held-out prompts contradict the others, training must look bad: it never saw them."""
    traces = easy_traces()
    _, held = split(recorded_runs(traces), seed=0)
    apart = {run.prompt for run in held}
    turned = [
        trace_of(trace.events[0].prompt, [verified([(0.15, 1.0)] * 2 + [(0.95, 0.0)] * 10, 2)] * 9)
        if trace.events[0].prompt in apart
        else trace
        for trace in traces
    ]
    weights, report = train_lookahead(turned, COSTS, seed=0)
    kept = [trace for trace in traces if trace.events[0].prompt not in apart]
    assert weights.weights == fit(rows_of(recorded_runs(kept))).weights
    assert report["log_loss"] > report["base_log_loss"]


def test_too_few_prompts_are_a_sentence():
    with pytest.raises(UserError, match="8 are needed"):
        train_lookahead(easy_traces(prompts=5), COSTS)


def test_traces_of_another_pair_are_refused():
    other = trace_of("other", [verified([(0.9, 1.0)], 1)], draft=ModelInfo("another"))
    with pytest.raises(UserError, match="big with another; big with small"):
        train_lookahead([*easy_traces(), other], COSTS)


def test_from_files_to_weights_with_the_costs_that_the_traces_tell(tmp_path):
    files = []
    for number, trace in enumerate(easy_traces(prompts=10, steps_each=8)):
        told = trace_of(
            trace.events[0].prompt,
            list(trace.events[1:]),
            verify_costs=COSTS.verify,
            draft_cost=COSTS.draft_step,
        )
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text(dumps(told.events), encoding="utf-8")
    stages: list[str] = []
    report = run_training(
        files, None, tmp_path / "out.json", lambda note: stages.append(note.stage)
    )
    weights = LookaheadWeights.read(tmp_path / "out.json")
    assert weights.threshold == report["threshold"]
    assert weights.trained_on["costs"]["draft_step"] == COSTS.draft_step
    assert stages[-1] == "evaluate"
    assert (weights.trained_on["target"], weights.trained_on["draft"]) == ("big", "small")
    assert weights.trained_on["held_out_runs"] == report["held_out_runs"] > 0


def test_traces_without_costs_are_a_sentence():
    with pytest.raises(UserError, match="what a pass costs"):
        recorded_costs(easy_traces(prompts=1))
