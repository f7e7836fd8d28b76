"""Rooms of a class: bounds, expiry, rates, and the rights of each caller."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from specdemo.config.strings import load
from specdemo.ui import room
from specdemo.ui.room import Rooms, room_routes, text_of

RUN = "20-larger-model"
WORDS = load("lessons")["WORDS"]["moments"]["yourself"]["room"]
PLACE = {"run": RUN, "at": 12}


def refusal(call, *given):
    with pytest.raises(HTTPException) as refused:
        call(*given)
    return refused.value.status_code


@pytest.fixture
def rooms(clock):
    return Rooms(clock)


@pytest.fixture
def client():
    return TestClient(Starlette(routes=room_routes("127.0.0.1")), raise_server_exceptions=False)


def test_a_room_opens_only_at_a_word_of_a_recorded_run(rooms):
    for run, at in (("../secret", 3), ("no-such-run", 3), (RUN, 0), (RUN, -1), (RUN, 10_000)):
        assert refusal(rooms.open, run, at) == 422
    code, opened = rooms.open(RUN, 12)
    assert len(code) == 4
    assert rooms.room(code.lower()) is opened
    assert refusal(opened.go_to, 10_000) == 422


def test_the_number_of_rooms_is_limited(rooms, clock):
    codes = {rooms.open(RUN, 3)[0] for _ in range(room.MOST_ROOMS)}
    assert len(codes) == room.MOST_ROOMS
    assert refusal(rooms.open, RUN, 3) == 503
    clock.now += room.IDLE_SECONDS
    rooms.open(RUN, 3)
    assert refusal(rooms.room, codes.pop()) == 404


def test_a_room_lasts_while_its_projector_asks_and_a_morning_at_most(rooms, clock):
    code, opened = rooms.open(RUN, 3)
    while clock.now + 600 < room.LONGEST_SECONDS:
        clock.now += 600
        rooms.own(code, opened.key)
    clock.now += 600
    assert refusal(rooms.room, code) == 404


def test_a_phone_has_one_guess_for_each_word(rooms):
    code, opened = rooms.open(RUN, 3)
    for word in ("one", " two ", "thr\N{LATIN SMALL LETTER E WITH ACUTE}e"):
        rooms.guess(code, "phone-00001", word)
    assert list(opened.guesses.values()) == ["thr\N{LATIN SMALL LETTER E WITH ACUTE}e"]
    for phone, word in (
        ("phone-00001", ""),
        ("phone-00001", "two words"),
        ("phone-00001", "x" * 25),
        ("short", "word"),
        ("phone <b>1</b>", "word"),
        ("x" * 41, "word"),
    ):
        assert refusal(rooms.guess, code, phone, word) == 422
    opened.shown = True
    assert refusal(rooms.guess, code, "phone-00001", "late") == 409
    opened.go_to(4)
    assert opened.guesses == {}


def test_a_full_room_takes_no_more_phones_and_its_phones_still_change_their_guess(rooms, clock):
    code, opened = rooms.open(RUN, 3)
    for i in range(room.MOST_PHONES):
        clock.now += 1
        rooms.own(code, opened.key)
        rooms.guess(code, f"phone-{i:05}", "word")
    assert refusal(rooms.guess, code, "one-phone-more", "word") == 409
    clock.now += 1
    rooms.guess(code, "phone-00000", "other")
    assert len(opened.guesses) == room.MOST_PHONES


def test_calls_of_each_address_and_room_have_a_rate(rooms, clock):
    most, a_second = room.LIMITS["open"]
    for _ in range(most):
        rooms.count("open", "10.0.0.1")
    assert refusal(rooms.count, "open", "10.0.0.1") == 429
    rooms.count("open", "10.0.0.2")
    clock.now += 1 / a_second
    rooms.count("open", "10.0.0.1")
    assert refusal(rooms.count, "open", "10.0.0.1") == 429
    code, _ = rooms.open(RUN, 3)
    for _ in range(room.LIMITS["guess"][0]):
        rooms.guess(code, "phone-00001", "word")
    assert refusal(rooms.guess, code, "phone-00001", "word") == 429
    for i in range(2 * room.MOST_CALLERS):
        rooms.count("read", f"address {i}")
    assert len(rooms._left) == room.MOST_CALLERS


def opened_room(client):
    made = client.post("/rooms", json=PLACE).json()
    return made["code"], made["key"]


def test_two_classes_of_thirty_guess_at_once_and_see_only_their_own(client):
    rooms = [opened_room(client) for _ in range(2)]
    assert rooms[0][0] != rooms[1][0]

    def send(number):
        code, _ = rooms[number % 2]
        return client.post(
            f"/rooms/{code}/guess",
            json={"phone": f"phone-{number:05}", "word": f"word{number % 2}"},
        ).status_code

    with ThreadPoolExecutor(30) as threads:
        assert set(threads.map(send, range(60))) == {200}
    for number, (code, key) in enumerate(rooms):
        seen = client.get(f"/rooms/{code}").json()
        assert seen["count"] == 30
        assert seen["own"] is None
        assert "guesses" not in seen
        asked = client.post(f"/rooms/{code}/projector", json={"key": key}).json()
        assert asked["guesses"] == []
        shown = client.post(f"/rooms/{code}/projector", json={"key": key, "show": True}).json()
        assert shown["guesses"] == [[f"word{number}", 30]]
        assert client.get(f"/rooms/{code}").json()["own"] == text_of(RUN)[1][12].strip()


def test_only_the_projector_moves_on_and_only_a_small_object_is_read(client):
    code, key = opened_room(client)
    there = f"/rooms/{code}/projector"
    for wrong in (b"", b"[]", b"null", b"{" * 900, b'{"key": 5}', b'{"key": "\\ud800"}'):
        assert client.post(there, content=wrong).status_code == 422
    assert client.post(there, content=b" " * 2000 + b'{"key": "x"}').status_code == 422
    assert client.post(there, json={"key": "x", "show": True}).status_code == 403
    assert client.post(there, json={"key": key, "at": "1"}).status_code == 422
    assert client.post(there, json={"key": key, "at": 20}).json()["at"] == 20
    assert client.get("/rooms/XXXX").status_code == 404
    hidden = {"phone": "phone-00001", "word": "a\N{RIGHT-TO-LEFT OVERRIDE}b"}
    assert client.post(f"/rooms/{code}/guess", json=hidden).status_code == 422


def test_the_link_for_phones_is_under_the_address_that_the_projector_uses(client, monkeypatch):
    code, key = opened_room(client)

    def link(page):
        asked = client.post(f"/rooms/{code}/projector", json={"key": key, "page": page})
        return asked.json()["link"]

    public = link("https://school.example/demo/room.html")
    assert public["address"] == f"https://school.example/demo/room.html?room={code}"
    assert public["qr"]["size"] > 20
    assert public["command"] == ""
    monkeypatch.setattr(room, "own_address", lambda: "192.168.1.5")
    assert link("http://127.0.0.1:7860/room.html")["command"]  # it listens on this machine alone
    there = room.phone_link("http://127.0.0.1:7860/room.html", code, "0.0.0.0")
    assert there["address"] == f"http://192.168.1.5:7860/room.html?room={code}"
    assert there["command"] == ""


def test_the_page_holds_its_words_in_each_language_and_no_text_ends_them_early():
    page = room.room_page()
    given = page.split('id="sd-data">')[1].split("</script>")[0]
    assert json.loads(given)["en"] == WORDS
    assert json.loads(given)["de"].keys() == WORDS.keys()
    assert "default-src 'self'" in page
