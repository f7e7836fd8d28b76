"""State of each visit: the model that its page shows, and its number of runs."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gradio.context import LocalContext

from specdemo.config.errors import UserError
from specdemo.config.settings import loopback
from specdemo.session.door import Changed, EngineClient

MOST_VISITS = 4096  # visits in memory; the least recently active are dropped first
MINUTE = 60.0


@dataclass(slots=True)
class Visit:
    """One open page. told: name and precision of the model that it shows; begun: start times of its runs"""

    told: tuple[str, str] | None = None
    begun: deque[float] = field(default_factory=deque)


class Visits:
    """The open pages by their session. Safe to use from several threads: each touches its own visit."""

    def __init__(self, runs_a_minute: int) -> None:
        self.runs_a_minute = runs_a_minute
        self._visits: OrderedDict[str, Visit] = OrderedDict()

    def of(self, session: str) -> Visit:
        """Return the visit of a session, a new one for an unknown session."""
        visit = self._visits.setdefault(session, Visit())
        self._visits.move_to_end(session)
        while len(self._visits) > MOST_VISITS:
            self._visits.popitem(last=False)
        return visit


def tell(studio: EngineClient, visitor: str | None = None) -> None:
    """Note that a visitor sees the loaded model. visitor: default: the current session"""
    visits, visit = _here(visitor)
    if visits and studio.ready:
        visit.told = studio.target.name, studio.target.precision


def check_run(studio: EngineClient, visitor: str | None = None, *, begins: bool = False) -> None:
    """Check before a part of a run. Raises UserError if the visitor's page shows another model, or for one run too many.

    begins: it is the first part, so the run is counted
    """
    visits, visit = _here(visitor)
    if visits:
        model = studio.target.name, studio.target.precision
        known, visit.told = visit.told, model
        if known not in (None, model):
            raise Changed(studio.target)
        if begins:
            _count(visit, visits.runs_a_minute, time.monotonic())


def switch_allowed(studio: EngineClient) -> bool:
    """Return whether the current visitor may load another model.

    A private page may be shared through a tunnel that the settings do not mention; its host name shows it.
    """
    if studio.settings.allow_model_switch == "off":
        return False
    request = LocalContext.request.get(None)
    if studio.settings.public or request is None:
        return True
    return loopback(urlsplit(f"//{request.headers.get('host', '')}").hostname or "")


def _count(visit: Visit, most: int, now: float) -> None:
    """Note a run. most: in a minute; 0 is no limit. now: seconds. Raises UserError for one too many."""
    if not most:
        return
    while visit.begun and now - visit.begun[0] >= MINUTE:
        visit.begun.popleft()
    if len(visit.begun) >= most:
        seconds = math.ceil(MINUTE - (now - visit.begun[0]))
        raise UserError("run.too_often", most=most, seconds=seconds)
    visit.begun.append(now)


def _here(visitor: str | None) -> tuple[Visits | None, Visit]:
    """Return a visitor's visit, by default of the session whose event is handled; no visits outside of a page."""
    page, request = LocalContext.blocks.get(None), LocalContext.request.get(None)
    visits = getattr(page, "visits", None)
    known = visitor or getattr(request, "session_hash", None)
    if visits is None or request is None or not known:
        return None, Visit()
    return visits, visits.of(known)
