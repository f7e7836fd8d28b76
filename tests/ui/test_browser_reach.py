"""Accessibility, class links and a projector: axe finds nothing serious, keys and links work as documented.

The first sight of the page fits its screen: nothing overlaps or is cut, the transport is in sight, the text has its share.
"""

from pathlib import Path

import pytest
from ui.scripted import ReadyStudio

from specdemo.config.settings import AppSettings
from specdemo.config.strings import load
from specdemo.trace.replay import recorded_runs
from specdemo.ui import words

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
STUDIO, MOTION = ReadyStudio, "reduce"
pytestmark = pytest.mark.browser

TABS = ("play", "race", "proposals", "lab", "lessons", "methods")
SERIOUS = ("serious", "critical")
# Whether the letters at a chart's axis have this size.
TICKS = """(size) => {
  const tick = document.querySelector("#sd-view .sd-plot .xtick text");
  return tick && getComputedStyle(tick).fontSize === size;
}"""


SCREENS = ((1280, 800), (1920, 1080), (390, 844))
LEAST_TEXT = 0.35  # of the screen
MOST_CONTROLS, MOST_WORDS = 28, 120

SEEN = Path(__file__).with_name("seen.js").read_text(encoding="utf-8")
# Counts without the picture over the page that loads, and in the task that shows the first token: the opening run
# plays, and later its latest rejected token is explained.
COUNT_FIRST_VIEW = f"""new MutationObserver((_, observer) => {{
  if (!document.querySelector("#sd-view .sd-answer .sd-token")) return;
  observer.disconnect();
  document.getElementById("sd-first")?.remove();
  window.firstView = ({SEEN})("counted");
}}).observe(document, {{ childList: true, subtree: true }});"""


@pytest.fixture
def visit(open_page, url):
    """Open the page at an address; return it when the opening run is complete. options: of its context"""

    def visited(query="", **options):
        page = open_page(reduced_motion="reduce", **options)
        page.goto(url + query)
        page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
        return page

    return visited


def share_of_text(page):
    return page.locator("#sd-view .sd-texts").evaluate(
        "e => e.clientWidth * e.clientHeight / (innerWidth * innerHeight)"
    )


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_first_view_fits_each_screen(visit, language):
    page = visit(locale=language)
    page.locator("#sd-view .sd-plot .main-svg").first.wait_for(state="attached")
    page.wait_for_function(f"document.documentElement.lang === '{language}'")
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        for dark in (True, False):
            page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
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
    page.add_init_script(COUNT_FIRST_VIEW)
    page.goto(url)
    controls, said = page.wait_for_function("window.firstView").json_value()
    assert len(controls) <= MOST_CONTROLS, controls
    assert len(said) <= MOST_WORDS, said


def run(page):
    """Run a prompt to its end."""
    page.locator("#sd-prompt textarea").fill("hello")
    page.locator("#sd-run").click()
    page.locator(".sd-badge", has_text="measured").wait_for()
    page.wait_for_function("!document.querySelector('.sd-stage').matches('.sd-running')")


# Parts of the page in the order in which the keyboard goes through them.
PARTS = (
    "#sd-header",
    "#sd-tabs [role=tablist]",
    "#sd-ask",
    "#sd-starts",
    ".sd-status",
    ".sd-texts",
    ".sd-foot",
    ".sd-right",
)
# Return the focused element's part, whether it is visible and whether it starts the player; null at the end of the page.
STOP = """(parts) => {
  const at = document.activeElement;
  const part = parts.findIndex((one) => at.closest(one));
  return at === document.body ? null : [part, at.checkVisibility() && at.clientWidth + at.clientHeight > 0, at.matches(".sd-move-play")];
}"""


def test_the_keyboard_goes_through_the_page_in_its_order(page):
    page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
    stops = []
    while len(stops) < 60:
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP, PARTS)
        if stop is None:
            break
        stops.append(stop)
    parts = [part for part, *_ in stops]
    assert parts == sorted(parts)
    assert set(parts) == set(range(len(PARTS)))
    assert all(visible for _, visible, _ in stops)
    assert [play for *_, play in stops].index(True) < 35


