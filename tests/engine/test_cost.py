"""The cost profile: interpolated, measured, and corrected by the run's own passes."""

from types import SimpleNamespace

import pytest
from conftest import VOCABULARY
from outcomes import chain
from transformers import GPT2Config, GPT2LMHeadModel

from specdemo.engine import cost
from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.clock import Sharing
from specdemo.engine.cost import (
    CONTEXT,
    DRAFTING,
    FAR_CONTEXT,
    MEASURED_ROWS,
    CostProfile,
    Costs,
    exact_rows,
    glance,
    measure_costs,
)
from specdemo.engine.target import CachedModel

PROFILE = CostProfile(((1, 0.020), (5, 0.024), (9, 0.040)), 0.002)


def test_costs_are_linear_between_points_and_behind_the_last():
    assert PROFILE.verify_seconds(1) == 0.020
    assert PROFILE.verify_seconds(3) == pytest.approx(0.022)
    assert PROFILE.verify_seconds(7) == pytest.approx(0.032)
    assert PROFILE.verify_seconds(11) == pytest.approx(0.048)
    assert CostProfile().verify_seconds(30) == 1.0


def test_measuring_gives_every_row_count_and_leaves_the_caches_empty(target_weights, draft_weights):
    target, draft = CachedModel(target_weights), CachedModel(draft_weights)
    profile = measure_costs(target, draft)
    assert [rows for rows, _ in profile.verify] == list(MEASURED_ROWS)
    times = [seconds for _, seconds in profile.verify]
    assert times == sorted(times)
    assert times[0] > 0
    assert [rows for rows, _ in profile.draft_rows] == list(DRAFTING)
    times = [profile.draft_step, *(seconds for _, seconds in profile.draft_rows)]
    assert times == sorted(times)
    assert times[0] > 0
    assert target.length == draft.length == 0
    assert measure_costs(target, None).draft_step is None
    assert max(MEASURED_ROWS) < VOCABULARY


@pytest.mark.parametrize("positions", [48, 300, 640])
def test_costs_are_measured_within_a_context_of_learned_positions(positions):
    sizes = {"vocab_size": 64, "n_positions": positions, "n_embd": 8, "n_layer": 1, "n_head": 2}
    config = GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)
    target, draft = (CachedModel(ModuleDecoder(GPT2LMHeadModel(config).eval())) for _ in range(2))
    profile = measure_costs(target, draft, 1)
    measured = [rows for rows in MEASURED_ROWS if rows < positions]
    assert [rows for rows, _ in profile.verify] == measured
    assert profile.draft_step > 0
    assert glance(target, draft).draft_step > 0
    assert exact_rows(target, 2) in (1, 2)
    assert target.length == draft.length == 0


def test_on_a_slow_machine_passes_over_few_rows_are_measured_again(monkeypatch):
    clock, passes = [0.0], []

    def forward(_first, guess):
        passes.append(1 + len(guess))
        clock[0] += 0.1 * passes[-1]

    monkeypatch.setattr(cost.time, "perf_counter", lambda: clock[0])
    target = SimpleNamespace(
        context=None, read=lambda _ids: None, rollback=lambda _length: None, forward=forward
    )
    measure_costs(target, None, 3, (1, 2, 8, 32))
    assert [passes.count(rows) for rows in (1, 2, 8, 32)] == [3, 3, 3, 2]  # one each warms up


