"""The lab in a real Chromium: sliders move the curves, k is dragged and stepped, runs and experiments give points."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from errors import reported
from ui.served import launched

from specdemo.config.settings import AppSettings
from specdemo.engine.cost import CostProfile
from specdemo.session.studio import Studio
from specdemo.session.work.lab import MeasuredRun
from specdemo.trace.events import ModelInfo
from specdemo.ui.tabs import lab

pytestmark = pytest.mark.browser

VERDICT = ".sd-lab-verdict"
# Points or vertices that the chart draws under a name of its key
POINTS = """(name) => (document.querySelector('.sd-cost-picture .js-plotly-plot')?.data ?? [])
    .filter((one) => one.name === name).reduce((all, one) => all + one.x.length, 0)"""
COSTS = CostProfile(((1, 0.02), (5, 0.03), (32, 0.06)), 0.002)


class PricedStudio(Studio):
    """A studio whose pair has costs and nothing else."""

    ready = True
    replay_only = None
    pair = SimpleNamespace(
        target=SimpleNamespace(info=ModelInfo("tiny", precision="nf4")), costs=COSTS
    )

    def start(self) -> None:
        pass

    def card(self, method):
        return None


def a_perfect_draft(_conversation, cancel):
    """Three results, then endless until it is stopped."""
    for lookahead in (0, 1, 2):
        drafted, seconds = 32 * lookahead, 2.0 / (1 + lookahead)
        lane = MeasuredRun(
            lookahead, 64, 64 + drafted, drafted, drafted, seconds, seconds, 64, lookahead == 2, 1
        )
        yield asdict(lane)
    cancel.wait(60)


def fails(_studio, _cancel):
    raise reported("It <b>broke</b>.", unaffected="All is well.", advice="Try again.")
    yield


@pytest.fixture(scope="module")
def url():
    kept = dict(lab.EXPERIMENTS)
    lab.EXPERIMENTS.update(perfect=lab._lanes(a_perfect_draft), random=fails)
    with launched(PricedStudio(AppSettings())) as address:
        yield address
    lab.EXPERIMENTS.update(kept)


@pytest.fixture
def page(open_page, url):
    page = open_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{url}?tab=lab")
    page.wait_for_function(f"({POINTS})('steps of one size, recorded') > 0")
    return page


def test_a_recorded_run_sets_the_model_and_sliders_change_it(page):
    assert page.locator("#sd-lab-preset").input_value() == "run"
    assert page.locator("#sd-lab .sd-tag-recorded").count() == 2
    said = page.locator(VERDICT).inner_text()
    page.get_by_label("Chance that a drafted token is kept").fill("0.5")
    assert page.locator(VERDICT).inner_text() != said
    assert page.locator("#sd-lab-preset").input_value() == "own"
    page.locator("#sd-lab-preset").select_option("batch")
    assert "No lookahead pays" in page.locator(VERDICT).inner_text()
    page.locator("#sd-lab-preset option[value=machine]:not([disabled])").wait_for(state="attached")
    page.locator("#sd-lab-preset").select_option("machine")
    assert page.locator("#sd-lab-c + *, output[for=sd-lab-c]").first.inner_text() == "0.10"
    page.get_by_text("Trees and overlap").click()
    page.get_by_label("Trees as well").check()
    page.get_by_label("Draft while the target is busy").check()
    page.wait_for_function(f"({POINTS})('tree, modelled') > 0")
    assert page.locator(".sd-cost-legend", has_text="tree, modelled").count() == 1
    assert "max(" in page.locator(".sd-terms").inner_text()


def test_k_is_stepped_by_keys_and_dragged(page):
    grip = page.locator(".sd-cost-grip")
    grip.focus()
    page.keyboard.press("End")
    assert grip.get_attribute("aria-valuenow") == "16"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert grip.get_attribute("aria-valuenow") == "15"
    assert page.locator("#sd-lab-k").input_value() == "15"
    box = page.locator(".sd-cost-picture").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + 100)
    page.mouse.up()
    assert grip.get_attribute("aria-valuenow") == "1"


def test_one_guesses_before_the_curve_shows(page):
    page.get_by_role("button", name="Guess first").click()
    page.wait_for_function(f"({POINTS})('chain, modelled') === 0")
    assert page.locator(".sd-cost-legend li").count() == 0
    assert page.locator(".sd-terms").is_hidden()
    page.locator(".sd-cost-grip").press("ArrowRight")
    page.get_by_role("button", name="Show the curve").click()
    page.wait_for_function(f"({POINTS})('chain, modelled') > 0")
    assert "k = " in page.locator(VERDICT).inner_text()


def test_what_cannot_be_measured_is_told_and_the_run_stays(page, tmp_path):
    page.get_by_role("button", name="Use my last run").click()
    page.get_by_text("There is no live run yet.").wait_for()
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text("hello", encoding="utf-8")
    page.locator("#sd-lab input[type=file]").set_input_files(foreign)
    page.get_by_text("foreign.jsonl cannot be read as a trace.").wait_for()
    assert page.evaluate(POINTS, "steps of one size, recorded") > 1


def test_experiments_give_points_stop_and_fail_in_sentences(page):
    page.get_by_role("button", name="Perfect draft").click()
    page.locator(".sd-tried-perfect tbody tr").nth(2).wait_for()
    page.wait_for_function(f"({POINTS})('perfect draft, measured') === 2")
    page.get_by_role("button", name="Stop the experiment").click()
    page.locator(".sd-tried-perfect", has_text="Stopped. What was measured stays.").wait_for()
    assert "At lookahead 2 a near-tie" in page.locator(".sd-tried-perfect").inner_text()
    page.get_by_role("button", name="Random draft").click()
    problem = page.locator(".sd-tried-random .sd-problem")
    problem.wait_for()
    assert "It <b>broke</b>." in problem.inner_text()
    assert page.locator(".sd-tried-perfect tbody tr").count() == 3
    assert "0.85 exact" in page.locator(".sd-tried-look_back").inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.querySelector('.sd-cost-picture').clientWidth < 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
