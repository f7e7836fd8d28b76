"""The lessons in a real Chromium: predict, reveal, see the step in the run, and open it in the Play tab."""

import pytest
from ui.scripted import IdleStudio

from specdemo.config.strings import strings

WORDS = strings("lessons").WORDS

STUDIO = IdleStudio
pytestmark = pytest.mark.browser

BLOCKED = "Storage.prototype.setItem = () => { throw new Error('blocked'); }"


@pytest.fixture
def page(open_page):
    return open_page()


def open_lesson(page, url, number):
    page.goto(f"{url}?tab=lessons&lesson={number}")
    page.locator(".sd-lesson .sd-place", has_text="step 0").wait_for()


def answer(question, guess="ArrowRight"):
    """Guess by keyboard, then reveal."""
    if question.locator("[type=radio]").count():
        question.locator("[type=radio]").first.press("Space")
    else:
        question.locator("[type=range]").press(guess)
    question.get_by_role("button", name="Reveal").click()
    question.locator(".sd-lesson-verdict").wait_for()


def test_a_visitor_predicts_before_the_run_answers_and_progress_is_kept(page, url):
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


def test_three_words_are_drawn_by_the_right_rule_and_by_the_wrong_one(page, url):
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


def test_a_lesson_sets_up_the_play_tab(page, url):
    open_lesson(page, url, 3)
    page.get_by_role("button", name=WORDS["try"]).click()
    page.locator("#sd-prompt textarea").wait_for()
    page.wait_for_function(
        "document.querySelector('#sd-prompt textarea').value.startsWith('Write a short story')"
    )
    page.wait_for_function("document.querySelector('#sd-method input').value === 'Draft model'")


def test_lessons_work_on_a_phone_without_storage_and_without_a_run(page, url):
    page.set_viewport_size({"width": 390, "height": 844})
    page.add_init_script(BLOCKED)
    page.route("**/20-larger-model.jsonl", lambda route: route.abort())
    page.goto(f"{url}?tab=lessons&lesson=2")
    page.locator(".sd-lesson-problem", has_text="could not be read").wait_for()
    question = page.locator(".sd-question-box").first
    question.locator("[type=range]").press("ArrowRight")
    question.get_by_role("button", name="Reveal").click()
    question.get_by_role("alert").wait_for()
    page.unroute("**/20-larger-model.jsonl")
    answer(question)
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
