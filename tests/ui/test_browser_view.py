"""The player and the inspector in a real Chromium, on runs written here: no server but one for files, no model."""

import json
from pathlib import Path

import pytest
from loopback import Files, serving_files

from specdemo.ui import words

pytestmark = pytest.mark.browser
ASSETS = Path(__file__).resolve().parents[2] / "assets"
STEPS = 170
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
PAGE = """<!doctype html><meta charset=utf-8><link rel=icon href="data:,">
<link rel=stylesheet href="/view/css/view.css"><input id=box><div id=one></div><div id=two></div>
<script type=module>
const { mount } = await import("/view/play/view.js");
const words = await (await fetch("/words")).json();
window.items = (await (await fetch("/run")).text()).trim().split("\\n").map((line) => JSON.parse(line));
window.open = (id, more = {}) => mount(document.getElementById(id), { read: () => "", watch: () => {}, words, ...more });
window.view = open("one");
view.load(items);
window.ready = true;
</script>"""


def run():
    """Sampled, 512 tokens in 170 steps: an accepted token, then a rejected one and an untested one, or a bonus."""

    def node(token_id, text, parent, status, **more):
        return {"token_id": token_id, "text": text, "parent": parent, "status": status, **more}

    def choices(*pairs):
        return [{"token_id": i, "text": f" t{i}", "prob": prob} for i, prob in pairs]

    def head(lane, method):
        about = {"prompt": "Hi", "settings": {"sampling": {"temperature": 1.0}}}
        return {"type": "started", "lane": lane, "method": method, **about}

    times = {"draft_seconds": 0.01, "verify_seconds": 0.03, "overhead_seconds": 0.001}
    events = [head("plain", "nothing")]
    for step in range(512):
        own = node(1, " t1", -1, "plain", target_prob=0.5)
        events.append({"type": "verified", "lane": "plain", "step": step, "nodes": [], "path": []})
        events[-1] |= {"next": own, **times, "elapsed_seconds": 0.04 * (step + 1)}
    events += [{"type": "finished", "lane": "plain", "reason": "length"}]
    events += [head("speculative", "draft_model")]
    for step in range(STEPS):
        kept = {"target_prob": 0.12, "draft_prob": 0.31, "accept_prob": 0.12 / 0.31, "draw": 0.22}
        lost = {"target_prob": 0.2, "draft_prob": 0.5, "accept_prob": 0.4, "draw": 0.7}
        nodes = [node(1, " t1", -1, "accepted", **kept), node(2, " t2", 0, "rejected", **lost)]
        nodes.append(node(3, " t3", 1, "unreached", target_prob=0.1, draft_prob=0.2))
        for one in nodes:
            one |= {"confidence": one["draft_prob"], "origin": "drawn"}
        own = node(4, " t4", -1, "correction", target_prob=0.6)
        places = [
            {"after": -1, "target": choices((5, 0.5), (1, 0.12)), "draft": choices((1, 0.31))},
            {"after": 0, "target": choices((4, 0.6), (2, 0.2)), "draft": choices((2, 0.5))},
        ]
        places[1]["residual"] = choices((4, 0.9), (6, 0.1))
        if step % 2:
            nodes, own["status"], places = nodes[:1], "bonus", places[:1]
        drafted = [{**n, "status": "drafted"} for n in nodes]
        common = {"lane": "speculative", "step": step, "lookahead": 3}
        events.append({"type": "drafted", **common, "nodes": drafted, "draft_seconds": 0.01})
        events.append({"type": "verified", **common, "nodes": nodes, "path": [0], "next": own})
        events[-1] |= {**times, "elapsed_seconds": 0.041 * (step + 1), "places": places}
    return [*events, {"type": "finished", "lane": "speculative", "reason": "length"}]


class Made(Files):
    made = {
        "/": ("text/html", PAGE),
        "/words": ("application/json", json.dumps(words.VIEW)),
        "/run": ("text/plain", "\n".join(json.dumps(event) for event in run())),
    }

    def do_GET(self):
        if self.path not in self.made:
            return super().do_GET()
        kind, text = self.made[self.path]
        return self.answer(200, text.encode(), kind=f"{kind}; charset=utf-8")


@pytest.fixture(scope="module")
def url():
    with serving_files(ASSETS, Made) as address:
        yield f"{address}/"


@pytest.fixture
def page(open_page, url):
    page = open_page()
    page.goto(url)
    page.wait_for_function("window.ready")
    return page


AT = "view.timeline.at"


def press(page, key, place):
    page.keyboard.press(key)
    page.wait_for_function(f"{AT} === {place}")


