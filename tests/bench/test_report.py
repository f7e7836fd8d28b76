"""Reports: every number from the lanes' own runs, the worst task named, and the oracle above every policy."""

from __future__ import annotations

import pytest

from specdemo.bench.lanes import LaneResult
from specdemo.bench.policies import Oracle, regret_table
from specdemo.bench.report import Report, summary
from specdemo.engine.cost import CostProfile
from specdemo.trace.events import Node, Status, Verified
from specdemo.trace.metrics import measure, output_ids

PROFILE = CostProfile(((1, 0.02), (5, 0.024)), 0.002)


def lane(name, kept, drafted, steps=10, *, draft=0.002):
    """Steps that drafted so many tokens and kept so many, at the profile's cost."""
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
    return LaneResult(name, measure(events), ids, (0.5,) * len(ids), tuple(events))


def test_the_oracle_drafts_what_is_kept_and_no_policy_beats_it():
    plain, long = lane("nothing", 0, 0), lane("draft_model:constant:8", 2, 8)
    oracle = Oracle(PROFILE)
    oracle.add("qa", [plain, long, lane("draft_model:constant:2", 2, 2)])
    # Three tokens for a pass over three rows and two draft steps, against one token for 20 ms.
    assert oracle.speedup() == pytest.approx(3 / (0.022 + 0.004) * 0.02)
    assert Oracle(PROFILE).speedup() is None


def test_policies_are_compared_with_the_best_constant():
    report = Report("nothing")
    results = [
        lane("nothing", 0, 0),
        lane("draft_model:constant:1", 1, 1),
        lane("draft_model:constant:8", 2, 8),
        lane("draft_model:cost", 2, 2),
    ]
    report.add("qa", results)
    table = regret_table(report.rows(), 2.4)
    assert "draft_model:constant:1 (best constant)" in table
    cost = next(line for line in table.splitlines() if "draft_model:cost" in line)
    expected = (3 / 0.026) / (2 / 0.023) - 1
    assert f"{100 * expected:+.1f} %" in cost
    assert "oracle (modelled)" in table
    assert (
        regret_table([row for row in report.rows() if "constant" not in str(row["lane"])], 2.0)
        == ""
    )


def test_the_summary_names_the_worst_task_and_the_memory():
    report = Report("nothing")
    report.add("qa", [lane("nothing", 0, 0), lane("tree", 3, 4)])
    report.add("rag", [lane("nothing", 0, 0), lane("tree", 0, 4)])
    text = summary(report.rows(), {"tree": 8.9})
    row = next(line for line in text.splitlines() if line.startswith("| tree"))
    assert "rag 0.62x" in row
    assert "| 9 " in row
