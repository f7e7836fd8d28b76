"""A race as the lines that the script reads: which lane runs, what it is called, and races of recorded runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from specdemo.scenarios.race import NOTHING, RecordedRace
from specdemo.settings import RunSettings
from specdemo.ui import present
from specdemo.ui.words.en import race as words

RACED = json.dumps({"type": "raced"}) + "\n"  # no lane runs any more


def lane_line(index: int, title: str, **recorded: str) -> str:
    """Whose the events after it are. recorded: `run` and `lane` where they lie in a recorded run instead"""
    return json.dumps({"type": "lane", "index": index, "title": title, **recorded}) + "\n"


def recorded_lines(race: RecordedRace, titles: Mapping[str, str]) -> str:
    """A recorded race; its runs are fetched by the script. titles: of the methods, by name"""
    lanes = []
    for lane in race.lanes:
        title = lane_title(titles, lane.method, lane.settings)
        if race.precisions:
            title = words.TITLE_PRECISION.format(precision=lane.precision, title=title)
        lanes.append({"title": title, "run": lane.run, "lane": lane.lane})
    opening = present.open_line("recorded", uuid.uuid4().hex, title=race.prompt)
    return opening + "".join(lane_line(i, **lane) for i, lane in enumerate(lanes)) + RACED


def lane_title(titles: Mapping[str, str], method: str, settings: Mapping[str, Any]) -> str:
    """What a lane is called: its method, and how far it drafts."""
    title, policy = titles.get(method, method), settings.get("policy", "cost")
    if method == NOTHING:
        return title
    pattern = words.TITLE_FIXED if policy == "constant" else words.TITLE_POLICY
    if method == "auto":
        pattern = words.TITLE_DEPTH
    return pattern.format(
        method=title,
        policy=words.POLICIES.get(policy, policy),
        lookahead=settings.get("lookahead", RunSettings().lookahead),
    )


def recorded_title(race: RecordedRace) -> str:
    """A recorded race in the menu."""
    if race.precisions:
        names = " / ".join(dict.fromkeys(lane.precision for lane in race.lanes))
        return words.RECORDED_PRECISIONS.format(precisions=names, prompt=race.prompt)
    return words.RECORDED.format(lanes=len(race.lanes), prompt=race.prompt)
