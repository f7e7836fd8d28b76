"""Tables of results: sums of runs, worst task, acceptance by position, calibration, and the oracle."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from specdemo.bench.lanes import LaneResult, Paired, expand
from specdemo.bench.report import markdown
from specdemo.bench.results import (
    BenchAnswers,
    lanes_table,
    oracle_speedup,
    policies_table,
    positions_table,
)
from specdemo.drafters.methods import METHODS
from specdemo.engine.cost import CostProfile
from specdemo.trace.events import Node, Status, Verified
from specdemo.trace.metrics import calibration_error, measure, output_ids

PROFILE = CostProfile(((1, 0.02), (5, 0.024)), 0.002)


def lane(name, kept, drafted, steps=10, *, draft=0.002):
    """Return a result of steps with constant numbers of drafted and accepted tokens, at the profile's cost."""
    events, elapsed = [], 0.0
    for number in range(steps):
        nodes = tuple(
            Node(
                place, parent=place - 1, status=Status.ACCEPTED if place < kept else Status.REJECTED
            )
            for place in range(drafted)
        )
        seconds = PROFILE.verify_seconds(1 + drafted)
        elapsed += seconds + draft * drafted
        events.append(
            Verified(
                "speculative",
                number,
                nodes,
                tuple(range(kept)),
                Node(9),
                draft * drafted,
                seconds,
                0.0,
                elapsed,
            )
        )
    ids = tuple(output_ids(events))
    accepted = tuple(len(event.path) for event in events)
    return LaneResult(name, measure(events), ids, (0.5,) * len(ids), accepted)


def measured(**tasks):
    """Return the answers to one prompt of each task, the first one being plain decoding's."""
    found = BenchAnswers()
    for task, results in tasks.items():
        found.add(task, task, [Paired(one, results[0]) for one in results])
    return found


def test_the_oracle_drafts_what_is_kept_and_no_policy_beats_it():
    plain, long = lane("nothing", 0, 0), lane("draft_model:constant:8", 2, 8)
    block = lane("draft_model:constant:16:block", 2, 16)  # has another text and is left out
    found = measured(qa=[plain, long, lane("draft_model:constant:2", 2, 2), block])
    # Three tokens for a pass over three rows and two draft steps, against one token for 20 ms.
    costs = asdict(PROFILE)
    assert oracle_speedup(found, costs) == pytest.approx(3 / (0.022 + 0.004) * 0.02)
    assert oracle_speedup(BenchAnswers(), costs) is None


def test_policies_are_compared_with_the_best_constant():
    results = [
        lane("nothing", 0, 0),
        lane("draft_model:constant:1", 1, 1),
        lane("draft_model:constant:8", 2, 8),
        lane("draft_model:cost", 2, 2),
    ]
    rows = [row for row in measured(qa=results).rows() if row["task"] == "all"]
    table = markdown(policies_table(rows, 2.4))
    assert "draft_model:constant:1 (best constant)" in table
    cost = next(line for line in table.splitlines() if "draft_model:cost" in line)
    expected = (3 / 0.026) / (2 / 0.023) - 1
    assert f"{100 * expected:+.1f} %" in cost
    assert "oracle (modelled)" in table
    others = [row for row in rows if "constant" not in row["lane"]]
    assert policies_table(others, 2.0).rows == []


def test_the_lanes_table_has_memory_and_training_and_no_empty_columns():
    rows = measured(qa=[lane("nothing", 0, 0), lane("tree", 3, 4)]).rows()
    rows[-1] |= {"memory_mb": 8.9, "training_minutes": 45.2}
    table = lanes_table(rows)
    shown = dict(zip(table.columns, table.rows[1], strict=True))
    assert (shown["memory MB"], shown["training min"]) == ("9", "45")
    assert "disturbed pairs" not in table.columns
    assert "prepared drafts used" not in table.columns


def judged(*drafts):
    """Return a result with one step per draft; a draft is (parent, status) for each node."""
    steps = [
        Verified(
            "speculative",
            number,
            tuple(Node(0, parent=parent, status=status) for parent, status in draft),
            tuple(node for node, (_, status) in enumerate(draft) if status is Status.ACCEPTED),
            Node(9),
            0.001,
            0.02,
            0.0,
            0.021 * (number + 1),
        )
        for number, draft in enumerate(drafts)
    ]
    return LaneResult(
        "tree", measure(steps), tuple(output_ids(steps)), (0.5,) * 20, (), tuple(steps)
    )


KEPT, REFUSED, UNSEEN = Status.ACCEPTED, Status.REJECTED, Status.UNREACHED
DRAFTS = (
    ((-1, KEPT), (0, KEPT), (1, REFUSED), (2, UNSEEN)),  # a chain
    ((-1, REFUSED), (-1, KEPT), (0, UNSEEN), (1, REFUSED)),  # a tree of two branches
    ((-1, REFUSED), (0, UNSEEN)),
    (),  # nothing drafted
)


def test_acceptance_by_position_counts_only_what_was_tested():
    metrics = judged(*DRAFTS).metrics
    assert metrics.positions == ((3, 2), (2, 1), (1, 0), (0, 0))
    assert metrics.accept_by_position == (2 / 3, 1 / 2, 0.0, None)


def test_the_report_tells_acceptance_by_position():
    plain = lane("nothing", 0, 0)
    table = markdown(positions_table(measured(qa=[plain, judged(*DRAFTS)]).rows()))
    assert "nothing" not in table
    row = next(line for line in table.splitlines() if line.startswith("| tree"))
    assert [cell.strip() for cell in row.split("|")[2:-1]] == [
        "67 %",
        "50 %",
        "0 %",
        "-",
        "-",
        "-",
    ]


def test_the_calibration_error_is_that_of_all_runs_together():
    """Half of the tokens with probability .4 are accepted, and all of those with .8."""
    runs = [((KEPT, 0.4), (KEPT, 0.8)), ((REFUSED, 0.4), (KEPT, 0.8))]
    tasks = {}
    for task, nodes in zip(("qa", "rag"), runs, strict=True):
        result = judged(tuple((-1, status) for status, _ in nodes))
        step = result.events[0]
        said = tuple(
            replace(node, survival=chance)
            for node, (_, chance) in zip(step.nodes, nodes, strict=True)
        )
        metrics = measure([replace(step, nodes=said)])
        assert calibration_error(metrics.survivals) == pytest.approx(0.4 if task == "qa" else 0.3)
        tasks[task] = [lane("nothing", 0, 0), replace(result, metrics=metrics)]
    rows = measured(**tasks).rows()
    means = {row["lane"]: row for row in rows if row["task"] == "all"}
    assert means["tree"]["survival_error"] == pytest.approx((2 * 0.1 + 2 * 0.2) / 4)
    assert means["nothing"]["survival_error"] is None
    assert "15.0 %" in markdown(positions_table(rows))


def test_trained_stands_for_methods_with_weights_of_their_own():
    here = [SimpleNamespace(name=name, available=name != "medusa") for name in METHODS]
    studio = SimpleNamespace(methods=lambda: here, known=METHODS)
    own = ["feature", "feature_tree", "exit", "block", "block_tree", "jet"]
    assert expand("trained,draft", studio) == [*own, "draft"]
    assert expand("trained:constant:4", studio) == [f"{name}:constant:4" for name in own]
    found = expand("methods:constant:4", studio)
    assert found[:2] == ["auto", "draft_model:constant:4"]  # auto has no policy
    assert not {"nothing", "medusa:constant:4"} & set(found)
