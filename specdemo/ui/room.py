"""Class mode of the game: a class guesses the next word of a recorded text, and the projector shows the guesses.

A room is in memory only. It holds a place in a text and one guess of each phone; nobody has a name.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from specdemo.config.strings import Json, load
from specdemo.trace.events import PLAIN, RunStarted
from specdemo.trace.metrics import output_text
from specdemo.trace.replay import RUNS, parse, recorded_runs
from specdemo.ui import words
from specdemo.ui.files import address
from specdemo.ui.links import OTHERS, others_reach, own_address, qr
from specdemo.ui.player import data_block, html_page, style_links

MOST_ROOMS = 50
MOST_PHONES = 100  # guesses for one word
MOST_CALLERS = 4096  # addresses whose calls are counted
MOST_BYTES = 1000  # length of a call
LONGEST_GUESS = 24  # characters
SHOWN_BEFORE = 400  # characters before the word, for the phones
IDLE_SECONDS = 900  # time that a room stays without its projector
LONGEST_SECONDS = 4 * 3600
ALPHABET = "ACDEFHJKLMNPRTUVWXY3479"  # no two of them are similar
CODE_LENGTH = 4
# Calls immediately, and each second after that. A class behind one address is one caller.
LIMITS = {"open": (6, 0.1), "guess": (120, 20.0), "read": (300, 100.0)}
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


Text = Annotated[str, AfterValidator(_printable)]


class Call(BaseModel):
    """Values that a page sends; each call needs some of them.

    run, at: of the word to guess; key: of the projector; page: its address; show: whether to show the guesses
    phone, word: a phone's own id and its guess
    """

    model_config = ConfigDict(strict=True)

    run: Text = ""
    at: int | None = None
    key: Text = ""
    page: Text | None = None
    show: bool = False
    phone: Text = ""
    word: Text = ""


@dataclass(slots=True)
class Room:
    """A class. at: index of the word to guess; shown: whether guesses are on the projector; guesses: by each phone's own id"""

    run: str
    at: int
    key: str
    born: float
    used: float
    shown: bool = False
    guesses: dict[str, str] = field(default_factory=dict)

    def go_to(self, at: int) -> None:
        """Let another word of the text be guessed."""
        _check_place(self.run, at)
        self.at, self.shown, self.guesses = at, False, {}


class Rooms:
    """The rooms by their codes. For one thread: the server's event loop. Every refusal is an HTTPException."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rooms: dict[str, Room] = {}
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def count(self, kind: str, caller: str) -> None:
        """Count a call of a kind of LIMITS. caller: an address, or a room's code"""
        most, a_second = LIMITS[kind]
        now = self._clock()
        left, since = self._left.pop((kind, caller), (float(most), now))
        left = min(most, left + (now - since) * a_second)
        self._left[kind, caller] = (left - (left >= 1), now)
        if len(self._left) > MOST_CALLERS:
            self._left.popitem(last=False)
        if left < 1:
            raise HTTPException(429)

    def open(self, run: str, at: int) -> tuple[str, Room]:
        """Open a room at a word of a recorded run. returns: its code and the room"""
        _check_place(run, at)
        self._forget()
        if len(self._rooms) >= MOST_ROOMS:
            raise HTTPException(503)
        code = ""
        while not code or code in self._rooms:
            code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
        now = self._clock()
        self._rooms[code] = Room(run, at, secrets.token_urlsafe(12), now, now)
        return code, self._rooms[code]

    def room(self, code: str) -> Room:
        """Return the room of a code."""
        self._forget()
        if code.upper() not in self._rooms:
            raise HTTPException(404)
        return self._rooms[code.upper()]

    def own(self, code: str, key: str) -> Room:
        """Return the room of a code for its projector, and note that it is used."""
        room = self.room(code)
        if not secrets.compare_digest(room.key.encode(), key.encode()):
            raise HTTPException(403)
        room.used = self._clock()
        return room

    def guess(self, code: str, phone: str, word: str) -> None:
        """Note the guess of a phone for the present word; a later one replaces it."""
        room = self.room(code)
        self.count("guess", code.upper())
        word = word.strip()
        if not (
            re.fullmatch(rf"\S{{1,{LONGEST_GUESS}}}", word) and re.fullmatch(r"[\w-]{8,40}", phone)
        ):
            raise HTTPException(422)
        if room.shown or (phone not in room.guesses and len(room.guesses) >= MOST_PHONES):
            raise HTTPException(409)
        room.guesses[phone] = word

    def _forget(self) -> None:
        now = self._clock()
        self._rooms = {
            code: room
            for code, room in self._rooms.items()
            if now - room.used < IDLE_SECONDS and now - room.born < LONGEST_SECONDS
        }


