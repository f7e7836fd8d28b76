"""The lab and the lessons in a real Chromium.

Lab: sliders move the curves, k is dragged and stepped, runs give points. Lessons: predict, reveal, see the step in the
run, and open it in the Play tab.
"""

from dataclasses import replace

import pytest
from ui.scripted import IdleStudio

from specdemo.config.strings import strings
from specdemo.engine.cost import CostProfile

pytestmark = pytest.mark.browser

WORDS = strings("lessons").WORDS
VERDICT = ".sd-lab-verdict"
# Points or vertices that the chart draws under a name of its key
POINTS = """(name) => (document.querySelector('.sd-cost-picture .js-plotly-plot')?.data ?? [])
    .filter((one) => one.name === name).reduce((all, one) => all + one.x.length, 0)"""
BLOCKED = "Storage.prototype.setItem = () => { throw new Error('blocked'); }"
COSTS = CostProfile(((1, 0.02), (5, 0.03), (32, 0.06)), 0.002)


class PricedStudio(IdleStudio):
    """A studio whose machine has measured costs."""

    about = replace(
        IdleStudio.about,
        machine={"name": "here", "verify": COSTS.verify, "draft": COSTS.draft_step},
    )


STUDIO, QUERY = PricedStudio, "?tab=lab"


@pytest.fixture
def lab(page):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function(f"({POINTS})('steps of one size, recorded') > 0")
    return page


def test_a_recorded_run_sets_the_model_and_sliders_change_it(lab):
    assert lab.locator("#sd-lab-preset").input_value() == "run"
    assert lab.locator("#sd-lab .sd-tag-recorded").count() == 2
    said = lab.locator(VERDICT).inner_text()
    lab.get_by_label("Chance that a drafted token is kept").fill("0.5")
    assert lab.locator(VERDICT).inner_text() != said
    assert lab.locator("#sd-lab-preset").input_value() == "own"
    lab.locator("#sd-lab-preset").select_option("batch")
    assert "No lookahead pays" in lab.locator(VERDICT).inner_text()
    lab.locator("#sd-lab-preset option[value=machine]:not([disabled])").wait_for(state="attached")
    lab.locator("#sd-lab-preset").select_option("machine")
    assert lab.locator("#sd-lab-c + *, output[for=sd-lab-c]").first.inner_text() == "0.10"
    lab.get_by_text("Trees and overlap").click()
    lab.get_by_label("Trees as well").check()
    lab.get_by_label("Draft while the target is busy").check()
    lab.wait_for_function(f"({POINTS})('tree, modelled') > 0")
    assert lab.locator(".sd-cost-legend", has_text="tree, modelled").count() == 1
    assert "max(" in lab.locator(".sd-terms").inner_text()


def test_the_draft_length_is_changed_by_keys_and_by_dragging(lab):
    grip = lab.locator(".sd-cost-grip")
    grip.focus()
    lab.keyboard.press("End")
    assert grip.input_value() == "16"
    lab.keyboard.press("ArrowRight")
    lab.keyboard.press("ArrowLeft")
    assert grip.input_value() == "15"
    assert lab.locator("#sd-lab-k").input_value() == "15"
    box = grip.bounding_box()
    lab.mouse.move(box["x"] + box["width"] * 15 / 16, box["y"] + 11)
    lab.mouse.down()
    lab.mouse.move(box["x"], box["y"] + 11)
    lab.mouse.up()
    assert grip.input_value() == "1"


def test_a_visitor_guesses_before_the_curve_shows(lab):
    lab.get_by_role("button", name="Guess first").click()
    lab.wait_for_function(f"({POINTS})('chain, modelled') === 0")
    assert lab.locator(".sd-cost-legend li").count() == 0
    assert lab.locator(".sd-terms").is_hidden()
    lab.locator(".sd-cost-grip").press("ArrowRight")
    lab.get_by_role("button", name="Show the curve").click()
    lab.wait_for_function(f"({POINTS})('chain, modelled') > 0")
    assert "k = " in lab.locator(VERDICT).inner_text()


def test_the_run_on_the_first_tab_gives_points_on_a_phone_too(lab):
    lab.get_by_role("button", name="Use the run on the Play tab").click()
    lab.locator("#sd-lab .sd-lab-pick option:checked", has_text="the run on the Play tab").wait_for(
        state="attached"
    )
    assert lab.evaluate(POINTS, "steps of one size, recorded") > 1
    lab.set_viewport_size({"width": 390, "height": 844})
    lab.wait_for_function("document.querySelector('.sd-cost-picture').clientWidth < 390")
    assert lab.evaluate("document.documentElement.scrollWidth") <= 391


