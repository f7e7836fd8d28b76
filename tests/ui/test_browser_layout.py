"""The first sight of the page fits its screen: nothing overlaps or is cut, the transport is in sight, the text has its share."""

from __future__ import annotations

import pytest
from ui.served import launched
from ui.test_browser import ReadyStudio

from specdemo.config.settings import AppSettings

pytestmark = pytest.mark.browser

SCREENS = ((1280, 800), (1920, 1080), (390, 844))
LEAST_TEXT = 0.35  # of the screen
MOST_CONTROLS, MOST_WORDS = 28, 120

# The visible part of the page: its elements within the screen and within the areas that scroll around them.
SEEN = """() => {
  const inside = (e, r) => {
    const [x, y] = [(r.left + r.right) / 2, (r.top + r.bottom) / 2];
    if (x < 0 || y < 0 || x > innerWidth || y > innerHeight) return false;
    for (let box = e.parentElement; box; box = box.parentElement) {
      if (getComputedStyle(box).overflow === "visible") continue;
      const b = box.getBoundingClientRect();
      if (x < b.left || x > b.right || y < b.top || y > b.bottom) return false;
    }
    return true;
  };
  const seen = (e) => {
    const r = e.getBoundingClientRect();
    return e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && r.width > 2 && r.height > 2 && inside(e, r);
  };
  const name = (e) => `${e.tagName} ${e.id || e.className} ${(e.innerText || e.ariaLabel || "").slice(0, 40)}`;
  const all = [...document.querySelectorAll("body *")].filter(seen);
"""
CONTROLS = 'a[href], button, input, select, textarea, summary, [role=slider], [tabindex="0"]:not(.sd-token, [role=region])'
COVERED = (
    SEEN
    + f"""
  return all.filter((e) => e.matches({CONTROLS!r}) || e.matches(".sd-headline, .sd-badge, .sd-count, .sd-picture-said")).filter((e) => {{
    const r = e.getBoundingClientRect();
    const on = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
    return on && !e.contains(on) && !on.contains(e) && !on.closest("label")?.contains(e);
  }}).map(name);
}}"""
)
CUT = (
    SEEN
    + """
  return all.filter((e) => {
    const style = getComputedStyle(e);
    if (![...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) return false;
    const wide = style.overflowX === "hidden" && e.scrollWidth > e.clientWidth + 1 && style.textOverflow !== "ellipsis";
    if (style.webkitLineClamp !== "none") return false; // it ends with an ellipsis
    return wide || (style.overflowY === "hidden" && e.scrollHeight > e.clientHeight + 2);
  }).map(name);
}"""
)
COUNTED = (
    SEEN
    + f"""
  const text = (e) => [...e.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent).join(" ");
  const said = all.filter((e) => !e.closest(".sd-answer, .sd-plain-text, .sd-asked, .sd-guesses, select, svg"));
  return [
    all.filter((e) => e.matches({CONTROLS!r}) && !e.disabled).map(name),
    said.flatMap((e) => text(e).split(/\\s+/).filter((word) => /\\p{{L}}/u.test(word))),
  ];
}}"""
)


@pytest.fixture(scope="module")
def url():
    with launched(ReadyStudio(AppSettings())) as address:
        yield address


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_first_sight_fits_each_screen(open_page, url, language, theme):
    page = open_page(locale=language, color_scheme=theme, reduced_motion="reduce")
    page.goto(url)
    page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
    page.locator("#sd-view .sd-plot .main-svg").first.wait_for(state="attached")
    page.wait_for_function(f"document.documentElement.lang === '{language}'")
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        assert page.evaluate(COVERED) == [], width
        assert page.evaluate(CUT) == [], width
        transport = page.locator("#sd-view .sd-transport").bounding_box()
        assert transport["y"] + transport["height"] <= height, width
        assert share_of_text(page) >= LEAST_TEXT, width


def test_the_first_sight_asks_little(open_page, url):
    page = open_page(reduced_motion="no-preference")
    page.goto(url)
    page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
    controls, said = page.evaluate(COUNTED)
    assert len(controls) <= MOST_CONTROLS, controls
    assert len(said) <= MOST_WORDS, said


def share_of_text(page):
    """Return the fraction of the screen that the text has."""
    return page.locator("#sd-view .sd-texts").evaluate(
        "e => e.clientWidth * e.clientHeight / (innerWidth * innerHeight)"
    )
