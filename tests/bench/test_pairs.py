"""What a choice among methods could give, worked out by hand, and the table of a pair."""

from __future__ import annotations

import pytest
from conftest import header

from specdemo.bench.hindsight import Hindsight, shortest_seconds
from specdemo.bench.lanes import LaneResult
from specdemo.bench.pairs import PairResult, as_file
from specdemo.trace.events import Node, Status, Verified
from specdemo.trace.metrics import measure

IDS = (1, 2, 3, 4, 5, 6)


def lane(name, *steps, ids=IDS):
    """A lane by its steps: (tokens, seconds) each."""
    events, elapsed = [header()], 0.0
    for number, (tokens, seconds) in enumerate(steps):
        elapsed += seconds
        nodes = tuple(
            Node(9, parent=place - 1, status=Status.ACCEPTED) for place in range(tokens - 1)
        )
        path = tuple(range(tokens - 1))
        events.append(
            Verified("speculative", number, nodes, path, Node(9), 0.0, seconds, 0.0, elapsed)
        )
    return LaneResult(name, measure(events), ids, (), tuple(events))


PLAIN = lane("nothing", *[(1, 1.0)] * 6)
# Three tokens at once to begin with, then a draft for nothing; and the other way round.
EARLY = lane("early", (3, 1.5), (1, 2.0), (1, 2.0), (1, 2.0))
LATE = lane("late", (1, 2.0), (1, 2.0), (1, 2.0), (3, 1.5))


def test_the_best_choice_takes_each_lanes_good_steps():
    assert shortest_seconds([PLAIN]) == pytest.approx(6.0)
    assert shortest_seconds([PLAIN, EARLY]) == pytest.approx(4.5)
    assert shortest_seconds([PLAIN, EARLY, LATE]) == pytest.approx(3.0)


def test_a_text_that_differs_is_left_out_and_tasks_count_alike():
    hindsight = Hindsight()
    assert hindsight.speedup() is None
    hindsight.add("copy", [PLAIN, EARLY, lane("other", (6, 0.1), ids=(7,) * 6)])
    hindsight.add("talk", [PLAIN])
    assert hindsight.speedup() == pytest.approx((6 / 4.5 + 1) / 2)


def rows(lane, speedups, **known):
    usual = {
        "tokens_per_second": 12.0, "first_accept_rate": 0.6, "tokens_per_step": 2.5,
        "draft_ms_per_token": 1.0, "verify_ms_per_step": 60.0, "same_output_rate": 1.0,
    }  # fmt: skip
    return [
        {"lane": lane, "task": task, "speedup": speedup} | usual | known
        for task, speedup in speedups.items()
    ]


def test_the_table_says_the_worst_task_and_what_the_best_single_method_gives():
    found = PairResult(
        "heavy", "greedy",
        [
            *rows("nothing", {"qa": 1.0, "rag": 1.0, "mean": 1.0}, draft_ms_per_token=None),
            *rows("auto", {"qa": 1.1, "rag": 2.9, "mean": 2.0}),
            *rows("ngram", {"qa": 1.0, "rag": 2.2, "mean": 1.6}),
            *rows("feature:constant:4", {"qa": 1.9, "rag": 1.9, "mean": 1.9}),
        ],
        2.5,
    )  # fmt: skip
    line = dict(zip(as_file([found], 2, 128)["tables"][0]["columns"], found.choice(), strict=True))
    assert line["worst task"] == "qa 1.10x"
    assert line["best single method"] == "ngram 1.60x"
    assert line["auto over it"] == "1.25"
    assert line["best choice, modelled"] == "2.50x"
    assert [cells[-1] for cells in found.drafts()] == ["1/60"] * 3
    assert found.by_task()[0] == ["heavy", "greedy", "auto", "1.10x", "2.90x"]