def test_keys_go_by_token_by_round_and_to_the_next_rejection_but_not_while_one_types(page):
    # Each stop of the first step: start 0, drafted 1, two checked tokens 2 and 3, all checked 4.
    press(page, "ArrowRight", 1)
    page.locator(".sd-answer .sd-drafted").nth(2).wait_for()
    assert page.locator(".sd-columns .sd-slot-drafted").count() == 3
    press(page, "ArrowRight", 2)
    page.locator(".sd-answer .sd-accepted").wait_for()
    assert page.locator(".sd-answer .sd-drafted").count() == 2
    assert page.locator(".sd-columns .sd-slot-accepted").count() == 1
    page.locator(".sd-why", has_text="draw 0.22 lies below the accept probability 0.39").wait_for()
    press(page, "ArrowRight", 3)
    page.locator(".sd-answer .sd-rejected").wait_for()
    assert page.locator(".sd-answer .sd-unreached, .sd-answer .sd-correction").count() == 0
    press(page, "ArrowRight", 4)
    page.locator(".sd-answer .sd-correction").wait_for()
    # The next step is accepted whole: drafted 5, checked 6, whole 7. Then one with a rejection, whole at 11.
    press(page, "Shift+ArrowRight", 7)
    press(page, "n", 11)
    press(page, "Shift+ArrowLeft", 7)
    press(page, "ArrowLeft", 6)
    press(page, "Home", 0)
    last = page.evaluate("view.timeline.last")
    press(page, "End", last)
    page.locator("#box").focus()
    for key in ("Home", "ArrowLeft", "n", "Space"):
        page.keyboard.press(key)
    assert page.evaluate(AT) == last
    page.locator("#box").blur()
    press(page, "Home", 0)
    page.keyboard.press("Space")
    page.wait_for_function(f"{AT} > 3 && view.player.playing")
    page.keyboard.press("Space")
    assert not page.evaluate("view.player.playing")


def test_the_inspector_fills_in_the_formula_and_compares_two_tokens(page):
    page.evaluate("view.seekStep(4)")
    inspector = page.locator(".sd-inspector")
    refused = page.locator(".sd-step:not(.sd-later) .sd-rejected").first
    refused.click()
    formula = inspector.locator(".sd-formula")
    formula.get_by_text("min(1, 0.20 / 0.50) = 0.40").wait_for()
    assert "draw 0.70 ≥ 0.40: rejected" in formula.inner_text()
    heads = inspector.locator("thead th").all_inner_texts()
    assert heads == ["token", "target", "draft", "residual"]
    first = inspector.locator("tbody tr").first.inner_text().split()
    assert first == ["t4", "correction", "0.60", "–", "0.90"]
    assert "recorded" in inspector.locator("header").inner_text()
    # A pinned token stays while the run continues and the pointer is elsewhere.
    page.locator(".sd-step:not(.sd-later) .sd-accepted").last.hover()
    page.evaluate("view.seekStep(20)")
    assert inspector.locator(".sd-inspected").all_inner_texts() == ["t2"]
    page.locator(".sd-step:not(.sd-later) .sd-bonus").first.click(modifiers=["Shift"])
    inspector.locator(".sd-decision").nth(1).wait_for()
    assert inspector.locator(".sd-inspected").all_inner_texts() == ["t2", "t4"]
    boxes = [inspector.locator(".sd-decision").nth(i).bounding_box() for i in (0, 1)]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert page.locator(".sd-pinned").count() == 2
    assert page.evaluate("String(getSelection())") == ""
    page.keyboard.press("Escape")
    page.locator(".sd-pinned").first.wait_for(state="detached")
    # By the keyboard: a token, Enter, Compare, another token, Enter.
    page.locator(".sd-text").focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert inspector.locator(".sd-inspected").all_inner_texts() == ["t2"]
    inspector.get_by_role("button", name="Compare").click()
    page.locator(".sd-step .sd-token").nth(2).focus()
    page.keyboard.press("Enter")
    assert inspector.locator(".sd-inspected").all_inner_texts() == ["t2", "t3"]
    inspector.get_by_role("button", name="Unpin").click()
    page.locator(".sd-pinned").first.wait_for(state="detached")


def test_one_selection_lights_the_same_step_everywhere_and_a_column_goes_there(page):
    page.evaluate("view.charts.highlight = (step) => (window.charted = step)")
    page.evaluate("view.seekStep(40)")
    page.locator(".sd-column").nth(40).wait_for()
    column = page.locator(".sd-column").nth(12)
    assert "1 of 3 drafted kept; draft 10 ms, verify 30 ms" in column.get_attribute("aria-label")
    column.click()
    page.wait_for_function("window.charted === 12")
    assert page.evaluate("view.timeline.stops[view.timeline.at].step") == 12
    assert page.locator(".sd-step.sd-lit").get_attribute("data-step") == "12"
    assert page.locator(".sd-column.sd-lit").get_attribute("data-step") == "12"
    assert page.locator(".sd-column[aria-selected=true]").get_attribute("data-step") == "12"
    assert page.locator(".sd-column").count() == 41  # shown steps stay
    assert page.locator(".sd-step:visible").count() == 13
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("window.charted === 11")
    page.keyboard.press("End")
    page.wait_for_function("window.charted === 40")
    seen = "(e) => e.offsetLeft < e.closest('.sd-columns').scrollLeft + e.closest('.sd-columns').clientWidth"
    assert page.locator(".sd-column").nth(40).evaluate(seen)


