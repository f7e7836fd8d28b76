"""The first sight of the page fits its screen: nothing overlaps or is cut, the transport is in sight, the text has its share."""

from pathlib import Path

import pytest
from ui.scripted import ReadyStudio

STUDIO = ReadyStudio
pytestmark = pytest.mark.browser

SCREENS = ((1280, 800), (1920, 1080), (390, 844))
LEAST_TEXT = 0.35  # of the screen
MOST_CONTROLS, MOST_WORDS = 28, 120

SEEN = Path(__file__).with_name("seen.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_first_view_fits_each_screen(open_page, url, language, theme):
    page = open_page(locale=language, color_scheme=theme, reduced_motion="reduce")
    page.goto(url)
    page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
    page.locator("#sd-view .sd-plot .main-svg").first.wait_for(state="attached")
    page.wait_for_function(f"document.documentElement.lang === '{language}'")
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        assert page.evaluate(SEEN, "covered") == [], width
        assert page.evaluate(SEEN, "cut") == [], width
        transport = page.locator("#sd-view .sd-transport").bounding_box()
        assert transport["y"] + transport["height"] <= height, width
        speedup = page.locator("#sd-view .sd-number-speedup").bounding_box()
        assert 0 <= speedup["y"] < speedup["y"] + speedup["height"] <= height, width
        assert page.locator("#sd-view .sd-answer").bounding_box()["y"] >= 0, width
        assert share_of_text(page) >= LEAST_TEXT, width


def test_the_first_view_has_few_controls(open_page, url):
    page = open_page(reduced_motion="no-preference")
    page.goto(url)
    page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
    controls, said = page.evaluate(SEEN, "counted")
    assert len(controls) <= MOST_CONTROLS, controls
    assert len(said) <= MOST_WORDS, said


def share_of_text(page):
    return page.locator("#sd-view .sd-texts").evaluate(
        "e => e.clientWidth * e.clientHeight / (innerWidth * innerHeight)"
    )
