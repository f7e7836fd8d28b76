"""The static site, its charts and the one-file replay in a real Chromium: they load nothing from elsewhere."""

import json
import shutil

import pytest
from fuzz.odd import TEXTS
from loopback import serving_files

from specdemo.cli import parser as cli
from specdemo.trace.codec import dumps
from specdemo.trace.events import (
    LONE_SURROGATE,
    Choice,
    ModelInfo,
    Node,
    Origin,
    Place,
    RunFailed,
    RunStarted,
    Status,
    Verified,
)
from specdemo.ui import site, words

MARKUP, IMAGE = "<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>"
pytestmark = pytest.mark.browser


def hostile_trace() -> str:
    """A run in which each text is one of the odd ones."""
    odd = [text for text in TEXTS if not LONE_SURROGATE.search(text)]
    events, about = [], {"machine": IMAGE, "started_at": MARKUP}
    info = ModelInfo(MARKUP, IMAGE, MARKUP, IMAGE)
    choices = tuple(Choice(at, 0.1, other[:99]) for at, other in enumerate(odd[:9]))
    places = (Place(-1, choices, choices, choices),)
    probs = {"accept_prob": 0.5, "target_prob": 0.5, "origin": Origin.CHOSEN}
    for lane in ("plain", "speculative"):
        events.append(RunStarted(lane, MARKUP, "".join(odd), {"a": odd}, info, **about))
        for step, piece in enumerate(odd):
            nodes = (Node(step, piece, status=Status.REJECTED, **probs),)
            own, times = (
                Node(99, piece, status=Status.CORRECTION),
                (0.1, 0.1, 0.0, 0.2 * (step + 1)),
            )
            events.append(Verified(lane, step, nodes, (), own, *times, places=places))
    events.append(RunFailed("speculative", MARKUP, IMAGE, MARKUP))
    return dumps(events)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A site whose second run has the worst texts that a model could write."""
    runs = tmp_path_factory.mktemp("runs")
    shutil.copy(site.RUNS / "01-guess-and-check.jsonl", runs)
    (runs / "hostile.jsonl").write_text(hostile_trace(), encoding="utf-8", newline="")
    index = json.loads((site.RUNS / "index.json").read_text(encoding="utf-8"))
    [run] = [run for run in index["runs"] if run["name"] == "01-guess-and-check"]
    hostile = {**run, "name": "hostile", "title": MARKUP}
    (runs / "index.json").write_text(json.dumps({"runs": [run, hostile]}))
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "RUNS", runs)
        assert cli.main(["export-site", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def url(folder):
    with serving_files(folder) as address:
        yield f"{address}/"


@pytest.fixture
def page(open_page, url):
    page = open_page()
    page.on("console", lambda line: line.type == "error" and page.problems.append(line.text))
    yield page
    own = (url, "data:", "blob:", "file:")
    assert [asked for asked in page.asked if not asked.startswith(own)] == []


def test_a_run_plays_and_the_address_holds_the_open_parts(page, url):
    page.goto(url)
    page.locator(".sd-answer .sd-token").first.wait_for()
    assert page.locator(".sd-badge").inner_text() == "recorded"
    assert sum(asked.endswith("01-guess-and-check.jsonl") for asked in page.asked) == 1
    page.get_by_role("tab", name="Lessons").click()
    page.locator(".sd-lesson h2, .sd-lesson h1").first.wait_for()
    assert not page.locator("#sd-panel-play").is_visible()
    page.keyboard.press("ArrowLeft")
    page.locator("#sd-lab, .sd-lab, #sd-panel-lab svg").first.wait_for()
    assert page.url.endswith("#lab")
    page.keyboard.press("ArrowLeft")
    page.locator(".sd-proposals").wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#sd-panel-race .sd-token").first.wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#sd-choice-play").select_option("hostile")
    page.locator(".sd-answer .sd-rejected").first.wait_for()
    assert page.url.endswith("#play/hostile")
    assert page.evaluate("window.hacked") is None
    page.reload()
    page.locator(".sd-answer .sd-rejected").first.wait_for()
    assert page.locator("#sd-choice-play").input_value() == "hostile"


def test_a_missing_run_is_explained(page, url):
    page.route("**/01-guess-and-check.jsonl", lambda route: route.abort())
    page.goto(url)
    page.locator(".sd-problem", has_text="01-guess-and-check").wait_for()
    assert page.problems != []  # the browser's own line about the address
    page.problems.clear()


def test_the_replay_file_plays_from_a_disk(page, url, tmp_path):
    page.goto(f"{url}#play/hostile")
    page.locator(".sd-answer .sd-rejected").first.wait_for()
    page.locator(".sd-menu summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Replay (one HTML file)").click()
    saved = tmp_path / "replay.html"
    download.value.save_as(saved)
    page.goto(saved.as_uri())
    page.locator(".sd-answer .sd-rejected").first.wait_for()
    assert page.locator(".sd-charts").is_hidden()
    assert saved.stat().st_size < 1_500_000
    page.keyboard.press("End")
    assert page.evaluate("window.hacked") is None
    assert page.locator(".sd-answer img, .sd-answer script").count() == 0
    assert {MARKUP, IMAGE} <= set(page.locator(".sd-answer .sd-token").all_inner_texts())
    assert page.title().startswith(MARKUP)
    page.locator(".sd-menu summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Table (CSV)").click()
    table = tmp_path / "table.csv"
    download.value.save_as(table)
    assert table.read_text(encoding="utf-8-sig").startswith("lane,step,node")
    assert page.get_by_role("button", name="Replay (one HTML file)").count() == 0


def test_the_site_is_german_where_the_browser_or_the_address_is(page, url):
    page.goto(f"{url}?lang=de#lessons")
    page.get_by_role("tab", name="Lektionen").wait_for()
    page.locator(".sd-lesson h2", has_text="Warum Decodieren langsam ist").wait_for()
    assert page.evaluate("document.documentElement.lang") == "de"
    assert page.locator("#sd-tab-play").inner_text() != "Play"
    # A link for a class: one recorded run, and nothing to set.
    page.goto(f"{url}?lang=en&hide=tabs,runs,charts#play/hostile")
    page.locator(".sd-answer .sd-rejected").first.wait_for()
    for part in (".sd-site-tabs", ".sd-site-choice", ".sd-charts"):
        assert page.locator(part).is_hidden(), part


def test_the_site_fits_a_phone_and_changes_its_theme(page, url):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{url}?lang=de")  # its words are longer
    page.locator(".sd-answer .sd-token").first.wait_for()
    for width in (320, 390, 768):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width + 1
    page.goto(url)
    page.locator(".sd-answer .sd-token").first.wait_for()
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.get_by_role("button", name="Light / dark").click()
    assert page.evaluate(colour) != before


def test_the_site_opens_from_a_disk(page, url, folder):
    page.goto(f"{(folder / 'index.html').as_uri()}?lang=de#play/hostile")
    page.locator(".sd-answer .sd-rejected").first.wait_for()
    assert page.url.endswith("/offline.html?lang=de#play/hostile")
    assert page.evaluate("window.hacked") is None
    page.locator(".sd-plot .main-svg").nth(1).wait_for(state="attached")
    page.get_by_role("tab", name="Lektionen").click()
    page.locator(".sd-lesson h2", has_text="Warum Decodieren langsam ist").wait_for()
    page.locator(".sd-lesson-open").nth(1).click()
    game = page.get_by_role("region", name="Selbst der Entwurf sein")
    game.scroll_into_view_if_needed()
    game.locator("input").wait_for()
    assert game.locator("a[href]").count() == 0  # a class needs a server
    for tab, shown in {
        "race": ".sd-token",
        "proposals": ".sd-proposals",
        "lab": ".sd-lab-verdict",
        "methods": "table",
    }.items():
        page.locator(f"#sd-tab-{tab}").click()
        page.locator(f"#sd-panel-{tab} {shown}").first.wait_for()
    assert not [asked for asked in page.asked if asked.startswith(url)]


MARKS = "[...document.querySelectorAll('.sd-plot-mark')].map((mark) => !mark.hidden)"


@pytest.fixture
def open_charts(open_page, url):
    """Open the page with the whole run shown, as for users who prefer reduced motion."""

    def opened(script="", **options):
        page = open_page(reduced_motion="reduce", bypass_csp=True, **options)
        page.add_init_script(script)
        page.goto(url)
        drawn(page, 0)  # one next to the text; both below it once they are enlarged
        assert not chart(page, 1).is_visible()
        page.get_by_role("button", name="Enlarge").click()
        drawn(page, 1)
        return page

    return opened


def chart(page, place):
    return page.locator(".sd-chart").nth(place)


def drawn(page, place):
    chart(page, place).locator(".scatterlayer path").first.wait_for(state="attached")


def chosen(page):
    return page.locator(".sd-chart-menu").evaluate_all("(all) => all.map((menu) => menu.value)")


def test_every_chart_is_chosen_read_saved_and_remembered(open_charts):
    page = open_charts()
    assert chosen(page) == ["speedup", "lookahead"]
    first = chart(page, 0)
    menu = first.get_by_role("combobox", name="First chart")
    menu.select_option("lookahead")
    menu.focus()
    for name in ("rate", "speedup", "position", "time", "forecast"):
        page.keyboard.press("ArrowRight")
        assert chosen(page)[0] == name
        said = words.VIEW["charts"][f"{name}_label"].split("{")[0]
        first.get_by_role("img", name=said).wait_for()
        assert first.locator(".sd-chart-key li").count() >= 2
        assert first.locator(".sd-origin").inner_text() == "recorded"
    assert chosen(page)[1] == "lookahead"
    first.locator("summary").click()
    rows = first.locator("tbody tr")
    first.get_by_role("button", name="seconds").click()
    assert page.locator(".sd-chart-axis [aria-pressed=true]").all_inner_texts() == ["seconds"] * 2
    assert rows.count() == page.locator(".sd-column").count()
    for form in ("PNG", "SVG"):
        with page.expect_download() as download:
            first.get_by_role("button", name=f"Save this chart as {form}").click()
        assert download.value.suggested_filename == f"specdemo-forecast.{form.lower()}"
        head = download.value.path().read_bytes()[:200]
        assert (b"\x89PNG" if form == "PNG" else b"<svg") in head
    page.reload()
    drawn(page, 0)
    assert chosen(page) == ["forecast", "lookahead"]


def middle(one):
    """Return the centre of a chart, once it is in sight."""
    plot = one.locator(".sd-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_both_charts_and_the_text_share_one_cursor_in_both_directions(open_charts):
    page = open_charts()
    chart(page, 0).get_by_role("combobox").select_option("lookahead")
    page.wait_for_function("document.querySelector('.sd-plot').data.length === 5")
    page.mouse.move(*middle(chart(page, 0)))
    page.wait_for_function(f"{MARKS}.join() === 'true,true'")
    lit = int(page.locator(".sd-column.sd-lit").get_attribute("data-step"))
    assert f"step {lit + 1}:" in chart(page, 0).locator(".hoverlayer").text_content()
    page.mouse.move(5, 5)
    page.wait_for_function(f"{MARKS}.join() === 'false,false'")
    page.locator(".sd-column").nth(3).hover()
    page.wait_for_function(f"{MARKS}.join() === 'true,true'")

    # After a click the run rests at that step: the charts end there, on the same axis, and continue again.
    steps = "document.querySelector('.sd-plot').data.at(-1).x.length"
    ends = "document.querySelector('.sd-plot').layout.xaxis.range[1]"
    whole, axis = page.evaluate(steps), page.evaluate(ends)
    here = middle(chart(page, 0))
    page.mouse.move(*here)
    page.mouse.click(*here)
    page.wait_for_function(f"{steps} === {lit + 1}")
    assert page.evaluate(ends) == axis
    page.keyboard.press("End")
    page.wait_for_function(f"{steps} === {whole}")


def test_the_site_works_on_a_dark_phone_without_storage(open_charts):
    blocked = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } });"
    page = open_charts(blocked, viewport={"width": 390, "height": 844})
    ink = "document.querySelector('.sd-plot').layout.font.color"
    light = page.evaluate(ink)
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"{ink} !== '{light}'")
    chart(page, 1).get_by_role("combobox").select_option("time")
    assert chosen(page) == ["speedup", "time"]
    above, below = (chart(page, place).bounding_box() for place in (0, 1))
    assert above["y"] + above["height"] <= below["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
