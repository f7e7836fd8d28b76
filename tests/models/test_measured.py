"""Costs are kept by machine and pair, only ever get better, and a damaged file is measured anew."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest

from specdemo.engine.cost import ANY_ROWS, LADDER, CostProfile
from specdemo.engine.target import CachedModel
from specdemo.models import measured
from specdemo.trace.events import ModelInfo

INFO, DRAFT = ModelInfo("target", kernel="lean pass"), ModelInfo("draft")
SLOW, FAST = CostProfile(((1, 0.2), (5, 0.3)), 0.02), CostProfile(((1, 0.1), (5, 0.4)), 0.03)


@pytest.fixture
def results(monkeypatch):
    """What the next measurements find; and how many rounds each took."""
    found, rounds = [SLOW, FAST], []

    def measure(_target, _draft, repeats, _steps):
        rounds.append(repeats)
        return found.pop(0)

    monkeypatch.setattr(measured, "measure_costs", measure)
    monkeypatch.setattr(measured, "glance", lambda *_: FAST)
    monkeypatch.setattr(measured, "exact_rows", lambda _: 3)
    return rounds


def test_what_is_known_is_not_measured_again_for_some_days(results, monkeypatch, tmp_path):
    same = CostProfile(((1, 0.19), (8, 0.35)), 0.019)  # within the noise
    monkeypatch.setattr(measured, "glance", lambda *_: same)
    for _ in range(3):
        assert measured.costs_of(None, INFO, None, DRAFT, tmp_path) == SLOW
    assert results == [measured.REPEATS]
    (file,) = (tmp_path / "costs").iterdir()
    for moved in (-8, 1):  # too old; from a clock that was wrong
        os.utime(file, 2 * (time.time() + moved * 24 * 3600,))
        assert not measured._is_recent(file)
    measured.costs_of(None, INFO, None, DRAFT, tmp_path)
    assert results == [measured.REPEATS, 1]
    assert measured._is_recent(file)


@pytest.mark.parametrize("faster", [((1, 0.17), (8, 0.5)), ((1, 0.2), (8, 0.3)), ()])
def test_what_was_measured_on_a_busy_machine_is_measured_again(
    results, monkeypatch, tmp_path, faster
):
    seen = CostProfile(faster, 0.02) if faster else CostProfile(SLOW.verify, 0.017)
    monkeypatch.setattr(measured, "glance", lambda *_: seen)
    for _ in range(2):
        measured.costs_of(None, INFO, None, DRAFT, tmp_path)
    assert results == [measured.REPEATS, 1]


def test_a_gpu_goes_through_its_passes_at_every_start(results, monkeypatch, tmp_path):
    info = replace(INFO, kernel="bitsandbytes NF4 on CUDA")
    for _ in range(2):
        assert measured.costs_of(None, info, None, DRAFT, tmp_path).exact_rows == 3
        # How many rows are exact is kept.
        monkeypatch.setattr(measured, "exact_rows", lambda _: pytest.fail("it is known"))
    assert results == [measured.REPEATS, 1]


@pytest.mark.usefixtures("results")
def test_the_compiled_pass_is_exact_in_any_company_whatever_a_file_says(tmp_path):
    info = replace(INFO, kernel="bitsandbytes NF4, compiled pass on AVX2")
    for _ in range(2):
        assert measured.costs_of(None, info, None, DRAFT, tmp_path).exact_rows == ANY_ROWS


def test_a_card_has_a_ladder_and_a_file_of_its_own(monkeypatch, tmp_path):
    asked = []

    def measure(_target, _draft, _repeats, steps):
        asked.append(steps)
        return SLOW if len(asked) == 1 else FAST

    monkeypatch.setattr(measured, "measure_costs", measure)
    monkeypatch.setattr(measured, "exact_rows", lambda _: 0)
    info = replace(INFO, kernel="bitsandbytes NF4 on CUDA")
    for card, want in (("old", SLOW), ("new", FAST)):
        assert measured.costs_of(None, info, None, None, tmp_path, card) == want
        (known,) = measured.known_costs(tmp_path, gpu=True, card=card)
        assert known.profile == want
    assert asked == [LADDER, LADDER]
    assert set(range(1, 18)) < set(LADDER)
    assert not measured.known_costs(tmp_path, gpu=False)
    assert measured.card_name("cpu") == ""


def test_later_starts_measure_less_and_keep_the_best(results, tmp_path):
    first = measured.costs_of(None, INFO, None, DRAFT, tmp_path)
    second = measured.costs_of(None, INFO, None, DRAFT, tmp_path)
    assert (first, second) == (SLOW, CostProfile(((1, 0.1), (5, 0.3)), 0.02))
    assert results == [measured.REPEATS, 1]


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("info", [replace(INFO, kernel="other"), replace(INFO, name="other")])
def test_another_pair_or_kernel_has_its_own(tmp_path, info):
    measured.costs_of(None, INFO, None, DRAFT, tmp_path)
    assert measured.costs_of(None, info, None, DRAFT, tmp_path) == FAST


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    "text", ["", "[]", '{"verify": 3}', json.dumps({"verify": [], "draft_step": 1})]
)
def test_a_damaged_file_is_measured_anew(tmp_path, text):
    measured.costs_of(None, INFO, None, None, tmp_path)
    (file,) = (tmp_path / "costs").iterdir()
    file.write_text(text)
    assert measured.costs_of(None, INFO, None, None, tmp_path) == FAST


@pytest.mark.usefixtures("results")
def test_a_place_that_cannot_be_written_is_no_harm(tmp_path):
    (tmp_path / "costs").write_text("a file")
    assert measured.costs_of(None, INFO, None, None, tmp_path) == SLOW


def test_real_passes(target_weights, draft_weights, tmp_path):
    pair = CachedModel(target_weights), INFO, CachedModel(draft_weights), DRAFT
    first = measured.costs_of(*pair, tmp_path)
    again = measured.costs_of(*pair, tmp_path)
    for (_, before), (_, after) in zip(first.verify, again.verify, strict=True):
        assert 0 < after <= before
