"""The Python interface, and every Python example of docs/api.md, on a tiny model."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from programs import ROOT, python
from tiny_files import make_tiny_model

import specdemo
from specdemo.config.errors import UserError
from specdemo.trace.events import RunFailed, RunFinished, RunStarted
from specdemo.trace.metrics import output_ids, repeats_itself
from specdemo.trace.replay import NODE_FIELDS, read

SHORT = {"max_new_tokens": 12}


@pytest.fixture(scope="module", autouse=True)
def tiny(tmp_path_factory):
    """Set the environment of a user with a tiny target."""
    folder = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        model = str(make_tiny_model(folder / "model"))
        given = {"TARGET": model, "DRAFT": model, "PRECISION": "fp32", "DEVICE": "cpu"}
        for name, value in {**given, "CACHE": str(folder / "cache")}.items():
            patch.setenv(f"SPECDEMO_{name}", value)
        patch.chdir(folder)
        yield


@pytest.fixture
def quiet(monkeypatch):
    """A machine without other programs: passes of a tiny model are too short to be compared."""
    monkeypatch.setattr(specdemo.trace.metrics, "disturbed", lambda *_: False)


@pytest.fixture(scope="module")
def model():
    return specdemo.load()


def blocks(document: str) -> list[str]:
    """The Python examples of a document that need no page."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.findall(r"(<!-- needs: page -->\n)?```python\n(.*?)```", text, re.S)
    return [block for needs, block in found if not needs]


def test_the_examples_of_the_document_run_one_after_the_other(capsys):
    said: dict[str, object] = {}
    for block in blocks("docs/api.md"):
        exec(compile(block, "docs/api.md", "exec"), said)  # noqa: S102 - the document is ours
    assert "kept" in capsys.readouterr().out
    assert read(Path("run.jsonl")).trace.lanes == ("plain", "speculative")
    assert list(said["runs"]) == ["nothing", "ngram", "auto"]


def test_a_run_gives_its_events_as_they_come_and_again(model):
    run = model.run("the cat", "ngram", **SHORT)
    first = next(iter(run))
    assert isinstance(first, RunStarted)
    assert len(run._events) == 1
    events = list(run)
    assert events[0] is first
    assert isinstance(events[-1], RunFinished)
    assert list(run) == events
    assert run.trace.events == tuple(events)


@pytest.mark.usefixtures("quiet")
def test_a_run_sums_up_to_what_its_trace_says(model, tmp_path):
    run = model.run("the cat sat on the mat and the cat", "ngram", **SHORT)
    plain, answer = run.trace.lane("plain"), run.answer
    assert output_ids(plain) == output_ids(answer)
    assert run.metrics.new_tokens == len(output_ids(answer)) > 0
    assert run.baseline.new_tokens == run.metrics.new_tokens
    assert run.speedup == run.metrics.tokens_per_second / run.baseline.tokens_per_second
    assert run.repeats_itself is repeats_itself(run.trace)
    rows = run.rows()
    assert tuple(rows[0]) == NODE_FIELDS
    spoken = [row for row in rows if row["lane"] == "plain"]
    assert run.text.startswith("".join(row["text"] for row in spoken)[:4])
    run.save(tmp_path / "run.jsonl")
    assert read(tmp_path / "run.jsonl").trace.lanes == ("plain", "speculative")


def test_a_run_beside_busy_programs_has_no_speedup(model, monkeypatch):
    monkeypatch.setattr(specdemo.trace.metrics, "disturbed", lambda *_: True)
    run = model.run("the cat", "ngram", **SHORT)
    assert (run.speedup, run.comparable) == (None, False)


@pytest.mark.usefixtures("quiet")
def test_methods_are_compared_with_one_plain_run(model):
    runs = model.compare("the cat", ["ngram"], repeat=2, **SHORT)
    assert list(runs) == ["nothing", "ngram"]
    assert runs["nothing"].speedup == 1
    assert runs["ngram"].baseline == runs["nothing"].metrics
    assert runs["ngram"].text == runs["nothing"].text


def test_a_chat_goes_on_and_a_run_of_the_model_does_not(model):
    chat = model.chat()
    lengths = [header_of(chat.run("the cat", "nothing", **SHORT)).prompt_tokens for _ in "ab"]
    assert lengths[1] > lengths[0] + 12
    alone = [header_of(model.run("the cat", "nothing", **SHORT)).prompt_tokens for _ in "ab"]
    assert alone == [lengths[0]] * 2
    chat.close()


