"""The table of methods: every one is in it with its recorded run, can be tried and raced, and the proof is there."""

import json
from pathlib import Path

import pytest

from specdemo.config.settings import AppSettings
from specdemo.config.strings import strings
from specdemo.drafters.methods import METHODS
from specdemo.session.studio import Studio
from specdemo.trace.replay import RUNS
from specdemo.ui.tabs.methods import MEASURED, last_audit, measured_results, methods_value
from specdemo.ui.tabs.race import MOST, against_plain

WORDS = strings("methods").WORDS


@pytest.fixture(scope="module")
def studio(tmp_path_factory) -> Studio:
    return Studio(AppSettings(replay=True, cache_dir=tmp_path_factory.mktemp("cache")))


def test_the_table_has_every_method_and_runs_that_show_it(studio: Studio) -> None:
    value = json.loads(methods_value(studio, RUNS))
    assert [method["name"] for method in value["methods"]] == list(METHODS)
    assert value["live"] is False
    shown = {method["name"]: method["runs"] for method in value["methods"]}
    assert shown["tree"]
    for name, runs in shown.items():
        for run in runs:
            path = RUNS / f"{run['name']}.jsonl"
            assert path.is_file()
            started = path.read_text(encoding="utf-8")
            assert f'"method": "{name}"' in started or f'"method":"{name}"' in started
            assert run["target"] in value["targets"]


def test_targets_of_recorded_runs_have_columns(studio: Studio, tmp_path: Path) -> None:
    runs = []
    for name, target, parameters in (("a", "light", 10), ("b", "heavy", 99), ("c", "light", 10)):
        header = {"type": "started", "target": {"name": target, "parameters": parameters}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(header) + "\n", encoding="utf-8")
        runs.append({"name": name, "title": name, "settings": {"method": "tree"}})
    (tmp_path / "index.json").write_text(json.dumps({"runs": runs}), encoding="utf-8")
    value = json.loads(methods_value(studio, tmp_path))
    assert value["targets"] == ["heavy", "light"]
    tree = next(method for method in value["methods"] if method["name"] == "tree")
    assert [run["target"] for run in tree["runs"]] == ["light", "heavy", "light"]


@pytest.mark.parametrize("said", ["guesses", "pays"])
def test_the_words_about_methods_name_only_existing_ones(said: str) -> None:
    assert set(WORDS[said]) <= set(METHODS)
    unsaid = set(METHODS) - set(WORDS[said])
    if unsaid:
        pytest.skip(f"nothing is said of {', '.join(sorted(unsaid))}")


def test_a_race_of_a_method_begins_with_plain_decoding() -> None:
    prompt, temperature, seed, count, *lanes = against_plain("tree")
    assert prompt
    assert (temperature, seed, count) == (0.0, 0, 2)
    assert lanes[:6] == ["nothing", "cost", 8, "tree", "cost", 8]
    assert len(lanes) == 3 * MOST


def test_last_audit_is_the_recorded_one_by_default(studio: Studio, tmp_path: Path) -> None:
    recorded = json.loads(last_audit(studio))
    assert recorded["recorded"] is True
    tested = [test for method in recorded["methods"] for test in method["sampling"]]
    assert all(0 <= test["p_uniform"] <= 1 for test in tested)
    assert last_audit(studio, tmp_path) == "null"
    own = studio.settings.cache_dir / "audit.json"
    own.write_text('{"methods": []}', encoding="utf-8")
    assert json.loads(last_audit(studio)) == {"methods": []}
    own.unlink()


def test_measured_results_name_known_methods_and_have_a_sentence(tmp_path: Path) -> None:
    results = measured_results(MEASURED)
    assert {one["method"] for one in results} <= set(METHODS)
    assert {one["task"] for one in results} > {"all", "code"}
    assert all(one["machine"] and one["date"] for one in results)
    assert measured_results(tmp_path) == []
