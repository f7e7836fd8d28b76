"""Measured costs are cached by machine and pair, only ever improve, and a damaged file is measured again."""

import json
import os
import time
from dataclasses import replace

import pytest

from specdemo.engine.cost import ANY_ROWS, LADDER, CostProfile
from specdemo.engine.target import CachedModel
from specdemo.models import measurements
from specdemo.models.measurements import known_costs, pair_costs
from specdemo.trace.events import ModelInfo

INFO, DRAFT = ModelInfo("target", kernel="lean pass"), ModelInfo("draft")
CARD_INFO = replace(INFO, kernel="bitsandbytes NF4 on CUDA")
SLOW, FAST = CostProfile(((1, 0.2), (5, 0.3)), 0.02), CostProfile(((1, 0.1), (5, 0.4)), 0.03)
FIRST, LATER = measurements.REPEATS, 1  # rounds of measuring


@pytest.fixture
def rounds(monkeypatch):
    """Rounds of each measurement; the first finds SLOW, the second FAST."""
    results, rounds = [SLOW, FAST], []

    def measure(_target, _draft, repeats, _steps):
        rounds.append(repeats)
        return results.pop(0)

    monkeypatch.setattr(measurements, "measure_costs", measure)
    monkeypatch.setattr(measurements, "glance", lambda *_: FAST)
    monkeypatch.setattr(measurements, "exact_rows", lambda _: 3)
    return rounds


def costs(folder, info=INFO, draft_info=DRAFT, card=""):
    return pair_costs(folder, None, info, None, draft_info, card)


def test_costs_are_not_measured_again_for_some_days(rounds, monkeypatch, tmp_path):
    same = CostProfile(((1, 0.19), (8, 0.35)), 0.019)  # within the noise
    monkeypatch.setattr(measurements, "glance", lambda *_: same)
    assert [costs(tmp_path) for _ in range(3)] == [SLOW] * 3
    assert rounds == [FIRST]
    (file,) = (tmp_path / "costs").iterdir()
    for days in (-8, 1):  # too old; written while the clock was wrong
        os.utime(file, 2 * (time.time() + days * 24 * 3600,))
        assert not measurements.Measurement(file, CostProfile).is_recent
    costs(tmp_path)
    assert rounds == [FIRST, LATER]
    assert measurements.Measurement(file, CostProfile).is_recent


@pytest.mark.parametrize("verify", [((1, 0.17), (8, 0.5)), ((1, 0.2), (8, 0.3)), ()])
def test_costs_measured_on_a_busy_machine_are_measured_again(rounds, monkeypatch, tmp_path, verify):
    """In one round, of which the better times are kept."""
    seen = CostProfile(verify, 0.02) if verify else CostProfile(SLOW.verify, 0.017)
    monkeypatch.setattr(measurements, "glance", lambda *_: seen)
    assert costs(tmp_path) == SLOW
    assert costs(tmp_path) == CostProfile(((1, 0.1), (5, 0.3)), 0.02)
    assert rounds == [FIRST, LATER]


def test_costs_of_a_gpu_are_measured_at_every_start(rounds, monkeypatch, tmp_path):
    for _ in range(2):
        assert costs(tmp_path, CARD_INFO).exact_rows == 3
        monkeypatch.setattr(measurements, "exact_rows", lambda _: pytest.fail("it is cached"))
    assert rounds == [FIRST, LATER]


@pytest.mark.usefixtures("rounds")
def test_costs_of_the_compiled_pass_are_exact_in_any_company(tmp_path):
    info = replace(INFO, kernel="bitsandbytes NF4, compiled pass on AVX2")
    for _ in range(2):
        assert costs(tmp_path, info).exact_rows == ANY_ROWS


def test_costs_of_each_card_have_a_ladder_and_a_file_of_their_own(monkeypatch, tmp_path):
    ladders = []

    def measure(_target, _draft, _repeats, steps):
        ladders.append(steps)
        return SLOW if len(ladders) == 1 else FAST

    monkeypatch.setattr(measurements, "measure_costs", measure)
    monkeypatch.setattr(measurements, "exact_rows", lambda _: 0)
    for card, expected in (("old", SLOW), ("new", FAST)):
        assert costs(tmp_path, CARD_INFO, None, card) == expected
        (known,) = known_costs(tmp_path, gpu=True, card=card)
        assert known.profile == expected
    assert ladders == [LADDER, LADDER]
    assert set(range(1, 18)) < set(LADDER)
    assert not known_costs(tmp_path, gpu=False)
    assert measurements.card_name("cpu") == ""


@pytest.mark.usefixtures("rounds")
@pytest.mark.parametrize("info", [replace(INFO, kernel="other"), replace(INFO, name="other")])
def test_costs_of_another_model_or_kernel_have_their_own_file(tmp_path, info):
    costs(tmp_path)
    assert costs(tmp_path, info) == FAST


@pytest.mark.usefixtures("rounds")
@pytest.mark.parametrize(
    "text", ["", "[]", '{"verify": 3}', json.dumps({"verify": [], "draft_step": 1})]
)
def test_costs_in_a_damaged_file_are_measured_again(tmp_path, text):
    costs(tmp_path)
    (file,) = (tmp_path / "costs").iterdir()
    file.write_text(text)
    assert not known_costs(tmp_path, gpu=False)
    assert costs(tmp_path) == FAST


@pytest.mark.usefixtures("rounds")
def test_costs_need_no_writable_cache(tmp_path):
    (tmp_path / "costs").write_text("a file")
    assert costs(tmp_path) == SLOW


def test_costs_of_real_passes(target_weights, draft_weights, tmp_path):
    models = CachedModel(target_weights), INFO, CachedModel(draft_weights), DRAFT
    first, again = pair_costs(tmp_path, *models), pair_costs(tmp_path, *models)
    for (_, before), (_, after) in zip(first.verify, again.verify, strict=True):
        assert 0 < after <= before
