"""Tables of results: sums of runs, worst task, acceptance by position, calibration, and several pairs."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import PROFILE
from outcomes import answered

from specdemo.bench.lanes import LaneResult, Paired, expand
from specdemo.bench.pairs import PairResult, pairs_result, sampling_of, with_rules
from specdemo.bench.results import BenchAnswers, lanes_table, markdown, positions_table
from specdemo.cli.options import suite
from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.drafters.methods import METHODS
from specdemo.session.text import read_suite
from specdemo.trace.events import Node, Status, Verified
from specdemo.trace.metrics import calibration_error, measure, output_ids

KEPT, REFUSED, UNSEEN = Status.ACCEPTED, Status.REJECTED, Status.UNREACHED


def step(number, draft, drafting, verifying, elapsed):
    """A step that checked a draft. draft: (parent, status) of each node"""
    nodes = tuple(Node(place, "", *one) for place, one in enumerate(draft))
    path = tuple(node for node, (_, status) in enumerate(draft) if status is KEPT)
    times = (drafting, verifying, 0.0, elapsed)
    return Verified("speculative", number, nodes, path, Node(9), *times)


def lane(name, kept, drafted):
    """Return a result of ten steps with constant numbers of drafted and accepted tokens, at the profile's cost."""
    chain = [(place - 1, KEPT if place < kept else REFUSED) for place in range(drafted)]
    drafting, verifying = PROFILE.draft_step * drafted, PROFILE.verify_seconds(1 + drafted)
    events = [
        step(number, chain, drafting, verifying, (number + 1) * (drafting + verifying))
        for number in range(10)
    ]
    ids = tuple(output_ids(events))
    return LaneResult(name, measure(events), ids, (0.5,) * len(ids))


def measured(**tasks):
    """Return the answers to one prompt of each task, the first one being plain decoding's."""
    found = BenchAnswers()
    for task, results in tasks.items():
        found.add(task, task, [Paired(one, results[0]) for one in results])
    return found


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
        step(number, draft, 0.001, 0.02, 0.021 * (number + 1))
        for number, draft in enumerate(drafts)
    ]
    ids = tuple(output_ids(steps))
    return LaneResult("tree", measure(steps), ids, (0.5,) * 20, tuple(steps))


DRAFTS = (
    ((-1, KEPT), (0, KEPT), (1, REFUSED), (2, UNSEEN)),  # a chain
    ((-1, REFUSED), (-1, KEPT), (0, UNSEEN), (1, REFUSED)),  # a tree of two branches
    ((-1, REFUSED), (0, UNSEEN)),
    (),  # nothing drafted
)


def test_the_report_gives_acceptance_by_position_of_what_was_tested():
    plain, tree = lane("nothing", 0, 0), judged(*DRAFTS)
    assert tree.metrics.positions == ((3, 2), (2, 1), (1, 0), (0, 0))
    assert tree.metrics.accept_by_position == (2 / 3, 1 / 2, 0.0, None)
    table = markdown(positions_table(measured(qa=[plain, tree]).rows()))
    assert "nothing" not in table
    row = next(line for line in table.splitlines() if line.startswith("| tree"))
    shown = [cell.strip() for cell in row.split("|")[2:-1]]
    assert shown == ["67 %", "50 %", "0 %", "-", "-", "-"]


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


def test_pairs_result_names_the_worst_task_and_how_many_answers_repeat_themselves():
    measured, plain = BenchAnswers(), answered("nothing", 10)
    for task, rate, repeats in (("qa", 11, False), ("rag", 29, False), ("loop", 90, True)):
        measured.add(task, task, [Paired(answered("auto", rate, repeats=repeats), plain)])
    table = pairs_result([PairResult("heavy", "greedy", measured.rows())], 3, 128).tables[0]
    line = dict(zip(table.columns, table.rows[0], strict=True))
    assert (line["speedup"], line["all answers"]) == ("2.00x", "2.90x")
    assert (line["repeat themselves"], line["worst task"]) == ("1 of 3", "qa 1.10x")


def test_with_rules_leaves_out_the_rule_for_blocks_where_no_chain_is_drawn():
    found = with_rules(["auto", "draft_model:constant:4"], ["token", "block"])
    expected = ["auto:::token", "draft_model:constant:4:token", "draft_model:constant:4:block"]
    assert found == expected


def test_rules_result_puts_the_rules_of_a_variant_next_to_each_other():
    measured, plain = BenchAnswers(), answered("nothing", 10)
    pairs = [
        Paired(answered("ngram:::coupled", 11), plain),
        Paired(answered("tree:::token", 15, draws=20, draws_kept=9, draws_overlap=10.0), plain),
        Paired(answered("tree:::coupled", 14, draws=10, draws_kept=4, draws_overlap=5.0), plain),
    ]
    measured.add("qa", "qa", [Paired(plain, plain), *pairs])
    found = PairResult("small", "greedy", measured.rows())
    rules, bounds = pairs_result([found], 1, 2, ["token", "coupled"]).tables
    cells = dict(zip(rules.columns, rules.rows[1], strict=True))
    assert (cells["lane"], cells["same output, coupled"]) == ("tree", "100 %")
    assert cells["speedup"] == "1.50x / 1.40x"
    # n-gram draws nothing. 1 - TV is a half, so shared noise accepts a third at least.
    assert bounds.rows == [["small", "greedy", "tree", "30", "50 %", "33 %", "45 % / 40 %"]]


def test_sampling_of_a_preset_and_of_numbers():
    assert sampling_of("greedy").preset == "greedy"
    chosen = sampling_of("0.7/0.9/1.1").sampling
    assert (chosen.temperature, chosen.top_p, chosen.repetition_penalty) == (0.7, 0.9, 1.1)
    assert sampling_of("1.5/0.95/1/40").sampling == Sampling(1.5, top_k=40, top_p=0.95)
    for wrong in ("greddy", "0.7/0.9"):
        with pytest.raises(UserError):
            sampling_of(wrong)


def test_the_suite_examples_has_five_prompts_or_more_of_each_kind_of_the_page():
    items = read_suite(suite("examples"))
    counted = Counter(item.task for item in items)
    assert set(counted) == {item.task for item in read_suite(None)}
    assert len(items) >= 60
    assert min(counted.values()) >= 5
    assert len({item.turns for item in items}) == len({item.name for item in items}) == len(items)
