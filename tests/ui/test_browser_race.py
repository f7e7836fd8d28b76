"""The race and the drafts side by side in a real Chromium: recorded first, then run; text stays text, Stop stops."""

from functools import partial

import pytest
from scripted_run import run_events
from ui.scripted import IdleStudio, ScriptedConversation

from specdemo.session.door import MethodInfo
from specdemo.session.work.proposals import Comparison, Guess, Text
from specdemo.trace.events import Drafted, Node, Status, Verified

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=window.hacked=1>"


class RacedConversation(ScriptedConversation):
    """A step takes 0.1 s and gives a token; of every other method two, as one drafted token is kept. `forever` ends when it is cancelled."""

    def __init__(self, host):
        self.host = host

    def perform(self, work, arguments, cancel=None):
        return work(self, cancel, **arguments)

    def events(self, prompt, settings, cancel, *, system="", every=0.0):
        lane = "plain" if settings.method == "nothing" else "speculative"
        most = settings.max_new_tokens if prompt == "forever" else 8
        steps = most if lane == "plain" else most // 2
        step = partial(self.step, lane, prompt, cancel)
        told = settings.to_dict()
        yield from run_events(
            lane, settings.method, prompt, steps, cancel, step, told=told, machine="here"
        )

    def step(self, lane, prompt, cancel, step):
        def word(place, status):
            return Node(place, HOSTILE if place == 2 else f" w{place}", status=status)

        if prompt == "forever":
            cancel.wait(0.1)
        drafted, own = (), word(step, Status.PLAIN)
        if lane == "speculative":
            drafted, own = (word(2 * step, Status.ACCEPTED),), word(2 * step + 1, Status.BONUS)
        path = tuple(range(len(drafted)))
        yield Verified(lane, step, drafted, path, own, 0, 0.1, 0, 0.1 * (step + 1))


class RacedStudio(IdleStudio):
    def methods(self):
        return [
            MethodInfo("draft_model", "Draft model", "Guesses.", ("policy", "lookahead"), True),
            MethodInfo("tree", "Tree", "Branches.", (), False, f"{HOSTILE} Train one."),
            MethodInfo("nothing", "Plain decoding", "Nothing.", (), True),
        ]

    def open(self, _visitor=""):
        return RacedConversation(self)


STUDIO, MOTION = RacedStudio, "reduce"  # a replay rests at its end


def open_tab(page, name):
    page.get_by_role("tab", name=name).click()


def race(page, prompt):
    page.locator("#sd-race-prompt textarea").fill(prompt)
    page.locator("#sd-race-start").click()


def test_a_recorded_race_is_shown_first_then_lanes_run_and_are_ranked(page):
    open_tab(page, "Race")
    view = page.locator(".sd-race")
    view.locator(".sd-badge", has_text="recorded").wait_for()
    view.locator(".sd-race-rank", has_text="1st").wait_for()
    assert view.locator("tbody tr").count() == view.locator(".sd-race-lane").count() >= 3

    race(page, "hello")
    view.locator(".sd-badge", has_text="measured").wait_for()
    view.locator(".sd-race-status", has_text="The race is over.").wait_for()
    assert view.locator("h3").all_inner_texts()[:2] == [
        "Plain decoding",
        "Draft model: by cost, up to 8",
    ]
    assert view.locator(".sd-race-rank").all_inner_texts() == ["2nd", "1st"]
    rows = [row.split("\t") for row in view.locator("tbody").inner_text().split("\n")]
    assert [row[:4] for row in rows] == [
        ["1st", "Draft model: by cost, up to 8", "20", "2.0×"],
        ["2nd", "Plain decoding", "10", "1.0×"],
    ]
    view.get_by_text("Every lane wrote the same 8 tokens.").wait_for()
    assert HOSTILE in view.locator(".sd-answer").first.inner_text()
    assert view.locator(".sd-answer img").count() == 0
    assert page.evaluate("window.hacked") is None

    # Half way on the common clock the fast run has all of its tokens, the plain one half.
    view.locator(".sd-scrub").evaluate(
        "e => { e.value = Math.floor(e.max / 2); e.dispatchEvent(new Event('input')); }"
    )
    view.locator(".sd-race-rank", has_text="2nd").wait_for(state="hidden")
    tokens = view.locator(".sd-race-track").evaluate_all(
        "tracks => tracks.map((track) => Number(track.ariaValueNow ?? track.getAttribute('aria-valuenow')))"
    )
    assert 0 < tokens[0] < tokens[1]
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 391


