"""The script's pure parts under node, and its numbers against the Python definitions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from specdemo.bench.recordings import read_index
from specdemo.drafters.methods import METHODS
from specdemo.trace.metrics import measure, speedup
from specdemo.trace.replay import read
from specdemo.ui import words
from specdemo.ui.view import RUNS

RECORDED = sorted(RUNS.glob("*.jsonl"))
DRAFTED = [path for path in RECORDED if path.stem != "05-plain"]
# Every shipped method but `look_back`, which is lossy, and `copy_through`
# and `block_tree`, which are a draft model and DSpark with more after or beside their chains.
SHOWN = {
    "auto", "draft_model", "tree", "feature", "feature_tree", "exit", "medusa", "block", "jet", "ngram",
    "retrieval", "composite", "online", "parallel", "quantised_self", "nothing",
    "block_tree", "copy_through",
}  # fmt: skip
PARTS = sorted((Path(__file__).parent / "parts").glob("*.test.mjs"))


def test_recorded_runs_are_shipped_whole_and_cover_each_method():
    assert sorted(entry.name for entry in read_index(RUNS)) == [path.stem for path in RECORDED]
    for path in RECORDED:
        replay = read(path)
        assert replay.problem == ""
        assert replay.trace.lanes == (("plain", "speculative") if path in DRAFTED else ("plain",))
    assert {entry.settings["method"] for entry in read_index(RUNS)} == SHOWN
    assert set(METHODS) >= SHOWN - {"composite"}  # a method of an earlier version


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
@pytest.mark.parametrize("script", PARTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_a_part_of_the_script(script):
    given = {"SPECDEMO_WORDS": json.dumps(words.VIEW), "SPECDEMO_RUNS": str(RUNS)}
    result = subprocess.run(
        [shutil.which("node"), script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **given},
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_trees_oracle_prediction_and_bound_on_steps_written_by_hand():
    script = Path(__file__).with_name("tree.test.mjs")
    result = subprocess.run(
        [shutil.which("node"), script], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_the_training_card_in_the_words_of_the_page():
    script = Path(__file__).with_name("card.test.mjs")
    result = subprocess.run(
        [shutil.which("node"), script, json.dumps(words.VIEW)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
@pytest.mark.parametrize("path", DRAFTED, ids=lambda path: path.stem)
def test_the_script_and_python_count_alike(path):
    script = Path(__file__).with_name("view.test.mjs")
    result = subprocess.run(
        [shutil.which("node"), script, path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    trace = read(path).trace
    plain, fast = measure(trace.lane("plain")), measure(trace.lane("speculative"))
    assert shown["speedup"] == pytest.approx(speedup(plain, fast))
    for name in ("tokens_per_second", "drafted_accept_rate", "tokens_per_step"):
        assert shown[name] == pytest.approx(getattr(fast, name))
    assert shown["curve"] > 0
    assert shown["positions"] == [list(counts) for counts in fast.positions]
    assert shown["text"].strip()
