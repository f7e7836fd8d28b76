"""The table of several pairs."""

from __future__ import annotations

from collections import Counter

import pytest

from specdemo.bench.lanes import LaneResult, Paired
from specdemo.bench.pairs import (
    PairResult,
    pairs_result,
    sampling_of,
    with_rules,
)
from specdemo.bench.results import BenchAnswers
from specdemo.cli.options import suite
from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.session.text import read_suite
from specdemo.trace.metrics import Metrics


def answer(lane, rate, *, repeats=False, **draws):
    metrics = Metrics(2, 2, 0, 0, 0, 0, 0.0, 2 / rate, 0.0, 2 / rate, 0.0, **draws)
    return LaneResult(lane, metrics, (1, 2), repeats=repeats)


def test_pairs_result_names_the_worst_task_and_how_many_answers_repeat_themselves():
    measured, plain = BenchAnswers(), answer("nothing", 10)
    for task, rate, repeats in (("qa", 11, False), ("rag", 29, False), ("loop", 90, True)):
        measured.add(task, task, [Paired(answer("auto", rate, repeats=repeats), plain)])
    table = pairs_result([PairResult("heavy", "greedy", measured.rows())], 3, 128).tables[0]
    line = dict(zip(table.columns, table.rows[0], strict=True))
    assert (line["speedup"], line["all answers"]) == ("2.00x", "2.90x")
    assert (line["repeat themselves"], line["worst task"]) == ("1 of 3", "qa 1.10x")


def test_with_rules_leaves_out_the_rule_for_blocks_where_no_chain_is_drawn():
    found = with_rules(["auto", "draft_model:constant:4"], ["token", "block"])
    expected = ["auto:::token", "draft_model:constant:4:token", "draft_model:constant:4:block"]
    assert found == expected


def test_rules_result_puts_the_rules_of_a_variant_next_to_each_other():
    measured, plain = BenchAnswers(), answer("nothing", 10)
    pairs = [
        Paired(answer("ngram:::coupled", 11), plain),
        Paired(answer("tree:::token", 15, draws=20, draws_kept=9, draws_overlap=10.0), plain),
        Paired(answer("tree:::coupled", 14, draws=10, draws_kept=4, draws_overlap=5.0), plain),
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
