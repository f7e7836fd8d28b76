"""The script's pure parts under node, and its numbers against the Python definitions."""

import json
from functools import cache
from pathlib import Path

import pytest
from programs import module, needs_node, node

from specdemo.config.settings import COUPLED
from specdemo.drafters.methods import METHODS
from specdemo.trace import replay
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
from specdemo.trace.replay import RUNS, read_index, recorded_runs
from tools.record import with_result

pytestmark = pytest.mark.xdist_group("recorded")  # the runs are read once
read = cache(replay.read)
RECORDED = sorted(RUNS.glob("*.jsonl"))
DRAFTED = [path for path in RECORDED if path.stem != "05-plain"]
# Every shipped method but `look_back`, which is lossy, and `composite`, a method of an earlier version.
SHOWN = {
    "auto", "draft_model", "tree", "feature", "feature_tree", "exit", "medusa", "block", "jet", "ngram",
    "retrieval", "composite", "online", "parallel", "quantised_self", "nothing", "block_tree", "copy_through",
}  # fmt: skip
PARTS = sorted((Path(__file__).parent / "parts").glob("*.test.mjs"))
PARTS = [path for path in PARTS if path.name != "lessons.test.mjs"]  # test_lessons runs it


def test_recorded_runs_are_shipped_whole_and_cover_each_method():
    assert sorted(entry.name for entry in read_index(RUNS)) == [path.stem for path in RECORDED]
    for path in RECORDED:
        replay = read(path)
        assert replay.problem == ""
        assert replay.trace.lanes == (("plain", "speculative") if path in DRAFTED else ("plain",))
    assert {entry.settings["method"] for entry in read_index(RUNS)} == SHOWN
    assert set(METHODS) >= SHOWN - {"composite"}


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
def test_the_script_and_python_give_the_same_counts():
    scripted = json.loads(node(Path(__file__).with_name("view.test.mjs"), *DRAFTED))
    for path, shown in zip(DRAFTED, scripted, strict=True):
        trace = read(path).trace
        plain, fast = measure(trace.lane("plain")), measure(trace.lane("speculative"))
        assert shown["speedup"] == pytest.approx(speedup(plain, fast)), path.stem
        assert shown["disturbed"] == disturbed(trace), path.stem
        assert shown["repeats"] == repeats_itself(trace), path.stem
        started = next(iter(trace.lane("speculative").events))
        assert shown["may_split"] == started.may_split, path.stem
        for name in ("tokens_per_second", "drafted_accept_rate", "tokens_per_step"):
            assert shown[name] == pytest.approx(getattr(fast, name)), path.stem
        assert (shown["curve"] > 0) == (not shown["disturbed"]), path.stem
        assert shown["positions"] == [list(counts) for counts in fast.positions], path.stem
        assert shown["text"].strip(), path.stem


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


# Name of a run: its trace, and whether other programs disturbed it.
BUSY = {
    "quiet": (compared([10] * 16, [11] * 8), False),
    "faster than tokens a step": (compared([40] * 16, [10] * 8), True),
    "ten times for three": (compared([10] * 16, [1] * 8, accepted=2), True),
    "slower second half": (compared([10] * 8 + [11.5] * 8, [12] * 8), True),
    "slower first half": (compared([13] * 8 + [10] * 8, [12] * 8), True),
    "usual halves": (compared([10] * 8 + [10.9] * 8, [12] * 8), False),
    "slow together": (compared([10] * 8 + [13] * 8, [23] * 8, beside=True), False),
    "slower alone": (compared([10] * 8 + [13] * 8, [12] * 8, beside=True), True),
    "one stall alone": (compared([10] * 15 + [50], [12] * 8, beside=True), False),
    "busy at times alone": (compared([10] * 8 + [10, 30] * 8, [11] * 8, beside=True), True),
    "slower passes inside": (compared([10] * 16, [12] * 8 + [-12] * 4), True),
    "one stall inside": (compared([10] * 16, [12] * 8 + [-10] * 7 + [-60]), False),
    "busy at times inside": (compared([10] * 16, [12] * 8 + [-10, -10, -36] * 4), True),
    "too few inside": (compared([10] * 16, [12] * 8 + [-12] * 3), False),
    "usual passes inside": (compared([10] * 16, [12] * 8 + [-10.5] * 4), False),
    "too few passes": (compared([10, 10, 12, 12], [12] * 2), False),
    "shared passes": (compared([10] * 8 + [12] * 8, [12] * 8, runs=2), False),
    "a longer text": (compared([10] * 300 + [12] * 300, [12] * 300), False),
    "no baseline": (compared([], [12] * 8), False),
    "no steps yet": (compared([10] * 8 + [15] * 8, []), True),
}


@needs_node
def test_busy_programs_make_a_run_incomparable_for_the_script_and_python():
    view = RUNS.parent / "view/core"
    code = f"""
      import {{ readTrace }} from "{view}/lines.js"; import {{ fold }} from "{view}/reducer.js";
      import {{ disturbed, speedupCurve }} from "{view}/metrics.js"; import {{ readFileSync }} from "node:fs";
      console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((trace) => {{
        const {{ plain, speculative }} = fold(readTrace(trace).items).lanes;
        return [disturbed(plain, speculative), speedupCurve(plain, speculative).length > 0];
      }})));"""
    traces = json.dumps([dumps(trace.events) for trace, _ in BUSY.values()])
    scripted = json.loads(module(code, text=traces))
    for (name, (trace, busy)), (told, drawn) in zip(BUSY.items(), scripted, strict=True):
        assert told == disturbed(trace) == busy, name
        plain = any(isinstance(event, Verified) for event in trace.lane("plain").events)
        assert drawn == (plain and not busy), name  # the chart of speedups has no figure either


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
