"""Links to the page: their values, impossible values, and the page's address for other machines."""

import json
import re
from urllib.parse import urlencode

import gradio as gr
import pytest
from ui.scripted import ScriptedStudio

from specdemo.trace.replay import RecordedRun, recorded_runs
from specdemo.ui.links import QUIET_MODULES, follow, others_reach, qr, read_link
from specdemo.ui.tabs.play import create_play


def test_the_menu_lists_the_existing_runs(tmp_path):
    entries = [{"name": name, "title": name.upper()} for name in ("b", "a", "gone")]
    (tmp_path / "index.json").write_text(json.dumps({"runs": entries}), encoding="utf-8")
    for name in ("a", "b", "unlisted"):
        (tmp_path / f"{name}.jsonl").touch()
    assert recorded_runs(tmp_path) == [RecordedRun("b", "B"), RecordedRun("a", "A")]


def fields():
    with gr.Blocks():
        return create_play(ScriptedStudio()).fields


def test_a_link_sets_what_is_possible_and_says_what_is_not():
    link = {
        "prompt": "<b>A & B</b> = ü", "method": "tree", "lookahead": "7", "threshold": "0.25", "memory": "0",
        "exact": "1", "seed": "12", "tab": "race", "recorded": recorded_runs()[0].name, "__theme": "dark",
    }  # fmt: skip
    tabs = ("play", "race")
    values, problems = read_link(urlencode(link), fields(), tabs)
    assert problems == []
    assert values["prompt"] == link["prompt"]
    assert (values["lookahead"], values["threshold"]) == (7, 0.25)
    assert (values["memory"], values["seed"], values["tab"]) == (False, 12, "race")
    assert values["exact"] is True
    assert "__theme" not in values

    lesson, _ = read_link("lesson=7", fields(), ("play", "lessons"))
    assert lesson == {"tab": "lessons", "lesson": "7"}

    wrong = {
        "method": "gone", "policy": "", "lookahead": "33", "nodes": "2.5", "threshold": "nan",
        "temperature": "inf", "memory": "yes", "seed": "-1", "top_k": "many", "tab": "nowhere",
        "recorded": "../index", "lesson": "9",
    }  # fmt: skip
    values, problems = read_link(urlencode(wrong), fields(), tabs)
    assert values == {}
    assert len(problems) == len(wrong)
    for (name, value), sentence in zip(wrong.items(), problems, strict=True):
        assert f"{name}={value}" in sentence

    some = fields()
    sentences, tab, *updates = follow("lookahead=3&nodes=99&tab=race", some, tabs)
    assert len(json.loads(sentences)) == 1
    assert tab.selected == "race"
    set_to = [update.get("value") for update in updates]
    assert set_to == [3 if name == "lookahead" else None for name in some]


OFF = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "penalty": 1.0}


def test_a_link_with_names_of_earlier_versions_sets_what_replaces_them():
    values, problems = read_link("method=medusa_static&lookahead=4", fields(), ())
    assert (values["method"], values["policy"], values["lookahead"]) == ("medusa", "constant", 4)
    assert "medusa_static" in problems[0]
    assert read_link("policy=learned", fields(), ())[0]["policy"] == "cost"


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("seed=3", {"seed": 3}),
        ("sampling=greedy", {"sampling": "greedy"}),
        ("sampling=recommended", {"sampling": "recommended"}),
        ("sampling=own", {"sampling": "own", **OFF}),
        ("temperature=0.7", {"sampling": "own", **OFF, "temperature": 0.7}),
        ("sampling=own&top_k=5&seed=2", {"sampling": "own", **OFF, "top_k": 5, "seed": 2}),
    ],
)
def test_a_link_that_names_values_of_sampling_keeps_them(query, meant):
    assert read_link(query, fields(), ()) == (meant, [])


def test_a_qr_code_is_the_address_in_dark_squares():
    code = qr("http://127.0.0.1:7860/?prompt=hello")
    squares = re.findall(r"M(\d+) (\d+)h1v1h-1z", code["path"])
    assert "".join(f"M{x} {y}h1v1h-1z" for x, y in squares) == code["path"]
    places = [int(place) for square in squares for place in square]
    assert (min(places), max(places)) == (QUIET_MODULES, code["size"] - QUIET_MODULES - 1)
    assert code != qr("http://127.0.0.1:7860/?prompt=hallo")
    assert qr("x" * 5000) == {"size": 0, "path": ""}


def test_other_machines_get_the_address_that_they_can_open():
    told = others_reach("http://127.0.0.1:7860", "127.0.0.1", "10.0.0.5")
    assert "--host 0.0.0.0" in told["sentence"]
    assert "http://10.0.0.5:7860" in told["sentence"]
    assert told["address"] == ""
    told = others_reach("http://localhost:7860", "0.0.0.0", "10.0.0.5")
    assert told["address"] == "http://10.0.0.5:7860"
    nothing = {"sentence": "", "address": ""}
    assert others_reach("https://example.org", "0.0.0.0", "10.0.0.5") == nothing
    assert others_reach("http://127.0.0.1:7860", "127.0.0.1", "") == nothing
