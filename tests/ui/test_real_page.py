"""The page with the embedded model itself: a recorded run while it loads, then a real run, live."""

import re

import pytest
from ui.served import launched

from specdemo.config.settings import AppSettings
from specdemo.session.studio import Studio

pytestmark = [pytest.mark.real, pytest.mark.browser]
PHASE = "document.querySelector('.sd-phase')?.textContent"
EARLIER = """document.querySelector('#sd-view .sd-mount').view.events.filter(
  ({ reasons }) => reasons?.some(({ code }) => code.endsWith('_earlier'))).length"""


def set_numbers(page, **numbers):
    page.locator("#sd-settings").click()
    for name, number in numbers.items():
        box = page.locator(f"#sd-{name} input[type=number]")
        box.fill(number)
        box.press("Enter")
    page.locator("#sd-settings").click()


def test_a_real_run_is_shown_live_measured_and_stopped(open_page):
    with launched(Studio(AppSettings.from_environment())) as url:
        page = open_page()
        page.goto(f"{url}?preset=own&temperature=0.3")
        page.locator(".sd-badge:not(#sd-first *)", has_text="recorded").wait_for()
        page.locator(".sd-model-text", has_text="Ready").wait_for(timeout=300_000)

        page.get_by_role("button", name="Enlarge").click()
        page.get_by_role("button", name="Why is the sky blue?").click()
        page.locator(".sd-asked", has_text="Why is the sky blue?").wait_for()  # its recording
        page.get_by_role("button", name="Run", exact=True).click()
        page.locator(".sd-badge", has_text="measured").wait_for()
        page.locator(".sd-answer .sd-plain").first.wait_for()
        page.wait_for_function(f"{PHASE}.startsWith('Finished')", timeout=120_000)
        for status in ("accepted", "rejected", "correction", "bonus"):
            assert page.locator(f".sd-answer .sd-{status}").count() > 0, status
        busy = "not comparable" in page.locator(".sd-phase").inner_text()  # other programs
        speedup = "\N{EN DASH}" if busy else re.compile(r"\d")
        page.locator(
            ".sd-number-speedup dd b", has_text=speedup
        ).wait_for()  # painted four times a second
        points = [
            f"document.querySelectorAll('.sd-plot')[{chart}].data[0].y.length" for chart in (0, 1)
        ]
        # a run that cannot be compared has no curve of speedups, only the drafted tokens
        page.wait_for_function(f"Math.{'max' if busy else 'min'}({', '.join(points)}) > 5")

        page.get_by_label("Continue this conversation").check()
        page.locator("#sd-prompt textarea").fill("And why is it red in the evening?")
        # At this temperature no answer ends by itself, so a fast machine has not finished when it is stopped.
        set_numbers(page, temperature="1.5", max_new_tokens="1024")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_function("document.querySelectorAll('.sd-answered').length == 1")
        page.wait_for_function("document.querySelectorAll('.sd-answer .sd-token').length > 5")
        page.keyboard.press("Escape")
        page.wait_for_function(f"{PHASE}.startsWith('Stopped')")
        assert page.locator(".sd-answer .sd-token").count() > 5

        page.get_by_role("button", name="Clear", exact=True).click()
        page.locator(".sd-empty").wait_for()
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text("The prompt is empty.").first.wait_for()

        page.locator("#sd-prompt textarea").fill("Why is the sky blue?")
        set_numbers(page, max_new_tokens="64")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_function(f"{PHASE}.startsWith('Finished')", timeout=120_000)
        assert page.locator(".sd-answered").count() == 0
        assert page.evaluate(EARLIER) == 0
