"""What the streaming bench compares are the same runs."""

from __future__ import annotations

import json

import pytest

from specdemo.bench.streaming import DETAIL, Streaming, inputs, last_value, rates, table
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings, Sampling, widget_order
from specdemo.trace.events import Node, RunFinished, Status, Verified
from specdemo.ui.tabs import play


def test_the_page_is_asked_for_the_same_run():
    settings = RunSettings(
        method="tree", nodes=7, fallback=False, sampling=Sampling(0.7, 40, 0.9, 1.1, 5)
    )
    asked = dict(zip(widget_order(), inputs(settings), strict=True))
    assert RunSettings.from_values(asked) == settings
    assert play.DETAIL == DETAIL


def test_rates_are_of_the_last_lane_and_of_the_wall():
    def lane(name, tokens, seconds):
        own = Node(1, status=Status.PLAIN)
        steps = [
            Verified(name, step, (), (), own, 0.0, 0.1, 0.0, seconds * (step + 1) / tokens)
            for step in range(tokens)
        ]
        return [*steps, RunFinished(name, "length", tokens, seconds)]

    events = [*lane("plain", 10, 5.0), *lane("speculative", 10, 2.0)]
    assert rates(events, 10.0) == (pytest.approx(5.0), pytest.approx(2.0))


def test_the_table_says_what_streaming_costs():
    found = Streaming(100.0, 96.0, 90.0, 80.0, 0.04, (0.01, 0.06))
    assert "4.0% (quartiles 1.0% to 6.0%)" in table(found)


def sent(*messages):
    return "".join(f"data: {json.dumps(message)}\n\n" for message in messages).encode()


def test_what_was_streamed_is_put_together_afterwards():
    came = sent(
        {"msg": "process_starts"},
        {"msg": "process_generating", "output": {"data": ["one\n"]}},
        {"msg": "process_generating", "output": {"data": [[["append", [], "two\n"]]]}},
        {"msg": "process_generating", "output": {"data": [[["replace", [], "three\n"]]]}},
        {"msg": "process_completed", "output": {"data": ["three\n"]}, "success": True},
    )
    assert last_value(came) == "three\n"


def test_a_handler_that_fails_is_no_measurement():
    with pytest.raises(UserError, match="could not answer"):
        last_value(sent({"msg": "process_completed", "output": {}, "success": False}))
