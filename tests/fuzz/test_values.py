"""Values and links that no page sends: each is used or refused with a message."""

import json
import random
from urllib.parse import urlencode

import gradio as gr
import pytest
from fuzz.odd import COUNT, SEED, text, value

from specdemo.cli.commands.app import make_page
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, widget_order
from specdemo.config.strings import strings
from specdemo.session.studio import Studio
from specdemo.ui.checks import asked_settings, asked_text, check_values
from specdemo.ui.links import follow, read_link


@pytest.fixture(scope="module")
def page():
    return make_page(Studio(AppSettings(target="none")))


def test_any_value_of_any_event_is_taken_or_refused(page):
    events = [event for event in page.fns.values() if event.inputs]
    rng = random.Random(SEED)
    told: list[str] = []
    for _ in range(COUNT):
        blocks = rng.choice(events).inputs
        values = [getattr(block, "value", None) for block in blocks]
        for at in rng.sample(range(len(values)), min(len(values), rng.randint(1, 2))):
            values[at] = value(rng)
        if rng.random() < 0.05:
            values.append(value(rng))
        try:
            check_values(blocks, values)
        except UserError as error:
            told.append(str(error))
            continue
        for block, given in zip(blocks, values, strict=True):
            if isinstance(block, gr.Number | gr.Slider):
                assert given is None or (abs(given) <= 1.8e308 and given == given)
    assert 0.2 < len(told) / COUNT < 1
    assert max(map(len, told)) < 500
    assert "".join(told).encode()


def test_any_settings_give_a_run_or_are_refused():
    rng = random.Random(SEED)
    names = widget_order()
    limits = AppSettings()
    plain = {name: RunSettings().value(name) for name in names}
    taken = 0
    told: list[str] = []
    for _ in range(COUNT):
        values = {**plain, **{rng.choice(names): value(rng) for _ in range(rng.randint(1, 2))}}
        try:
            settings = asked_settings(values, limits).checked()
        except UserError as error:
            told.append(str(error))
            continue
        taken += 1
        assert RunSettings.from_values({n: settings.value(n) for n in names}) == settings
    assert taken
    assert max(map(len, told)) < 500


def test_any_text_is_taken_unchanged_or_refused():
    rng = random.Random(SEED)
    for _ in range(COUNT):
        given = value(rng)
        try:
            text = asked_text(given)
        except UserError as error:
            str(error).encode()
            continue
        text.encode()
        assert text == (given or "")


teach = strings("teach")


def link(rng: random.Random, names: list[str]) -> str:
    pairs = []
    for _ in range(rng.randint(1, 6)):
        name = rng.choice([*names, "tab", "recorded", "__proto__", text(rng)])
        pairs.append((name, value(rng)))
    query = "&".join(f"{name}={given}" for name, given in pairs)
    if rng.random() < 0.7:
        query = urlencode(pairs, errors="replace")
    if rng.random() < 0.7:
        return query
    at = rng.randrange(len(query) + 1)
    return query[:at] + rng.choice(("%", "%ff", "&&", "=", ";", "%00", "+")) + query[at:]


def test_any_link_is_followed_or_refused(page):
    call = next(fn for fn in page.fns.values() if getattr(fn.fn, "func", None) is follow)
    fields = call.fn.keywords["fields"]  # controls by their names in a link
    rng = random.Random(SEED)
    names, tabs = list(fields), ("play", "race")
    told = str(teach.WORDS["unknown_value"]).partition("{")[0]
    for _ in range(COUNT):
        query = link(rng, names).encode(errors="replace").decode()  # half characters stay outside
        values, problems = read_link(query, fields, tabs)
        assert values.keys() <= {*names, "tab", "recorded"}
        assert all(problem.startswith(told) for problem in problems)
        assert values.get("tab", "play") in tabs
        updates = follow(query, fields, tabs)
        assert len(updates) == 2 + len(names)
        assert json.loads(updates[0]) == problems