@pytest.mark.parametrize("patience", [9.0, 0.0])
def test_a_pass_that_is_recorded_or_compiled_at_first_is_counted_warm(monkeypatch, patience):
    """Also where measuring has no time left after the first round, as while CUDA graphs are recorded."""
    clock, seen = [0.0], set()

    def forward(_first, guess):
        rows = 1 + len(guess)
        clock[0] += 0.001 * rows if rows in seen else 5.0
        seen.add(rows)

    monkeypatch.setattr(cost.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(cost, "MEASURE_SECONDS", patience)
    target = SimpleNamespace(
        context=None, read=lambda _ids: None, rollback=lambda _length: None, forward=forward
    )
    profile = measure_costs(target, None, 1, (1, 2, 8))
    assert profile.verify == tuple((rows, pytest.approx(0.001 * rows)) for rows in (1, 2, 8))


def test_a_longer_text_costs_more_in_every_row():
    profile = CostProfile(PROFILE.verify, 0.002, per_cached=1e-5, per_cached_row=1e-6)
    assert profile.verify_seconds(5, CONTEXT) == profile.verify_seconds(5) == 0.024
    assert profile.verify_seconds(5, 10) == 0.024
    assert profile.verify_seconds(1, CONTEXT + 100) == pytest.approx(0.021)
    assert profile.verify_seconds(5, CONTEXT + 100) == pytest.approx(0.0254)
    costs = Costs(profile)
    costs.cached = CONTEXT + 100
    assert costs.verify_seconds(4) == pytest.approx(0.0254)


def test_of_two_measurements_each_point_is_the_faster_one():
    noisy = CostProfile(((1, 0.030), (5, 0.023), (9, 0.050)), 0.001, 3.0, 0.5)
    best = PROFILE.at_best(noisy)
    assert best.verify == ((1, 0.020), (5, 0.023), (9, 0.040))
    assert (best.draft_step, best.per_cached) == (0.001, 0.0)
    # A slow pass over a short text hides the slope; the time over a long text decides.
    steep = CostProfile(((1, 0.020), (8, 0.024)), None, 1e-5, 1e-6)
    flat = CostProfile(((1, 0.024), (8, 0.028)), None, 1e-6, 0.0)
    best = steep.at_best(flat)
    assert best.verify == steep.verify
    assert best.verify_seconds(1, FAR_CONTEXT) == pytest.approx(flat.verify_seconds(1, FAR_CONTEXT))
    assert best.verify_seconds(8, FAR_CONTEXT) == pytest.approx(flat.verify_seconds(8, FAR_CONTEXT))
    assert PROFILE.at_best(CostProfile(((1, 0.5),))).draft_step == 0.002
    drafting = CostProfile(PROFILE.verify, 0.002, draft_rows=((4, 0.0026), (8, 0.003), (16, 0.005)))
    faster = CostProfile(PROFILE.verify, 1e-9, draft_rows=((4, 1e-9), (8, 1.0)))
    assert drafting.at_best(faster).draft_rows == ((4, 1e-9), (8, 0.003), (16, 0.005))


def test_a_slower_machine_scales_every_prediction():
    costs = Costs(PROFILE)
    assert costs.verify_seconds(0) == 0.020
    for _ in range(100):
        costs.observe(chain([0.5] * 4, 0, 0.0, 0.048))
    assert costs.verify_seconds(0) == pytest.approx(0.040, rel=0.01)
    assert costs.row_seconds(2) == pytest.approx(0.002, rel=0.01)
    assert costs.plain_rate() == pytest.approx(25, rel=0.01)


def test_each_run_of_a_shared_pass_pays_for_all_rows():
    costs = Costs(PROFILE)
    alone = costs.rows_seconds(4, 2)
    costs.observe(chain([0.5], 0, 0.0, PROFILE.verify_seconds(9), sharing=Sharing(runs=3, rows=9)))
    assert costs.scale == pytest.approx(1.0)  # as expensive as nine rows
    assert costs.draft_step == pytest.approx(3 * PROFILE.draft_step)
    assert costs.verify_seconds(2) == pytest.approx(PROFILE.verify_seconds(9))
    assert costs.plain_rate() == pytest.approx(1 / PROFILE.verify_seconds(3))
    wanted = PROFILE.verify_seconds(9) - PROFILE.verify_seconds(6)
    assert costs.rows_seconds(4, 2)[0][0] == pytest.approx(wanted)
    costs.observe(chain([0.5] * 1, 0, 0.0, PROFILE.verify_seconds(2)))
    assert costs.rows_seconds(4, 2) == alone


def test_one_disturbed_step_does_not_spoil_the_scale():
    costs = Costs(PROFILE)
    costs.observe(chain([0.5] * 4, 0, 0.0, 5.0))
    assert costs.verify_seconds(0) < 0.030


def test_the_rate_to_beat_is_at_least_plain_decoding():
    costs = Costs(PROFILE)
    assert costs.rate() == 50
    for _ in range(200):
        costs.observe(chain([0.5] * 4, 2, 0.0, 0.024))
    assert costs.rate() == pytest.approx(125, rel=0.02)
    slow = Costs(PROFILE)
    for _ in range(200):
        slow.observe(chain([0.5] * 4, 0, 0.0, 0.024))
    assert slow.rate() == pytest.approx(slow.plain_rate())


def test_drafting_costs_follow_what_is_measured():
    costs = Costs(PROFILE)
    for _ in range(400):
        costs.observe_draft(0.004)
    assert costs.draft_step == pytest.approx(0.004, rel=0.01)
    costs.observe_draft(10.0)
    assert costs.draft_step < 0.005


def test_a_shared_draft_pass_costs_what_its_rows_take():
    """Eight rows of a draft may take little more than one: the drafts of eight runs are then nearly free."""
    profile = CostProfile(PROFILE.verify, 0.002, draft_rows=((4, 0.0026), (8, 0.003)))
    costs = Costs(profile, together=8)
    assert costs.draft_step == pytest.approx(0.003)
    assert profile.draft_growth(2) == pytest.approx(1.1)
    assert Costs(PROFILE, together=8).draft_step == pytest.approx(8 * 0.002)  # nothing was measured
    for _ in range(400):
        costs.observe_draft(0.006 / 8, runs=8)  # the run's part of a pass that needs twice the time
    assert costs.draft_step == pytest.approx(0.006, rel=0.01)
    for _ in range(400):
        costs.observe_draft(0.0026 / 4, runs=4)  # only four of the eight draft
    assert costs.draft_step == pytest.approx(0.003, rel=0.01)


def test_each_conversation_of_a_shared_pass_reads_its_own_text():
    profile = CostProfile(((1, 0.020), (8, 0.024)), None, per_cached=1e-5, per_cached_row=1e-6)
    far = CONTEXT + 100
    assert profile.verify_seconds(8, far, runs=8) == pytest.approx(0.024 + 8 * 0.001)
    assert profile.verify_seconds(8, far) == pytest.approx(0.024 + 0.001 + 7 * 0.0001)
    costs = Costs(profile, together=8)
    costs.cached = far
    assert costs.verify_seconds(0) == pytest.approx(0.032)


def test_the_rate_of_a_run_is_set_again_when_runs_share_its_passes():
    costs = Costs(PROFILE)
    for _ in range(200):
        costs.observe(chain([0.5] * 4, 2, 0.0, 0.024))
    alone = costs.rate()
    costs.observe(
        chain([0.5] * 4, 2, 0.0, PROFILE.verify_seconds(40), sharing=Sharing(runs=8, rows=40))
    )
    assert costs.rate() < alone * PROFILE.verify_seconds(1) / PROFILE.verify_seconds(8) * 1.05
