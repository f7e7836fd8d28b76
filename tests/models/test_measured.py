"""Costs are kept by machine and pair, only ever get better, and a damaged file is measured anew."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specdemo.engine.cost import CostProfile
from specdemo.engine.target import CachedModel
from specdemo.models import measured
from specdemo.trace.events import ModelInfo

INFO, DRAFT = ModelInfo("target", kernel="lean pass"), ModelInfo("draft")
SLOW, FAST = CostProfile(((1, 0.2), (5, 0.3)), 0.02), CostProfile(((1, 0.1), (5, 0.4)), 0.03)


@pytest.fixture
def results(monkeypatch):
    """What the next measurements find; and how many rounds each took."""
    found, rounds = [SLOW, FAST], []

    def measure(_target, _draft, repeats):
        rounds.append(repeats)
        return found.pop(0)

    monkeypatch.setattr(measured, "measure_costs", measure)
    return rounds


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
