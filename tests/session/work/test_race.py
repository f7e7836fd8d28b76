"""Races: each variant is warmed up and runs alone, stops within a step, or is refused at the start; races of recorded runs."""

import json
import threading

import pytest
from scripted_run import CountingStudio, run_events

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.session.door import MethodInfo
from specdemo.session.work.race import WARM_UP_TOKENS, recorded_races, recorded_together, run_race
from specdemo.trace.events import Node, RunStarted, Verified
from specdemo.trace.replay import RUNS
from specdemo.ui.tabs.race import RaceHandlers, lane_title, read_lanes

LANES = [RunSettings(method="nothing"), RunSettings(method="tree")]


class ScriptedStudio(CountingStudio):
    """Conversations that use all of their steps; records the runs."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def methods(self):
        read = ("policy", "lookahead")
        known = [("nothing", (), True), ("tree", read, True), ("medusa", read, False)]
        return [
            MethodInfo(name, name.title(), "", options, there, "Nobody trained it.")
            for name, options, there in known
        ]

    def run(self, prompt, settings, cancel, *, system="", every=0.0):
        assert not settings.baseline
        self.ran.append((settings.method, settings.max_new_tokens))

        def step(number):
            own, seconds = Node(number, "a"), 0.1 * (number + 1)
            yield Verified("speculative", number, (), (), own, 0, 0, 0, seconds)

        tokens = settings.max_new_tokens
        yield from run_events("speculative", settings.method, prompt, tokens, cancel, step)


def test_lanes_run_one_after_the_other_each_after_a_warm_up_without_events():
    studio = ScriptedStudio()
    told = list(run_race(studio, "a", LANES))
    assert studio.ran == [(name, n) for name in ("nothing", "tree") for n in (WARM_UP_TOKENS, 128)]
    assert (studio.most_open, studio.open_now) == (2, 0)  # the race's own, and that of a lane
    assert [place for place, event in told if event is None] == [0, 1]
    assert [place for place, event in told if isinstance(event, RunStarted)] == [0, 1]
    assert sum(isinstance(event, Verified) for _, event in told) == 2 * 128
    assert [place for place, _ in told] == sorted(place for place, _ in told)


def test_stop_ends_the_lane_within_a_step_and_begins_no_other():
    studio, cancel = ScriptedStudio(), threading.Event()
    seen = 0
    for _, event in run_race(studio, "a", LANES, cancel=cancel):
        seen += isinstance(event, Verified)
        if seen == 5:
            cancel.set()
    assert seen == 5
    assert [method for method, _ in studio.ran] == ["nothing", "nothing"]
    assert studio.open_now == 0


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        (LANES[:1], "2 to 4 lanes"),
        (LANES * 3, "2 to 4 lanes"),
        ([LANES[0], RunSettings(method="medusa")], "Medusa cannot race. Nobody trained it."),
        ([LANES[0], RunSettings(method="magic")], "no drafting method"),
        ([LANES[0], RunSettings(method="tree", lookahead=0)], "lookahead"),
    ],
)
def test_a_race_that_cannot_be_run_is_refused_before_it_begins(lanes, message):
    studio = ScriptedStudio()
    with pytest.raises(UserError, match=message):
        list(run_race(studio, "a", lanes))
    assert studio.ran == []


def test_an_abandoned_race_frees_its_caches():
    studio = ScriptedStudio()
    race = run_race(studio, "a", LANES)
    while next(race)[1] is None:
        pass
    race.close()
    assert studio.open_now == 0


def lines_of(stream):
    return [json.loads(line) for line in stream.splitlines()]


def controls(*methods):
    values = {"temperature": 0.0, "max_new_tokens": 10, "seed": 0}
    for number, name in enumerate(methods, 1):
        values |= {f"method {number}": name, f"policy {number}": "cost", f"lookahead {number}": 6}
    return values


def test_the_stream_names_its_lanes_first_and_the_lane_of_each_event():
    races = RaceHandlers(ScriptedStudio(), RUNS)
    visitor, first = races.begin(None)
    *_, last = races.run(visitor, "hello", 2, controls("nothing", "tree", "tree", "tree"))
    assert lines_of(first)[0]["waiting"]
    lines = lines_of(last)
    assert [line["type"] for line in lines[:3]] == ["open", "lane", "lane"]
    assert [line["title"] for line in lines[1:3]] == ["Nothing", "Tree: by cost, up to 6"]
    assert lines[-1] == {"type": "raced"}
    turns = [(i, line["index"]) for i, line in enumerate(lines) if line["type"] == "lane"][2:]
    assert [index for _, index in turns] == [0, 1]
    assert all(lines[i + 1]["type"] == "started" for i, _ in turns)


def test_lanes_are_read_from_the_page_and_called_by_what_they_do():
    plain, tree = read_lanes(controls("nothing", "tree"), AppSettings())
    read = (tree.method, tree.policy, tree.lookahead, tree.max_new_tokens)
    assert read == ("tree", "cost", 6, 10)
    assert not tree.fallback
    with pytest.raises(UserError, match="empty"):
        read_lanes({**controls("tree"), "temperature": None}, AppSettings())
    methods = [
        MethodInfo("tree", "Tree", "", ("policy", "lookahead"), available=True),
        MethodInfo("nothing", "Plain", "", (), available=True),
        MethodInfo("auto", "Auto", "", ("lookahead",), available=True),
    ]
    assert lane_title(methods, "nothing", plain.to_dict()) == "Plain"
    assert lane_title(methods, "tree", {"policy": "constant", "lookahead": 3}) == "Tree: always 3"
    assert lane_title(methods, "auto", {"lookahead": 4}) == "Auto: up to 4 deep"
    assert lane_title(methods, "gone", {"policy": "constant", "lookahead": 3}) == "gone: always 3"


@pytest.fixture
def recordings(tmp_path):
    """A folder of recorded runs: an index, and empty files."""
    runs = [
        ("a", "p", {"method": "draft_model"}, "nf4", ""),
        ("b", "p", {"method": "tree"}, "nf4", ""),
        ("c", "p", {"method": "tree", "sampling": {"temperature": 1.0}}, "nf4", ""),
        ("d", "p", {"method": "quantised_self"}, "bf16", ""),
        ("e", "p", {"method": "nothing"}, "nf4", ""),
        ("f", "q", {"method": "tree"}, "nf4", ""),
        ("g", "p", {"method": "ngram"}, "bf16", "larger"),
        ("gone", "q", {"method": "ngram"}, "nf4", ""),
    ]
    keys = ("prompt", "settings", "precision", "target")
    entries = [
        {"name": name, "title": name} | dict(zip(keys, values, strict=True))
        for name, *values in runs
    ]
    (tmp_path / "index.json").write_text(json.dumps({"runs": entries}), encoding="utf-8")
    for name, *_ in runs[:-1]:
        (tmp_path / f"{name}.jsonl").write_text("", encoding="utf-8")
    return tmp_path


def test_recorded_runs_race_when_text_target_and_rule_are_the_same(recordings):
    together = [[run.name for run in runs] for runs in recorded_together(recordings)]
    assert together == [["a", "b"], ["c"], ["d"], ["f"], ["g"]]
    methods, precisions = recorded_races(recordings)
    assert [(lane.run.name, lane.lane) for lane in methods.lanes] == [
        ("a", "plain"),
        ("a", "speculative"),
        ("b", "speculative"),
    ]
    assert precisions.precisions
    assert [(lane.run.name, lane.method, lane.run.precision) for lane in precisions.lanes] == [
        ("a", "nothing", "nf4"),
        ("a", "draft_model", "nf4"),
        ("d", "nothing", "bf16"),
        ("d", "quantised_self", "bf16"),
    ]


def test_a_recorded_race_names_the_runs_to_fetch(recordings):
    races = RaceHandlers(ScriptedStudio(), recordings)
    opening, *lanes, raced = lines_of(races.recording(1))
    assert opening["source"] == "recorded"
    assert [lane["run"] for lane in lanes] == ["a", "a", "d", "d"]
    assert lanes[0]["title"].startswith("nf4: ")
    assert raced == {"type": "raced"}
    assert len(races.choices()) == 2