def test_a_live_run_is_followed_held_and_looked_back_at_while_it_goes_on(page):
    page.evaluate("""() => {
        const begun = items.findIndex((item) => item.lane === "speculative");
        window.rest = items.slice(begun + 21);
        view.take([{ type: "open", source: "live", key: "k" }, ...items.slice(0, begun + 21)], true);
    }""")
    more = "(count) => view.take(rest.splice(0, count), false)"
    atEnd = "view.timeline.atEnd"
    assert page.evaluate(atEnd)
    page.evaluate(more, 4)
    assert page.evaluate(atEnd)
    page.get_by_role("button", name="Pause").click()
    page.evaluate(more, 4)
    place = page.evaluate(AT)
    assert not page.evaluate(atEnd)
    page.locator(".sd-phase", has_text="Looking back").wait_for()
    press(page, "ArrowLeft", place - 1)
    page.evaluate(more, 40)
    assert page.evaluate(AT) == place - 1
    page.get_by_role("button", name="Follow the run").click()
    page.evaluate(more, 4)
    assert page.evaluate(atEnd)
    page.evaluate(more, 1000)
    page.locator(".sd-phase", has_text="Finished").wait_for()


BELOW = """(step) => {
    const bottom = (e) => e.getBoundingClientRect().bottom;
    return bottom([...document.querySelectorAll(".sd-text .sd-step")].at(step)) - bottom(document.querySelector(".sd-text"));
}"""


def test_the_end_stays_in_sight_unless_the_reader_has_gone_up(page):
    page.set_viewport_size({"width": 800, "height": 700})
    page.evaluate("""() => {
        window.rest = items.slice(items.findIndex((item) => item.lane === "speculative"));
        view.take([{ type: "open", source: "live", key: "k" }, ...rest.splice(0, 9)], true);
    }""")
    more = f"(count) => {{ view.take(rest.splice(0, count), false); return {TWO_FRAMES}; }}"
    page.evaluate(more, 2)
    assert page.evaluate(BELOW, -1) < -50  # a short text stands on top
    page.evaluate(more, 150)
    assert -60 < page.evaluate(BELOW, -1) <= 0
    page.locator(".sd-text").hover()
    page.mouse.wheel(0, -150)
    page.wait_for_function(f"({BELOW})(-1) > 50")
    place = page.evaluate(BELOW, 40)
    page.evaluate(more, 60)
    assert page.evaluate(BELOW, 40) == pytest.approx(place, abs=2)
    page.mouse.wheel(0, 9999)
    page.wait_for_function(f"({BELOW})(-1) <= 0")
    page.evaluate(more, 20)
    assert page.evaluate(BELOW, -1) <= 0


def test_a_frame_of_a_live_run_lays_the_page_out_once(page):
    page.evaluate("""() => {
        view.take([{ type: "open", source: "live", key: "k" }, ...items.slice(0, 600)], true);
        window.rest = items.slice(600);
    }""")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def layouts():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "LayoutCount")

    page.wait_for_timeout(2000)  # what is drawn seldom
    before = layouts()
    for _ in range(8):
        page.evaluate(f"() => {{ view.take(rest.splice(0, 4), false); return {TWO_FRAMES}; }}")
    assert layouts() - before <= 8 + 6  # and now and then the numbers and the inspector


def test_two_views_on_one_page_do_not_meet(page):
    page.evaluate("window.other = open('two', { keys: false }); other.load(items)")
    press(page, "ArrowRight", 1)
    assert page.evaluate("other.timeline.at") == 0
    assert page.evaluate("other.seekStep(3)")
    assert page.evaluate(AT) == 1
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_a_step_of_a_long_run_draws_one_step_and_runs_leave_nothing(page):
    """512 tokens with detail: a frame draws only changes, and memory after a hundred runs is that of one."""
    page.evaluate("view.seekStep(150)")
    page.locator(".sd-column").nth(150).wait_for()
    page.evaluate("""() => {
        window.made = 0;
        const count = (list) => { for (const { addedNodes } of list) for (const node of addedNodes)
          made += 1 + (node.querySelectorAll?.("*").length ?? 0); };
        const watch = new MutationObserver(count);
        for (const part of [".sd-text", ".sd-strip"])
          watch.observe(document.querySelector(part), { childList: true, subtree: true });
    }""")
    for _ in range(8):
        page.evaluate("view.player.step('token', 1)")
        page.evaluate(TWO_FRAMES)
    assert 0 < page.evaluate("made") < 8 * 40
    # Moving back and forth over shown steps draws no step again.
    page.evaluate("made = 0")
    for step in (10, 140, 60):
        page.evaluate("(step) => view.seekStep(step)", step)
        page.evaluate(TWO_FRAMES)
    assert page.evaluate("made") < 40

    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def held():
        page.evaluate("view.load(items); view.seekStep(100)")
        page.evaluate(TWO_FRAMES)
        session.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        return metrics["Nodes"], metrics["JSEventListeners"]

    nodes, listeners = held()
    for _ in range(20):
        page.evaluate("view.load(items); view.seekStep(100)")
        page.evaluate("new Promise((done) => requestAnimationFrame(done))")
    later = held()
    assert later[0] < 1.5 * nodes
    assert later[1] <= listeners + 5
