"""The script's pure parts under node, and its numbers against the Python definitions."""

import json
from pathlib import Path

import pytest
from programs import module, needs_node, node

from specdemo.config.settings import COUPLED
from specdemo.drafters.methods import METHODS
from specdemo.trace.codec import dumps
from specdemo.trace.events import ModelInfo, Node, RunStarted, Status, Trace, Verified
from specdemo.trace.metrics import (
    disturbed,
    measure,
    output_ids,
    repeated_share,
    repeats_itself,
    speedup,
)
from specdemo.trace.replay import RUNS, read, read_index, recorded_runs
from tools.record import with_result

RECORDED = sorted(RUNS.glob("*.jsonl"))
DRAFTED = [path for path in RECORDED if path.stem != "05-plain"]
# Every shipped method but `look_back`, which is lossy, and `copy_through`
# and `block_tree`, which extend the chains of a draft model and of DSpark.
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


def test_a_recorded_seed_has_one_text_with_drafts_and_without():
    entries = [one for one in read_index(RUNS) if one.settings.get("verification") == COUPLED]
    assert {entry.settings["sampling"]["temperature"] for entry in entries} == {0.7}
    for entry in entries:
        trace = read(RUNS / f"{entry.name}.jsonl").trace
        plain, drafted = (output_ids(trace.lane(lane)) for lane in ("plain", "speculative"))
        assert plain == drafted
        assert len(plain) >= 60


