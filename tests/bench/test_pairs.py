"""The tables of a pair."""

from __future__ import annotations

from specdemo.bench.pairs import PairResult, pairs_result


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
    )  # fmt: skip
    choice = pairs_result([found], 2, 128).tables[0]
    line = dict(zip(choice.columns, choice.rows[0], strict=True))
    assert line["worst task"] == "qa 1.10x"
    assert line["best single method"] == "ngram 1.60x"
    assert line["auto over it"] == "1.25"
    assert [cells[-1] for cells in found.draft_rows()] == ["1/60"] * 3
    assert found.task_rows()[0] == ["heavy", "greedy", "auto", "1.10x", "2.90x"]
