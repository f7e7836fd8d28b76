"""A race as the lines that the script reads: which lane runs, what it is called, and races of recorded runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from specdemo.config.settings import RunSettings
from specdemo.config.strings import strings
from specdemo.session.door import MethodInfo
from specdemo.session.work.race import RecordedRace
from specdemo.ui import present

words = strings("race")

RACED = json.dumps({"type": "raced"}) + "\n"  # no lane runs any more


def lane_line(index: int, title: str, **recorded: str) -> str:
    """Whose the events after it are. recorded: `run` and `lane` where they lie in a recorded run instead"""
    return json.dumps({"type": "lane", "index": index, "title": title, **recorded}) + "\n"


def recorded_lines(race: RecordedRace, methods: Sequence[MethodInfo]) -> str:
    """A recorded race; its runs are fetched by the script."""
    lanes = []
    for lane in race.lanes:
        title = lane_title(methods, lane.method, lane.settings)
        if race.precisions:
            title = words.TITLE_PRECISION.format(precision=lane.precision, title=title)
        lanes.append({"title": title, "run": lane.run, "lane": lane.lane})
    opening = present.open_line("recorded", uuid.uuid4().hex, title=race.prompt)
    return opening + "".join(lane_line(i, **lane) for i, lane in enumerate(lanes)) + RACED


def lane_title(methods: Sequence[MethodInfo], name: str, settings: Mapping[str, Any]) -> str:
    """What a lane is called: its method, and how far it drafts by the settings that the method reads."""
    method = next((one for one in methods if one.name == name), None)
    options = method.options if method else ("policy", "lookahead")
    if "lookahead" not in options:
        pattern = "{method}"
    elif "policy" not in options:
        pattern = words.TITLE_DEPTH
    else:
        fixed = settings.get("policy") == "constant"
        pattern = words.TITLE_FIXED if fixed else words.TITLE_POLICY
    policy = settings.get("policy", RunSettings().policy)
    return pattern.format(
        method=method.title if method else name,
        policy=words.POLICIES.get(policy, policy),
        lookahead=settings.get("lookahead", RunSettings().lookahead),
    )


def recorded_title(race: RecordedRace) -> str:
    """A recorded race in the menu."""
    if race.precisions:
        names = " / ".join(dict.fromkeys(lane.precision for lane in race.lanes))
        return words.RECORDED_PRECISIONS.format(precisions=names, prompt=race.prompt)
    return words.RECORDED.format(lanes=len(race.lanes), prompt=race.prompt)
