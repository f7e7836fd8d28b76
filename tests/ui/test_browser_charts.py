"""The charts in a real Chromium: each can be chosen, saved and read; one cursor; looking back works."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading

import pytest

from specdemo.cli import parser as cli
from specdemo.ui import site, words

pytestmark = pytest.mark.browser
MARKS = "[...document.querySelectorAll('.sd-plot-mark')].map((mark) => !mark.hidden)"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A site with one recorded run."""
    runs = tmp_path_factory.mktemp("runs")
    shutil.copy(site.RUNS / "01-guess-and-check.jsonl", runs)
    index = json.loads((site.RUNS / "index.json").read_text(encoding="utf-8"))
    [run] = [run for run in index["runs"] if run["name"] == "01-guess-and-check"]
    (runs / "index.json").write_text(json.dumps({"runs": [run]}))
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "RUNS", runs)
        assert cli.main(["export-site", str(folder)]) == 0
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def open_page(browser, url):
    """Open the page with the whole run shown, as for users who prefer reduced motion."""
    contexts, problems = [], []

    def opened(script="", **options):
        size = {"width": 1280, "height": 800}
        contexts.append(
            browser.new_context(
                **{"viewport": size, "reduced_motion": "reduce", "bypass_csp": True, **options}
            )
        )
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.add_init_script(script)
        page.goto(url)
        drawn(page, 0)  # one next to the text; both below it once they are enlarged
        assert not chart(page, 1).is_visible()
        page.get_by_role("button", name="Enlarge").click()
        drawn(page, 1)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def chart(page, place):
    return page.locator(".sd-chart").nth(place)


def drawn(page, place):
    chart(page, place).locator(".scatterlayer path").first.wait_for(state="attached")


def chosen(page):
    return page.locator(".sd-chart-menu").evaluate_all("(all) => all.map((menu) => menu.value)")


def test_every_chart_is_chosen_read_saved_and_remembered(open_page):
    page = open_page()
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


def test_one_cursor_for_both_charts_and_the_text_and_the_way_back(open_page):
    page = open_page()
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


def test_a_phone_in_the_dark_without_storage(open_page):
    blocked = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } });"
    page = open_page(blocked, viewport={"width": 390, "height": 844})
    ink = "document.querySelector('.sd-plot').layout.font.color"
    light = page.evaluate(ink)
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"{ink} !== '{light}'")
    chart(page, 1).get_by_role("combobox").select_option("time")
    assert chosen(page) == ["speedup", "time"]
    above, below = (chart(page, place).bounding_box() for place in (0, 1))
    assert above["y"] + above["height"] <= below["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