def state(room: Room) -> Json:
    """Return the state for all phones: the text before the word, and the target's own word once it is shown."""
    prompt, text = text_of(room.run)
    return {
        "at": room.at,
        "prompt": prompt,
        "before": "".join(text[: room.at])[-SHOWN_BEFORE:],
        "count": len(room.guesses),
        "own": text[room.at].strip() if room.shown else None,
    }


@cache
def text_of(run: str) -> tuple[str, tuple[str, ...]]:
    """Return prompt and words of a recorded run without drafts, each word with the blanks after it."""
    if run not in {one.name for one in recorded_runs()}:
        raise HTTPException(422)
    events = parse((RUNS / f"{run}.jsonl").read_text(encoding="utf-8")).trace.events
    plain = [event for event in events if event.lane == PLAIN]
    prompt = next((event.prompt for event in plain if isinstance(event, RunStarted)), "")
    return prompt, tuple(re.findall(r"\S+\s*", output_text(plain)))


def _check_place(run: str, at: int) -> None:
    if not 0 < at < len(text_of(run)[1]):
        raise HTTPException(422)


def room_routes(host: str) -> list[Route]:
    """Return the routes of the page of a room and of its calls. host: the address on which the server listens"""
    rooms = Rooms()

    def route(path: str, kind: str, answer: Callable[[str, Call], object], method: str) -> Route:
        async def handle(request: Request) -> Response:
            rooms.count(kind, request.client.host if request.client else "")
            asked = await _asked(request) if method == "POST" else Call()
            found = answer(request.path_params.get("code", ""), asked)
            return JSONResponse(found, headers={"cache-control": "no-store"})

        return Route(path, handle, methods=[method])

    def opened(_code: str, asked: Call) -> Json:
        code, room = rooms.open(asked.run, asked.at or 0)
        return {"code": code, "key": room.key}

    def read(code: str, _asked: Call) -> Json:
        return state(rooms.room(code))

    def guessed(code: str, asked: Call) -> Json:
        rooms.guess(code, asked.phone, asked.word)
        return {}

    def projected(code: str, asked: Call) -> Json:
        """Show the guesses, or go to another word, and return the room's state with the link for phones, if asked for."""
        room = rooms.own(code, asked.key)
        if asked.show:
            room.shown = True
        if asked.at is not None:
            room.go_to(asked.at)
        link = None if asked.page is None else phone_link(asked.page, code, host)
        guesses = Counter(room.guesses.values()).most_common() if room.shown else []
        return {**state(room), "run": room.run, "guesses": guesses, "link": link}

    async def page(_request: Request) -> Response:
        return HTMLResponse(room_page())

    return [
        Route("/room.html", page),
        route("/rooms", "open", opened, "POST"),
        route("/rooms/{code}", "read", read, "GET"),
        route("/rooms/{code}/guess", "guess", guessed, "POST"),
        route("/rooms/{code}/projector", "read", projected, "POST"),
    ]


def phone_link(page: str, code: str, host: str) -> Json:
    """Return the address that phones open, its QR code, and a command if they cannot reach this machine yet. page: the projector's"""
    parts = urlsplit(page)
    reach = others_reach(f"{parts.scheme}://{parts.netloc}", host, own_address())
    there = urlsplit(reach["address"]).netloc or parts.netloc
    address_ = parts._replace(netloc=there, query=f"room={code}", fragment="").geturl()
    command = OTHERS if reach["sentence"] and not reach["address"] else ""
    return {"address": address_, "qr": qr(address_), "command": command}


@cache
def room_page() -> str:
    """Return the page for phones and projector: a few scripts, without Gradio, in each language."""
    said = {
        language: load("lessons", language)["WORDS"]["moments"]["yourself"]["room"]
        for language in ("en", *words.languages())
    }
    script = f'<script type="module" src="{address("view/site/room.js")}"></script>'
    body = [data_block("sd-data", said), script]
    return html_page(words.TITLE, POLICY, [style_links(address)], body)


async def _asked(request: Request) -> Call:
    body = await request.body()
    try:
        return Call.model_validate_json(body if len(body) <= MOST_BYTES else b"")
    except ValidationError:
        raise HTTPException(422) from None
