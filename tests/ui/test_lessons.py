"""The lessons' strings fit their questions and the script, and the teacher's guide has the runs' answers.

`python -m tests.ui.test_lessons` writes the answers into the guide.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from programs import needs_node, node

from specdemo.bench.wrong_rules import bugs
from specdemo.config.strings import load, strings
from specdemo.trace.replay import RUNS
from specdemo.ui.tabs.lessons import lessons_value
from tools.docs import between

WORDS = strings("lessons").WORDS
pytestmark = pytest.mark.xdist_group("lessons")  # one process of node

GUIDE = Path(__file__).parents[2] / "docs" / "teachers-guide.md"


@cache
def lessons() -> list[dict]:
    """The script's lessons, with the answers that the recorded runs give."""
    return json.loads(node(Path(__file__).parent / "parts" / "lessons.test.mjs"))


def names_in(sentence: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", sentence))


@needs_node
def test_every_lesson_run_question_and_option_has_its_words():
    assert [lesson["id"] for lesson in lessons()] == list(WORDS["lessons"])
    for lesson in lessons():
        own = WORDS["lessons"][lesson["id"]]
        assert "{prompt}" in own["live"]  # the script fills in the prompt of the run
        assert set(own) == {
            *("title", "aim", "text", "runs", "questions", "live", "takeaway", "papers")
        }
        assert set(own["runs"]) == set(lesson["runs"])
        assert list(own["questions"]) == [question["id"] for question in lesson["questions"]]
        for question in lesson["questions"]:
            said = own["questions"][question["id"]]
            assert list(said.get("options", {})) == question["options"]
            assert ("value" in said) == bool(question["scale"])


@needs_node
def test_every_number_in_an_evidence_comes_from_the_run():
    for lesson in lessons():
        for question in lesson["questions"]:
            said = WORDS["lessons"][lesson["id"]]["questions"][question["id"]]
            assert names_in(said["evidence"]) <= set(question["values"]), question["id"]
            for bar in question["bars"]:
                assert names_in(said["bar"]) <= {*bar["values"], "option"}


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_bugs_in_the_lesson_are_those_that_are_enumerated(language):
    told = " ".join(load("lessons", language)["WORDS"]["lessons"]["exact"]["text"])
    for bug in bugs():
        for prob in (*bug.target, *bug.draft, *bug.exact[:-1]):
            number = f"{float(prob):.3g}"
            assert (number.replace(".", ",") if language == "de" else number) in told
        assert str(bug.needed) in told


def test_terms_and_code_are_marked_in_pairs():
    for lesson in WORDS["lessons"].values():
        for sentence in lesson["text"]:
            assert sentence.count("*") % 2 == 0
            assert sentence.count("`") % 2 == 0


def test_the_script_reads_runs_that_are_there_by_their_names(tmp_path):
    entry = {"name": "01-a", "title": "A", "prompt": "Hello", "settings": {"method": "ngram"}}
    index = {"runs": [entry, {**entry, "name": "02-b"}]}
    (tmp_path / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (tmp_path / "01-a.jsonl").write_text("", encoding="utf-8")
    value = json.loads(lessons_value(tmp_path, live=False))
    assert value == {
        "live": False,
        "runs": {"01-a": {"prompt": "Hello", "settings": {"method": "ngram"}}},
    }
    assert json.loads(lessons_value(RUNS, live=True))["live"] is True


def answers_table() -> str:
    """The answers as the guide lists them: a line a question, numbers as the page shows them."""
    lines = ["| lesson | question | answer |", "|---|---|---|"]
    for place, lesson in enumerate(lessons(), 1):
        for question in lesson["questions"]:
            said = WORDS["lessons"][lesson["id"]]["questions"][question["id"]]
            answer = question["answer"]
            number = "value" in said
            told = said["value"].format(value=answer) if number else said["options"][answer]
            lines.append(f"| {place} | {said['ask']} | {told} |")
    return "\n".join(lines)


def guide() -> str:
    """The guide with the answers of the recorded runs."""
    return between(GUIDE.read_text(encoding="utf-8"), "answers", answers_table())


@needs_node
def test_the_guide_lists_the_answers_of_the_recorded_runs():
    assert guide() == GUIDE.read_text(encoding="utf-8"), "run python -m tests.ui.test_lessons"


if __name__ == "__main__":
    GUIDE.write_text(guide(), encoding="utf-8")