def test_stop_ends_a_race_and_the_finished_lanes_are_shown(page):
    open_tab(page, "Race")
    race(page, "forever")
    status = page.locator(".sd-race-status", has_text="Lane 1 of 2 runs alone")
    status.wait_for()
    page.locator("#sd-race-stop").click()
    page.locator(".sd-race-status", has_text="Stopped: what has run is shown.").wait_for()
    assert page.locator(".sd-race-facts").all_inner_texts()[1] == "stopped"
    assert page.locator(".sd-race-rank:not(:empty)").count() == 0
    race(page, " ")
    page.locator(".sd-race .sd-problem", has_text="no prompt").wait_for()


def test_set_ups_choose_the_lanes(page):
    open_tab(page, "Race")
    page.get_by_role("button", name="Three policies").click()
    page.get_by_role("button", name="Set up").click()
    page.locator("#sd-race-method-4 input").wait_for()
    assert page.locator("#sd-race-method-4 input").input_value() == "Draft model"
    race(page, "hello")
    page.locator(".sd-race h3", has_text="Draft model: always 4").wait_for()
    page.locator(".sd-race-rank", has_text="4th").wait_for()


def test_drafts_at_a_place_of_recorded_runs_and_of_a_written_text(page, monkeypatch):
    def write(_place, prompt, _settings, **_):
        tokens = tuple(Node(i, HOSTILE if i == 5 else f" w{i}") for i in range(16))
        yield Text(prompt, tokens)

    def guesses(_place, _text, position, settings, **_):
        nodes = (
            Node(1, " yes", -1, Status.ACCEPTED, 0.5, 0.25),
            Node(2, HOSTILE, 0, Status.REJECTED, 0.1, 0.9),
        )
        own = Node(3, f" at{position}", status=Status.CORRECTION)
        drafted = Drafted("speculative", 0, settings.lookahead, "constant", nodes, 0.004)
        judged = Verified("speculative", 0, nodes, (0,), own, 0.004, 0.1, 0, 0.2)
        yield Guess("draft_model", drafted, judged)
        yield Guess("tree", why_not=f"{HOSTILE} Train one.")

    monkeypatch.setattr(Comparison, "write", write)
    monkeypatch.setattr(Comparison, "guesses", guesses)
    open_tab(page, "Drafts")
    view = page.locator(".sd-proposals")
    view.locator(".sd-badge", has_text="recorded").wait_for()
    view.locator(".sd-draft").nth(2).wait_for()  # the target's, and those of two runs
    known = view.locator(".sd-spot-known")
    known.first.click()
    view.locator(".sd-race-status", has_text="methods drafted after token 0").wait_for()

    page.locator("#sd-proposals-write").click()
    view.locator(".sd-race-status", has_text="1 of 2 methods drafted after token 4").wait_for()
    view.locator(".sd-spot").nth(9).click()
    row = view.locator(".sd-draft", has_text="Draft model")
    row.locator(".sd-correction", has_text="at9").wait_for()
    assert "1 of 2 kept · 4.0 ms" in row.inner_text()
    assert HOSTILE.replace(" ", "\N{OPEN BOX}") in row.locator(".sd-rejected").inner_text()
    assert "Train one." in view.locator(".sd-draft-missing").inner_text()
    assert view.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
