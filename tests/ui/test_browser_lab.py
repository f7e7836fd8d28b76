"""The lab in a real Chromium: sliders move the curves, k is dragged and stepped, runs give points."""

from dataclasses import replace

import pytest
from ui.scripted import IdleStudio

from specdemo.engine.cost import CostProfile

pytestmark = pytest.mark.browser

VERDICT = ".sd-lab-verdict"
# Points or vertices that the chart draws under a name of its key
POINTS = """(name) => (document.querySelector('.sd-cost-picture .js-plotly-plot')?.data ?? [])
    .filter((one) => one.name === name).reduce((all, one) => all + one.x.length, 0)"""
COSTS = CostProfile(((1, 0.02), (5, 0.03), (32, 0.06)), 0.002)


class PricedStudio(IdleStudio):
    """A studio whose machine has measured costs."""

    about = replace(
        IdleStudio.about,
        machine={"name": "here", "verify": COSTS.verify, "draft": COSTS.draft_step},
    )


STUDIO = PricedStudio


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


def test_the_draft_length_is_changed_by_keys_and_by_dragging(page):
    grip = page.locator(".sd-cost-grip")
    grip.focus()
    page.keyboard.press("End")
    assert grip.input_value() == "16"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert grip.input_value() == "15"
    assert page.locator("#sd-lab-k").input_value() == "15"
    box = grip.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 15 / 16, box["y"] + 11)
    page.mouse.down()
    page.mouse.move(box["x"], box["y"] + 11)
    page.mouse.up()
    assert grip.input_value() == "1"


def test_a_visitor_guesses_before_the_curve_shows(page):
    page.get_by_role("button", name="Guess first").click()
    page.wait_for_function(f"({POINTS})('chain, modelled') === 0")
    assert page.locator(".sd-cost-legend li").count() == 0
    assert page.locator(".sd-terms").is_hidden()
    page.locator(".sd-cost-grip").press("ArrowRight")
    page.get_by_role("button", name="Show the curve").click()
    page.wait_for_function(f"({POINTS})('chain, modelled') > 0")
    assert "k = " in page.locator(VERDICT).inner_text()


def test_the_run_on_the_first_tab_gives_points_on_a_phone_too(page):
    page.get_by_role("button", name="Use the run on the Play tab").click()
    page.locator(
        "#sd-lab .sd-lab-pick option:checked", has_text="the run on the Play tab"
    ).wait_for(state="attached")
    assert page.evaluate(POINTS, "steps of one size, recorded") > 1
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.querySelector('.sd-cost-picture').clientWidth < 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