# Return groups of the drawer that are lower than their content.
CUT = """() => [...document.querySelector("#sd-controls").children]
  .filter((group) => group.checkVisibility() && group.scrollHeight > group.clientHeight + 1)
  .map((group) => group.innerText)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_tab(visit, theme):
    page = visit(f"?theme={theme}")
    found = []
    for tab in TABS:
        page.locator(f"#sd-tab-{tab}-button").click()
        page.locator(f"#sd-tab-{tab}").wait_for()
        part = None if tab == "play" else f"#sd-tab-{tab}"  # the page around the tabs, once
        if tab == "play":
            page.locator("#sd-settings").click()  # the drawer is checked too
            page.get_by_role("button", name="More settings").click()
            page.locator("#sd-exact").wait_for()
            assert page.evaluate(CUT) == []
        violations = axe.Axe().run(page, context=part).response["violations"]
        found += [
            f"{tab}: {violation['id']}: {node['html'][:160]} {node['any'][:1]}"
            for violation in violations
            if violation["impact"] in SERIOUS
            for node in violation["nodes"]
        ]
    assert not found, "\n".join(found)


def test_a_run_is_shown_before_the_page_has_started_unless_the_link_is_to_another_part(
    open_page, url
):
    page = open_page(locale="de-DE", color_scheme="dark")
    held = []
    page.route("**/assets/*.js", lambda route: held.append(route))  # Gradio's own scripts
    page.goto(url, wait_until="commit")
    first = page.locator("#sd-first")
    page.locator("html[lang=de] #sd-first").wait_for()
    assert first.locator(".sd-asked").inner_text() == recorded_runs()[0].prompt
    first.locator(".sd-accepted").nth(3).wait_for()  # it plays before Gradio has started
    assert first.locator(".sd-plain-text").inner_text().strip()
    translated = words.translations("de")
    assert first.locator(".sd-headline").inner_text() in translated.values()
    seen = "element => getComputedStyle(element).backgroundColor"
    assert first.evaluate(seen) == "rgb(19, 22, 25)"  # the dark page's
    for route in held:
        route.continue_()
    page.unroute("**/assets/*.js")
    page.locator("#sd-view .sd-answer .sd-token").first.wait_for()
    first.wait_for(state="detached")
    # A link to another part shows no first run.
    page.route("**/assets/*.js", lambda _: None)
    page.goto(url + "?tab=race", wait_until="commit")
    page.wait_for_function("document.body && document.querySelector('gradio-app')")
    assert page.locator("#sd-first").count() == 0


def test_a_class_link_fills_hides_runs_and_reports_impossible_values(visit):
    page = visit(
        "?prompt=A%20%26%20%3Cb%3E&lookahead=3&exact=1&seed=99&temperature=9&hide=controls,charts,foo&run=1"
    )
    page.locator(".sd-badge", has_text="measured").wait_for()
    assert page.locator("#sd-prompt textarea").input_value() == "A & <b>"
    assert page.locator(".sd-asked").inner_text().strip().endswith("A & <b>")
    for part in ("#sd-controls", ".sd-charts"):
        assert page.locator(part).first.is_hidden()
    told = page.locator(".sd-messages p")
    told.nth(1).wait_for()
    assert sorted(text.split(",")[0] for text in told.all_inner_texts()) == [
        "The address asks for hide=foo",
        "The address asks for temperature=9",
    ]
    told.first.get_by_role("button").click()
    assert told.count() == 1

    page.get_by_role("button", name="Share").click()
    link = page.locator("dialog[open] .sd-address").input_value()  # closed, it is still empty
    for wanted in [
        "prompt=A+%26+%3Cb%3E",
        "lookahead=3",
        "exact=1",
        "seed=99",
        "hide=controls%2Ccharts",
    ]:
        assert wanted in link
    assert "temperature" not in link
    page.locator(".sd-qr path").wait_for(state="attached")
    assert page.locator("dialog[open] .sd-site-address").bounding_box()["height"] > 24
    page.get_by_text("Run the prompt immediately").click()
    assert "run=1" in page.locator(".sd-address").input_value()
    # For a class: nothing to set, all of it named, one language; or the recorded run on a site that needs no model.
    page.get_by_role("button", name="Fix everything for a class").click()
    link = page.locator(".sd-address").input_value()
    for wanted in [
        "hide=prompt%2Ccontrols",
        "lang=en",
        "method=",
        "seed=99",
        "lookahead=3",
        "sampling=",
    ]:
        assert wanted in link, link
    page.get_by_label("Address of your static site").fill("https://school.example/decoding/")
    link = page.locator(".sd-address").input_value()
    assert link.startswith("https://school.example/decoding/?lang=en&hide=prompt%2Ccontrols")
    assert "#play/" in link
    page.get_by_label("Address of your static site").fill("")
    page.get_by_role("button", name="Copy link").click()
    page.locator(".sd-dialog-note", has_text="link").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")


def test_back_and_reload_bring_back_tab_lesson_and_run(visit):
    *_, last = recorded_runs()
    page = visit()
    page.goto(f"{page.url}?lesson=7")
    place = page.locator(".sd-lesson-place")
    place.get_by_text("Lesson 7 of 8").wait_for()
    page.locator(".sd-lesson-open").nth(1).click()
    page.wait_for_url("**lesson=2")
    page.locator("#sd-tab-play-button").click()
    page.wait_for_function("!location.search")
    page.locator("#sd-runs select").select_option(last.name)
    page.wait_for_url(f"**?recorded={last.name}")
    page.locator(".sd-about", has_text=last.title).wait_for(state="attached")
    page.reload()
    page.locator(f"#sd-view .sd-root[data-run='{last.name}']").wait_for()
    page.go_back()
    page.locator(f"#sd-view .sd-root[data-run='{recorded_runs()[0].name}']").wait_for()
    page.go_back()
    place.get_by_text("Lesson 2 of 8").wait_for()
    assert page.locator("#sd-tab-lessons-button").get_attribute("aria-selected") == "true"
    page.go_back()
    place.get_by_text("Lesson 7 of 8").wait_for()


def test_a_link_holds_a_live_run(visit):
    page = visit()
    run(page)
    written = page.locator("#sd-view .sd-answer").inner_text()
    page.get_by_role("button", name="Share").click()
    page.wait_for_function("document.querySelector('.sd-address').value.includes('#trace=')")
    link = page.locator(".sd-address").input_value()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("The link is copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == link
    other = visit(link[link.index("#") :])
    assert other.locator(".sd-badge").inner_text() == "recorded"
    assert other.locator("#sd-view .sd-answer").inner_text() == written
    # A changed hash alone does not load the page again.
    other.evaluate("location.hash = '#trace=garbage'")
    other.locator(".sd-problem", has_text="A run from a link is damaged").wait_for()
    other.evaluate("link => location.hash = link", link[link.index("#") :])
    other.wait_for_function(
        "text => document.querySelector('#sd-view .sd-answer')?.innerText === text", arg=written
    )


def test_back_and_reload_bring_back_a_step_a_token_and_a_live_run(visit):
    *_, last = recorded_runs()
    page = visit(f"?recorded={last.name}")
    place = "document.querySelector('#sd-view .sd-mount').view.place"
    token = page.locator("#sd-view .sd-answer .sd-step:nth-child(2) .sd-token").first
    token.click()
    page.wait_for_url("**&step=1&token=*")
    shown = page.evaluate(place)
    page.locator("#sd-tab-lessons-button").click()
    page.wait_for_url("**lesson=1&**")
    page.go_back()
    page.wait_for_url("**&step=1&token=*")
    page.reload()
    page.locator(".sd-pinned").wait_for()
    assert page.evaluate(place) == shown
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+ArrowRight")  # to the next step; nothing is pinned
    page.wait_for_url("**&step=2")
    run(page)
    page.wait_for_function("history.state?.trace")
    assert "recorded" not in page.url
    written = page.locator("#sd-view .sd-answer").inner_text()
    page.reload()
    page.locator(".sd-about", has_text="An earlier run").wait_for(state="attached")
    assert page.locator("#sd-view .sd-answer").inner_text() == written
    page.locator("#sd-runs select").select_option(last.name)
    page.wait_for_url(f"**?recorded={last.name}")
    page.go_back()
    page.locator(".sd-about", has_text="An earlier run").wait_for(state="attached")


def test_a_run_is_saved_as_a_picture_and_as_an_animation(page, tmp_path):
    page.get_by_role("button", name="Share").click()
    card = page.locator(".sd-run-card")
    card.wait_for()
    colours = "card => new Set(card.getContext('2d').getImageData(0, 0, 1200, 630).data).size"
    assert card.evaluate(colours) > 20  # letters with smooth edges
    for name, suffix, begin in (
        ("Save as a picture", "png", b"\x89PNG"),
        ("Record an animation", "webm", b"\x1aE\xdf\xa3"),
    ):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"specdemo.{suffix}"
        saved = tmp_path / suffix
        download.value.save_as(saved)
        assert saved.read_bytes().startswith(begin)
        assert saved.stat().st_size > 10_000
    page.keyboard.press("Escape")
    page.locator("dialog[open]").wait_for(state="detached")


def test_a_notice_leaves_the_run_button_free_and_tab_closes_the_menu_of_methods(page):
    page.locator("#sd-prompt textarea").fill("")
    page.locator("#sd-run").click()
    page.locator(".toast-body").wait_for()
    page.locator("#sd-run").click(timeout=5_000)  # a click on anything else fails
    page.locator("#sd-method input").focus()
    options = page.locator("#sd-method [role=listbox]")
    options.wait_for()
    page.keyboard.press("Tab")
    options.wait_for(state="hidden", timeout=5_000)


@pytest.mark.parametrize(("width", "height"), [(1024, 768), (1920, 1080)])
def test_the_presenter_mode_fits_its_screen_and_keys_lead_in_and_out(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("document.activeElement.blur()")
    small = page.locator(".sd-answer").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    page.keyboard.press("p")
    page.locator("#sd-settings").wait_for(state="hidden")
    assert page.locator("#sd-present").get_attribute("aria-pressed") == "true"
    large = page.locator(".sd-answer").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert large >= max(24, small * 1.2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.scrollHeight") <= height
    if width == 1920:
        assert share_of_text(page) >= 0.5
        page.wait_for_function(TICKS, arg="16px")
    page.keyboard.press("Escape")
    if width == 1920:
        page.wait_for_function(TICKS, arg="12px")
    page.locator("#sd-settings").wait_for()
    page.keyboard.press("?")
    dialog = page.locator("dialog[open]")
    dialog.wait_for()
    for _ in range(3):  # the focus stays inside
        page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.locator("#sd-prompt textarea").fill("")
    page.locator("#sd-prompt textarea").press("p")
    assert page.locator("#sd-prompt textarea").input_value() == "p"
    assert page.locator("#sd-settings").is_visible()


def test_the_page_speaks_german_and_leaves_no_known_english(visit):
    page = visit("?lang=de")
    table = words.translations("de")
    page.get_by_role("button", name="Start", exact=True).wait_for()
    assert page.evaluate("document.documentElement.lang") == "de"
    page.locator(".sd-model-text", has_text="Bereit: tiny, fp32").wait_for()
    page.locator("#sd-run").click()  # without a prompt
    page.locator(".toast-title", has_text="Fehler").wait_for()
    page.locator(".sd-legend", has_text="durchgestrichen").wait_for()
    shown = """(known) => {
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      const found = new Set();
      while (walker.nextNode()) {
        const { data, parentElement } = walker.currentNode;
        if (parentElement.closest(".sd-answer, .sd-plain-text, .sd-guesses, .sd-asked, .sd-spots, .sd-token, script, style")) continue;
        if (parentElement.checkVisibility() && known.includes(data.trim())) found.add(data.trim());
      }
      return [...found];
    }"""
    meant = set(table.values())
    methods = {method.title for method in ReadyStudio(AppSettings()).methods()}  # names stay
    english = [text for text in table if text not in meant | methods]
    for tab in TABS:
        page.locator(f"#sd-tab-{tab}-button").click()
        page.locator(f"#sd-tab-{tab}").wait_for()
        if tab == "proposals":
            page.locator(".sd-draft-group").first.wait_for()
        page.wait_for_timeout(300)
        assert page.evaluate(shown, english) == [], tab
    runs = page.locator("#sd-lab .sd-lab-pick option")
    runs.nth(1).wait_for(state="attached")
    assert not set(runs.all_inner_texts()) & set(english)
    menus = "all => all.map((one) => one.value)"
    closed = page.locator("input[role=combobox]").evaluate_all(menus)
    assert table[words.POLICIES["cost"]] in closed
    assert not set(closed) & set(english)
    page.locator("#sd-tab-race-button").click()
    page.locator("#sd-race-prompt textarea").fill(" ")
    page.locator("#sd-race-start").click()
    empty = load("errors")["race.no_prompt"]
    problem = page.locator(".sd-race .sd-problem", has_text=table[empty["message"]])
    problem.get_by_text(table[empty["advice"]], exact=True).wait_for()