def header_of(run):
    assert run.text is not None
    return run.trace.events[0]


def test_a_drafter_of_ones_own_needs_no_change_to_the_package(model):
    said: dict[str, object] = {}
    exec(blocks("docs/add-a-drafter.md")[0], said)  # noqa: S102 - the document is ours
    run = model.run("the cat", method=said["ECHO"], fallback=False, **SHORT)
    assert run.trace.lane("speculative").events[0].method == "echo"
    assert run.metrics.drafted > 0
    assert output_ids(run.answer) == output_ids(run.trace.lane("plain"))
    assert "echo" in [method.name for method in model.methods()]
    assert model.run("the cat", "echo", **SHORT).text == run.text
    from specdemo.drafters.methods import METHODS

    assert "echo" not in METHODS


def test_a_closed_run_keeps_what_has_come(model):
    run = model.run("the cat", "nothing", max_new_tokens=60)
    next(iter(run))
    run.close()
    assert len(run.trace.events) == 1


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda model: model.run("a", "no such"), "no drafting method 'no such'"),
        (lambda model: model.run("a", lookahead=99), "lookahead"),
        (lambda model: model.run("a", colour=1), "no setting 'colour'"),
        (lambda model: model.run(" ").text, "prompt is empty"),
        (lambda model: model.run("a", "medusa").text, "this target has none"),
        (lambda _: specdemo.load(precision="int3"), "precision"),
    ],
)
def test_impossible_calls_are_explained(model, call, told):
    with pytest.raises(UserError, match=told):
        call(model)


def test_a_run_that_broke_is_not_taken_for_an_answer():
    run = specdemo.Run(iter([RunFailed("plain", "It broke.", "The rest.", "Try.")]))
    assert len(run.trace.events) == 1
    for name in ("text", "metrics", "speedup"):
        with pytest.raises(UserError, match=r"It broke. The rest. Try."):
            getattr(run, name)


def test_importing_the_package_imports_nothing_but_itself():
    code = "import sys; old = set(sys.modules); import specdemo; print(*sorted(set(sys.modules) - old))"
    said = python("-c", code)
    loaded = {name.partition(".")[0] for name in said.split()}
    assert loaded - sys.stdlib_module_names == {"specdemo"}
    assert "specdemo.api" not in said
    with pytest.raises(AttributeError, match="nothing"):
        specdemo.nothing  # noqa: B018 - asking is the test


def test_a_program_that_leaves_a_run_in_the_middle_ends_as_any_other():
    code = """
import specdemo
run = specdemo.load().run("one two", max_new_tokens=900, baseline=False)
print(next(iter(run)).lane)
"""
    assert python("-c", code) == "speculative\n"


NOTEBOOK = ROOT / "notebooks" / "speculative_decoding.ipynb"


def cells() -> list[dict[str, object]]:
    """Return the code cells of the notebook."""
    every = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in every if cell["cell_type"] == "code"]


def test_the_notebook_runs_from_its_first_cell_to_its_last(capsys, monkeypatch):
    """Run cell after cell in one namespace, and display the value of a last expression, as a kernel does."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    shown, said = [], {}
    for cell in cells():
        *body, last = ast.parse("".join(cell["source"])).body
        if not isinstance(last, ast.Expr):
            body, last = [*body, last], None
        exec(compile(ast.Module(body, []), cell["id"], "exec"), said)  # noqa: S102 - the notebook is ours
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), cell["id"], "eval"), said))
    kinds = [type(value).__name__ for value in shown if value is not None]
    assert " ".join(kinds) == "ModelInfo DataFrame DataFrame Figure Figure DataFrame Figure"
    table, _, lookahead, speedup, compared, bars = [v for v in shown if v is not None][1:]
    assert set(table.columns) >= {"text", "status", "target_prob"}
    assert [len(trace.x) > 1 for trace in (*lookahead.data, *speedup.data)] == [True] * 5
    assert list(compared.index) == list(bars.data[0].x) == ["nothing", "draft_model", "ngram"]
    assert "the same text as plain decoding: True" in capsys.readouterr().out


def test_the_notebook_is_kept_without_outputs_and_adds_the_drafter_of_the_document():
    assert not [cell for cell in cells() if cell["outputs"] or cell["execution_count"]]
    sources = ["".join(cell["source"]) for cell in cells()]
    _, _, drafter = blocks("docs/add-a-drafter.md")[0].partition("import annotations\n")
    assert drafter.strip() in sources
