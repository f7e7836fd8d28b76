"""Links from elsewhere: each value is used, or refused with an error for the user."""

from __future__ import annotations

import json
import random
from urllib.parse import quote, urlencode

import pytest
from fuzz.odd import COUNT, SEED, text, value

from specdemo.cli.commands.app import make_page
from specdemo.config.settings import AppSettings
from specdemo.config.strings import strings
from specdemo.session.studio import Studio
from specdemo.ui.links import follow, read_link

teach = strings("teach")


@pytest.fixture(scope="module")
def fields():
    """The controls of the page by their names in a link."""
    page = make_page(Studio(AppSettings(target="none")))
    call = next(fn for fn in page.fns.values() if getattr(fn.fn, "func", None) is follow)
    return call.fn.keywords["fields"]


def link(rng: random.Random, names: list[str]) -> str:
    pairs = []
    for _ in range(rng.randint(1, 6)):
        name = rng.choice([*names, "tab", "recorded", "__proto__", text(rng)])
        pairs.append((name, value(rng)))
    query = (
        urlencode(pairs, errors="replace")
        if rng.random() < 0.7
        else "&".join(f"{n}={v}" for n, v in pairs)
    )
    at = rng.randrange(len(query) + 1)
    return (
        query
        if rng.random() < 0.7
        else query[:at] + rng.choice(("%", "%ff", "&&", "=", ";", "%00", "+")) + query[at:]
    )


def test_any_link_is_followed_or_told(fields):
    rng = random.Random(SEED)
    names, tabs = list(fields), ("play", "race")
    told = str(teach.WORDS["unknown_value"]).partition("{")[0]
    for _ in range(COUNT):
        query = (
            link(rng, names).encode(errors="replace").decode()
        )  # half characters come no further than the door
        values, problems = read_link(query, fields, tabs)
        assert values.keys() <= {*names, "tab", "recorded"}
        assert all(problem.startswith(told) for problem in problems)
        assert values.get("tab", "play") in tabs
        updates = follow(query, fields, tabs)
        assert len(updates) == 2 + len(names)
        assert json.loads(updates[0]) == problems


def test_a_link_is_read_as_it_was_written(fields):
    values, problems = read_link(f"prompt={quote('<b>&x=1')}&temp=0.5", fields, ())
    assert not problems
    assert values["prompt"] == "<b>&x=1"