@needs_node
@pytest.mark.parametrize("script", PARTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_a_part_of_the_script(script):
    node(script)


@needs_node
@pytest.mark.parametrize("path", DRAFTED, ids=lambda path: path.stem)
def test_the_script_and_python_give_the_same_counts(path):
    shown = json.loads(node(Path(__file__).with_name("view.test.mjs"), path))
    trace = read(path).trace
    plain, fast = measure(trace.lane("plain")), measure(trace.lane("speculative"))
    assert shown["speedup"] == pytest.approx(speedup(plain, fast))
    assert shown["disturbed"] == disturbed(trace)
    assert shown["repeats"] == repeats_itself(trace)
    started = next(iter(trace.lane("speculative").events))
    assert shown["may_split"] == started.may_split
    for name in ("tokens_per_second", "drafted_accept_rate", "tokens_per_step"):
        assert shown[name] == pytest.approx(getattr(fast, name))
    assert (shown["curve"] > 0) == (not shown["disturbed"])
    assert shown["positions"] == [list(counts) for counts in fast.positions]
    assert shown["text"].strip()


def compared(plain_ms, steps_ms, *, accepted=1, runs=None, beside=False):
    """A trace of plain passes and of drafted steps; a negative time is a step without a draft."""
    events, info = [], ModelInfo("tiny")
    for lane, times in (("plain", plain_ms), ("speculative", steps_ms)):
        events.append(RunStarted(lane, "ngram", "p", {"baseline": beside}, info))
        seconds = 0.0
        for step, time in enumerate(times):
            seconds += abs(time) / 1000
            drafted = lane == "speculative" and time > 0
            depth = range(accepted if drafted else 0)
            nodes = tuple(Node(1, parent=i - 1, status=Status.ACCEPTED) for i in depth)
            own = Node(2, status=Status.PLAIN)
            path, spent = tuple(range(len(nodes))), abs(time) / 1000
            events.append(Verified(lane, step, nodes, path, own, 0, spent, 0, seconds, runs))
    return Trace(tuple(events))


@pytest.mark.parametrize(
    ("trace", "busy"),
    [
        pytest.param(compared([10] * 16, [11] * 8), False, id="quiet"),
        pytest.param(compared([40] * 16, [10] * 8), True, id="faster than tokens a step"),
        pytest.param(compared([10] * 16, [1] * 8, accepted=2), True, id="ten times for three"),
        pytest.param(compared([10] * 8 + [11.5] * 8, [12] * 8), True, id="slower second half"),
        pytest.param(compared([13] * 8 + [10] * 8, [12] * 8), True, id="slower first half"),
        pytest.param(compared([10] * 8 + [10.9] * 8, [12] * 8), False, id="usual halves"),
        pytest.param(
            compared([10] * 8 + [13] * 8, [23] * 8, beside=True), False, id="slow together"
        ),
        pytest.param(compared([10] * 8 + [13] * 8, [12] * 8, beside=True), True, id="slower alone"),
        pytest.param(
            compared([10] * 15 + [50], [12] * 8, beside=True), False, id="one stall alone"
        ),
        pytest.param(
            compared([10] * 8 + [10, 30] * 8, [11] * 8, beside=True), True, id="busy at times alone"
        ),
        pytest.param(compared([10] * 16, [12] * 8 + [-12] * 4), True, id="slower passes inside"),
        pytest.param(
            compared([10] * 16, [12] * 8 + [-10] * 7 + [-60]), False, id="one stall inside"
        ),
        pytest.param(
            compared([10] * 16, [12] * 8 + [-10, -10, -36] * 4), True, id="busy at times inside"
        ),
        pytest.param(compared([10] * 16, [12] * 8 + [-12] * 3), False, id="too few inside"),
        pytest.param(compared([10] * 16, [12] * 8 + [-10.5] * 4), False, id="usual passes inside"),
        pytest.param(compared([10, 10, 12, 12], [12] * 2), False, id="too few passes"),
        pytest.param(compared([10] * 8 + [12] * 8, [12] * 8, runs=2), False, id="shared passes"),
        pytest.param(compared([10] * 300 + [12] * 300, [12] * 300), False, id="a longer text"),
        pytest.param(compared([], [12] * 8), False, id="no baseline"),
        pytest.param(compared([10] * 8 + [15] * 8, []), True, id="no steps yet"),
    ],
)
@needs_node
def test_busy_programs_make_a_run_incomparable_for_the_script_and_python(trace, busy):
    view = RUNS.parent / "view/core"
    code = f"""
      import {{ readTrace }} from "{view}/lines.js"; import {{ fold }} from "{view}/reducer.js";
      import {{ disturbed, speedupCurve }} from "{view}/metrics.js"; import {{ readFileSync }} from "node:fs";
      const {{ plain, speculative }} = fold(readTrace(readFileSync(0, "utf8")).items).lanes;
      console.log(JSON.stringify([disturbed(plain, speculative), speedupCurve(plain, speculative).length > 0]));"""
    told, drawn = json.loads(module(code, text=dumps(trace.events)))
    assert told == disturbed(trace) == busy
    plain = any(isinstance(event, Verified) for event in trace.lane("plain").events)
    assert drawn == (plain and not busy)  # the chart of speedups has no figure either


@needs_node
def test_repeated_share_is_the_same_for_the_script_and_python():
    texts = {
        "": 0.0,
        "one two three": 0.0,
        "to be or not to be or not": 1 / 5,
        "a b c d " * 5: 13 / 17,
        "the cat sat. The cat sat on a mat, and the cat sat on it": 0.0,
        "推测解码推测解码更快": 1 / 7,
        "ข้าวข้าวข้าว": 5 / 9,
        "日本語 or English, 日本語 or English, again": 2 / 8,
        "f(x)=" * 40: 4 / 10,
        "𝒳 𝒳 𝒳 𝒳 𝒳 naïve": 1 / 3,
    }
    code = f"""
      import {{ repeatedShare }} from "{RUNS.parent}/view/core/metrics.js";
      console.log(JSON.stringify({json.dumps(list(texts))}.map(repeatedShare)));"""
    told = json.loads(module(code))
    assert told == pytest.approx([repeated_share(text) for text in texts])
    assert told == pytest.approx(list(texts.values()))


def test_the_index_of_recorded_runs_holds_their_results_and_the_menu_its_groups():
    index = json.loads((RUNS / "index.json").read_text(encoding="utf-8"))["runs"]
    groups = {run.name: run.group for run in recorded_runs()}
    for entry in index:
        events = read(RUNS / f"{entry['name']}.jsonl").trace.events
        assert with_result(entry, events) == entry
        times, repeats = entry.get("speedup"), entry.get("repeats", False)
        wins = bool(times and times >= 1.3 and not repeats)
        assert (groups[entry["name"]] == "wins") == wins
        assert (groups[entry["name"]] == "loses") == bool(times and times < 1)
    assert recorded_runs()[0].group == "wins"  # the page opens with it
