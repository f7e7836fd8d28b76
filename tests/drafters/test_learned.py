"""The learned lookahead: its features, its rule, its file, and that it never changes the text."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import reference_greedy, run_lane

from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.draft_reader import DraftReader
from specdemo.drafters.policies.learned import FEATURES, DraftFeatures, Learned, LookaheadWeights
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.prefix import PrefixReader
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Outcome, Proposal, Verdict
from specdemo.trace.events import Drafted, Status, Verified
from specdemo.trace.metrics import output_ids

PROMPT = [3, 17, 9, 41, 5]


def weights_of(threshold: float, **slopes: float) -> LookaheadWeights:
    """A classifier by hand: unit scale, no mean, the named slopes."""
    zeros = (0.0,) * len(FEATURES)
    return LookaheadWeights(
        zeros,
        (1.0,) * len(FEATURES),
        tuple(slopes.get(name, 0.0) for name in FEATURES),
        bias=0.0,
        threshold=threshold,
    )


def judged(accepted: int, drafted: int) -> Outcome:
    kind = Status.BONUS if accepted == drafted else Status.CORRECTION
    proposal = Proposal.chain((0,) * drafted, confidences=(0.5,) * drafted)
    return Outcome((0,) * (accepted + 1), proposal, Verdict(tuple(range(accepted)), 0, kind), 0, 0)


def test_the_features_of_a_growing_draft():
    features = DraftFeatures(greedy=True)
    first = dict(zip(FEATURES, features.add(0.8), strict=True))
    second = dict(zip(FEATURES, features.add(0.5), strict=True))
    third = dict(zip(FEATURES, features.add(0.9), strict=True))
    assert first["confidence"] == first["greedy_confidence"] == pytest.approx(math.log(4))
    assert first["position"] == 0
    assert second["survival"] == pytest.approx(math.log(0.4))
    assert third["position"] == pytest.approx(math.log(3))
    assert third["lowest"] == pytest.approx(0)  # the log-odds of one half
    assert third["greedy"] == 1


def test_features_of_steps_before_fade_and_a_draft_begins_anew():
    features = DraftFeatures(greedy=False)
    features.add(0.1)
    features.end(accepted=4, drafted=4)
    features.begin()
    after_whole = dict(zip(FEATURES, features.add(0.9), strict=True))
    assert after_whole["survival"] == pytest.approx(math.log(0.9))
    assert after_whole["lowest"] == pytest.approx(math.log(9))
    assert after_whole["kept_whole"] == 1
    assert after_whole["accepted_share"] == pytest.approx((0.8 + 4) / (1.6 + 4))
    assert after_whole["greedy"] == after_whole["greedy_confidence"] == 0
    features.end(accepted=0, drafted=3)
    refused = dict(zip(FEATURES, features.add(0.9), strict=True))
    assert refused["kept_whole"] == 0
    assert refused["accepted_share"] < after_whole["accepted_share"]


@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_a_certain_or_impossible_token_gives_finite_features(confidence):
    assert all(map(math.isfinite, DraftFeatures(greedy=True).add(confidence)))


def test_the_rule_multiplies_chances_and_says_so():
    policy = Learned(weights_of(0.45, confidence=1.0), 8, greedy=True)  # chance = confidence
    assert policy.allowed([1]) == 8
    assert policy.go_on(0.9)
    assert policy.go_on(0.6)
    assert policy.survival == pytest.approx(0.54)
    assert not policy.go_on(0.8)
    assert policy.reason.code == "learned_stop"
    assert round(policy.reason.values["survival"], 2) == 0.43
    assert policy.reason.values["drafted"] == 3
    policy.allowed([1, 2])
    assert policy.survival == 1
    assert policy.reason.code == "learned_whole"
    assert not policy.go_on(0.2)
    assert round(policy.reason.values["survival"], 2) == 0.2


def test_means_and_scales_are_applied():
    plain = weights_of(0.5, confidence=2.0)
    shifted = replace(plain, mean=(1.0, *plain.mean[1:]), scale=(4.0, *plain.scale[1:]))
    odds = 2 * (math.log(0.9 / 0.1) - 1) / 4
    policy = Learned(shifted, 8, greedy=True)
    policy.go_on(0.9)
    assert policy.survival == pytest.approx(1 / (1 + math.exp(-odds)))


def test_a_run_of_refusals_makes_it_stop_earlier():
    def lengths(accepted: int) -> int:
        policy = Learned(weights_of(0.3, accepted_share=4.0), 12, greedy=True)
        for _ in range(6):
            policy.observe(judged(accepted, 4))
        policy.allowed([1])
        return next((drafted for drafted in range(1, 13) if not policy.go_on(0.5)), 12)

    assert lengths(accepted=0) < lengths(accepted=4)


def draft_with(policy, draft_weights, sampling):
    reader = PrefixReader(CachedModel(draft_weights))
    size = draft_weights.config.vocab_size
    return DraftModel(DraftReader(reader, Shaper(sampling), size, Costs(CostProfile())), policy)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6, 1.0])
def test_the_greedy_text_stays_the_target_own(target_weights, draft_weights, threshold):
    policy = Learned(weights_of(threshold, confidence=1.0), 8, greedy=True)
    drafter = draft_with(policy, draft_weights, Sampling())
    ids = output_ids(run_lane(target_weights, drafter, PROMPT, max_new_tokens=40))
    assert ids == reference_greedy(target_weights, PROMPT, 40)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_drawn_token_is_handed_over(target_weights, draft_weights, temperature):
    """It stops after a token; the one that made it stop is proposed and judged like the others."""
    asked: list[list[tuple[float, bool]]] = []

    class Watched(Learned):
        def allowed(self, committed):
            asked.append([])
            return super().allowed(committed)

        def go_on(self, confidence):
            answer = super().go_on(confidence)
            asked[-1].append((confidence, answer))
            return answer

    sampling = Sampling(temperature=temperature, seed=3)
    policy = Watched(weights_of(0.5, confidence=1.0), 8, greedy=sampling.greedy)
    drafter = draft_with(policy, draft_weights, sampling)
    events = run_lane(target_weights, drafter, PROMPT, sampling=sampling, max_new_tokens=40)
    drafts = [event for event in events if isinstance(event, Drafted)]
    stopped = 0
    for event, answers in zip(drafts, asked, strict=True):
        assert [node.confidence for node in event.nodes] == [chance for chance, _ in answers]
        assert all(answer for _, answer in answers[:-1])
        stopped += bool(answers) and not answers[-1][1]
    assert stopped > 3
    for event in events:
        if isinstance(event, Verified):
            assert len(event.nodes) == len(drafts[event.step].nodes)


def test_weights_survive_the_file(tmp_path):
    weights = replace(weights_of(0.4, confidence=1.25), bias=-0.1, trained_on={"runs": 3})
    weights.write(tmp_path / "weights.json")
    assert LookaheadWeights.read(tmp_path / "weights.json") == weights


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"features": ["confidence"]}, "other features"),
        ({"weights": [1.0]}, "make no classifier"),
        ({"scale": [0.0] * len(FEATURES)}, "make no classifier"),
        ({"bias": math.nan}, "make no classifier"),
        ({"threshold": 1.5}, "no probability"),
        ({"threshold": "high"}, "cannot be read"),
        ({"mean": None}, "cannot be read"),
    ],
)
def test_a_damaged_file_is_a_sentence(tmp_path, change, sentence):
    path = tmp_path / "weights.json"
    weights_of(0.4).write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=sentence):
        LookaheadWeights.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_what_is_no_such_file_is_a_sentence(tmp_path, text):
    (tmp_path / "weights.json").write_text(text)
    with pytest.raises(UserError, match="cannot be read"):
        LookaheadWeights.read(tmp_path / "weights.json")
    with pytest.raises(UserError, match="cannot be read"):
        LookaheadWeights.read(tmp_path / "missing.json")


@pytest.mark.parametrize("greedy", [True, False])
def test_the_shipped_weights_trust_a_sure_drafter(greedy):
    path = Path(__file__).parents[2] / "assets" / "lookahead" / "smollm2-135m-instruct.json"
    weights = LookaheadWeights.read(path)
    assert weights.trained_on["log_loss"] < weights.trained_on["base_log_loss"]

    def chance(confidence: float) -> float:
        return Learned(weights, 8, greedy=greedy).chance(
            DraftFeatures(greedy=greedy).add(confidence)
        )

    assert chance(0.99) > 0.8
    assert chance(0.05) < chance(0.5) < chance(0.99)
