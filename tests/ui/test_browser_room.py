"""A class in a real Chromium: two phones guess, and the projector shows it, on a page without a model."""

import httpx
import pytest
from ui.served import launched

from specdemo.config.settings import AppSettings
from specdemo.config.strings import load
from specdemo.session.studio import Studio
from specdemo.ui import room
from specdemo.ui.room import text_of

RUN = "20-larger-model"
WORDS = load("lessons")["WORDS"]["moments"]["yourself"]["room"]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def url():
    with pytest.MonkeyPatch.context() as patch, launched(Studio(AppSettings(replay=True))) as there:
        patch.setattr(room, "own_address", lambda: "")  # the phones are on this machine
        yield there


def test_a_class_guesses_on_two_phones_and_the_projector_shows_it(open_page, url):
    projector = open_page()
    projector.goto(f"{url}room.html?run={RUN}&at=10")
    code = projector.locator(".sd-room-code").inner_text()
    assert projector.locator(".sd-qr path").get_attribute("d")
    own = text_of(RUN)[1][httpx.get(f"{url}rooms/{code}").json()["at"]].strip()
    phones = [open_page(viewport={"width": 390, "height": 844}, is_mobile=True) for _ in range(2)]
    for phone, word in zip(phones, (own.upper(), "<b>no</b>"), strict=True):
        phone.goto(f"{url}room.html?room={code.lower()}")
        phone.locator("input").fill(word)
        phone.get_by_role("button", name=WORDS["send"]).click()
        phone.get_by_text(WORDS["sent"].split("{")[0]).wait_for()
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    projector.get_by_text(WORDS["count"].format(count=2)).wait_for()
    projector.get_by_role("button", name=WORDS["show"]).click()
    row = projector.locator("tbody tr", has_text=own).first
    assert row.locator("td").nth(1).inner_text() == "0.50 (1)"
    assert WORDS["others"] in projector.locator("tbody").inner_text()
    assert "no</b>" not in projector.locator("tbody").inner_text()
    phones[0].get_by_text(WORDS["kept"].format(own=own)).wait_for()
    projector.get_by_role("button", name=WORDS["next"]).click()
    phones[0].get_by_role("button", name=WORDS["send"]).wait_for()
    projector.reload()
    assert projector.locator(".sd-room-code").inner_text() == code


def test_a_word_sent_before_the_room_answers_for_the_first_time_stays(open_page, url):
    projector, phone, held = open_page(), open_page(), []
    projector.goto(f"{url}room.html?run={RUN}&at=10")
    code = projector.locator(".sd-room-code").inner_text()
    phone.route(f"**/rooms/{code}", lambda route: held.append(route))
    phone.goto(f"{url}room.html?room={code}")
    phone.locator("input").fill("early")
    phone.get_by_role("button", name=WORDS["send"]).click()
    phone.get_by_text(WORDS["sent"].format(word="early")).wait_for()
    for request in held:
        request.continue_()
    phone.locator(".sd-room-gap").wait_for()
    assert phone.locator("input").input_value() == "early"
    phone.get_by_text(WORDS["sent"].format(word="early")).wait_for()


def test_a_wrong_code_can_be_typed_again_and_a_room_that_ends_stays_on_the_phone(open_page, url):
    phone, asked = open_page(), []
    phone.on("request", lambda request: "/rooms/" in request.url and asked.append(request.url))
    phone.goto(f"{url}room.html")
    phone.locator("input").fill("ABCD")
    phone.get_by_role("button", name=WORDS["join"]).click()
    refused = phone.get_by_role("alert").filter(has_text=WORDS["refused"]["404"])
    refused.wait_for()
    assert phone.get_by_role("button").all_inner_texts() == [WORDS["theme"], WORDS["join"]]
    assert phone.evaluate("getSelection().toString()") == "ABCD"
    phone.wait_for_timeout(3000)
    assert len(asked) == 1
    projector = open_page()
    projector.goto(f"{url}room.html?run={RUN}&at=10")
    phone.keyboard.type(projector.locator(".sd-room-code").inner_text())
    phone.keyboard.press("Enter")
    phone.locator(".sd-room-gap").wait_for()
    phone.route("**/rooms/*", lambda route: route.fulfill(status=404))
    refused.wait_for()
    assert phone.get_by_role("button", name=WORDS["send"]).is_visible()
