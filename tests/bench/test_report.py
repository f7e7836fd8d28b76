"""Tables of results: sums of runs, worst task, acceptance by position, calibration, and the oracle."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from specdemo.bench.bounds import Oracle, policies_table
from specdemo.bench.lanes import LaneResult, expand
from specdemo.bench.report import markdown
from specdemo.bench.results import LaneTotals, positions_table, summary_table
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


def test_the_oracle_drafts_what_is_kept_and_no_policy_beats_it():
    plain, long = lane("nothing", 0, 0), lane("draft_model:constant:8", 2, 8)
    oracle = Oracle(PROFILE)
    block = lane("draft_model:constant:16:block", 2, 16)  # has another text and is left out
    oracle.add("qa", [plain, long, lane("draft_model:constant:2", 2, 2), block])
    # Three tokens for a pass over three rows and two draft steps, against one token for 20 ms.
    assert oracle.speedup() == pytest.approx(3 / (0.022 + 0.004) * 0.02)
    assert Oracle(PROFILE).speedup() is None


def test_policies_are_compared_with_the_best_constant():
    report = LaneTotals("nothing")
    results = [
        lane("nothing", 0, 0),
        lane("draft_model:constant:1", 1, 1),
        lane("draft_model:constant:8", 2, 8),
        lane("draft_model:cost", 2, 2),
    ]
    report.add("qa", results)
    table = markdown(policies_table(report.rows(), 2.4))
    assert "draft_model:constant:1 (best constant)" in table
    cost = next(line for line in table.splitlines() if "draft_model:cost" in line)
    expected = (3 / 0.026) / (2 / 0.023) - 1
    assert f"{100 * expected:+.1f} %" in cost
    assert "oracle (modelled)" in table
    others = [row for row in report.rows() if "constant" not in row["lane"]]
    assert policies_table(others, 2.0).rows == []


def test_the_summary_names_the_worst_task_and_the_memory():
    report = LaneTotals("nothing")
    report.add("qa", [lane("nothing", 0, 0), lane("tree", 3, 4)])
    report.add("rag", [lane("nothing", 0, 0), lane("tree", 0, 4)])
    text = markdown(summary_table(report.rows(), {"tree": 8.9}))
    row = next(line for line in text.splitlines() if line.startswith("| tree"))
    assert "rag 0.62x" in row
    assert "| 9 " in row


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
    report = LaneTotals("nothing")
    report.add("qa", [lane("nothing", 0, 0), judged(*DRAFTS)])
    report.add("rag", [lane("nothing", 0, 0), judged(DRAFTS[0])])
    table = markdown(positions_table(report.rows()))
    assert "nothing" not in table
    row = next(line for line in table.splitlines() if line.startswith("| tree"))
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["83 %", "75 %", "0 %", "-", "-", "-"]


def test_the_calibration_error_is_that_of_all_runs_together():
    """Half of the tokens with probability .4 are accepted, and all of those with .8."""
    runs = [((KEPT, 0.4), (KEPT, 0.8)), ((REFUSED, 0.4), (KEPT, 0.8))]
    report = LaneTotals("nothing")
    for task, nodes in zip(("qa", "rag"), runs, strict=True):
        result = judged(tuple((-1, status) for status, _ in nodes))
        step = result.events[0]
        said = tuple(
            replace(node, survival=chance)
            for node, (_, chance) in zip(step.nodes, nodes, strict=True)
        )
        metrics = measure([replace(step, nodes=said)])
        assert calibration_error(metrics.survivals) == pytest.approx(0.4 if task == "qa" else 0.3)
        report.add(task, [lane("nothing", 0, 0), replace(result, metrics=metrics)])
    means = {row["lane"]: row for row in report.rows() if row["task"] == "mean"}
    assert means["tree"]["survival_error"] == pytest.approx((2 * 0.1 + 2 * 0.2) / 4)
    assert means["nothing"]["survival_error"] is None
    assert "15.0 %" in markdown(positions_table(report.rows()))


def test_the_summary_names_the_minutes_of_training():
    report = LaneTotals("nothing")
    report.add("qa", [lane("nothing", 0, 0), lane("tree:cost", 3, 4)])
    text = markdown(summary_table(report.rows(), {"tree": 8.9}, {"tree": 45.2}))
    rows = [line.split("|") for line in text.splitlines()]
    assert rows[0][-2].strip() == "training min"
    assert {row[1].strip(): row[-2].strip() for row in rows[2:]} == {
        "nothing": "-",
        "tree:cost": "45",
    }


def test_trained_stands_for_methods_with_weights_of_their_own():
    here = [SimpleNamespace(name=name, available=name != "medusa") for name in METHODS]
    studio = SimpleNamespace(methods=lambda: here)
    own = ["feature", "feature_tree", "exit", "block", "block_tree", "jet"]
    assert expand("trained,draft", studio) == [*own, "draft"]