def open_lesson(page, url, number):
    page.goto(f"{url}?tab=lessons&lesson={number}")
    page.locator(".sd-lesson .sd-place", has_text="step 0").wait_for()


def answer(question):
    """Guess by keyboard, then reveal."""
    if question.locator("[type=radio]").count():
        question.locator("[type=radio]").first.press("Space")
    else:
        question.locator("[type=range]").press("ArrowRight")
    question.get_by_role("button", name="Reveal").click()
    question.locator(".sd-lesson-verdict").wait_for()


def test_a_visitor_predicts_before_the_run_answers_and_progress_is_kept(open_page, url):
    page = open_page()
    open_lesson(page, url, 2)
    questions = page.locator(".sd-question-box").all()
    assert len(questions) == 3
    for question in questions:
        assert question.get_by_role("button", name="Reveal").is_disabled()
        assert question.locator(".sd-evidence").count() == 0
    answer(questions[0])
    assert "drafted tokens were kept" in questions[0].locator(".sd-evidence").inner_text()
    assert "recorded" in questions[0].locator(".sd-evidence").inner_text()
    said = page.locator(".sd-lessons > [aria-live]").text_content()
    assert said
    assert said in questions[0].locator(".sd-evidence").inner_text()
    assert page.evaluate("document.activeElement.className") == "sd-lesson-verdict"
    answer(questions[1])
    assert questions[1].locator(".sd-option-true").inner_text() == "They are dropped without a test"
    shown = questions[1].get_by_role("button", name="Show step")
    step = shown.inner_text().split()[2]
    shown.click()
    page.locator(".sd-lesson .sd-place", has_text=f"step {step} of").wait_for()
    assert page.locator(".sd-lesson .sd-answer .sd-unreached").count() > 0
    assert page.locator(".sd-tick", has_text="✓").count() == 0
    answer(questions[2])
    page.locator("[aria-current] .sd-tick", has_text="✓").wait_for()

    page.get_by_role("button", name="Next: Why nothing changes").click()
    page.wait_for_function("document.activeElement.textContent === 'Why nothing changes'")
    page.goto(f"{url}?tab=lessons")
    page.locator(".sd-lesson h2", has_text="Why nothing changes").wait_for()
    assert page.locator(".sd-tick", has_text="✓").count() == 1
    page.get_by_role("button", name="Forget progress").click()
    assert page.locator(".sd-tick", has_text="✓").count() == 0


def test_three_words_are_drawn_by_both_rules_and_the_lesson_sets_up_the_play_tab(open_page, url):
    page = open_page()
    open_lesson(page, url, 3)
    three = page.locator(".sd-three")
    column = three.locator("tbody td:nth-of-type(6) .sd-three-number")
    assert column.all_inner_texts() == ["0.50", "0.30", "0.20"]
    three.get_by_role("button", name="Draw 1", exact=True).click()
    three.get_by_text("The draft says").wait_for()
    three.get_by_role("button", name="Draw 10,000").click()
    drawn = three.locator("tbody td:nth-of-type(7) .sd-three-number").all_inner_texts()
    assert abs(float(drawn[0]) - 0.5) < 0.05
    three.get_by_label("Make the mistake").check()
    three.get_by_text("What comes out is no longer p").wait_for()
    assert column.all_inner_texts() == ["0.35", "0.39", "0.26"]
    three.get_by_label("draft, weight of clear").fill("0")
    assert three.locator("tbody tr:nth-of-type(2) td").nth(2).inner_text() == "\N{EN DASH}"
    page.get_by_role("button", name=WORDS["try"]).click()
    page.locator("#sd-prompt textarea").wait_for()
    page.wait_for_function(
        "document.querySelector('#sd-prompt textarea').value.startsWith('Write a short story')"
    )
    page.wait_for_function("document.querySelector('#sd-method input').value === 'Draft model'")


def test_lessons_work_on_a_phone_without_storage_and_without_a_run(open_page, url):
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.add_init_script(BLOCKED)
    page.route("**/20-larger-model.jsonl", lambda route: route.abort())
    page.goto(f"{url}?tab=lessons&lesson=2")
    page.locator(".sd-lesson-problem", has_text="could not be read").wait_for()
    question = page.locator(".sd-question-box").first
    assert question.locator("output").evaluate("shown => shown.scrollWidth <= shown.clientWidth")
    question.locator("[type=range]").press("ArrowRight")
    question.get_by_role("button", name="Reveal").click()
    question.get_by_role("alert").wait_for()
    page.unroute("**/20-larger-model.jsonl")
    answer(question)
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
