"""The example of docs/add-a-drafter.md works in a copy of the project, as the document describes."""

import json
import re
from pathlib import Path

import pytest
from programs import ROOT, copy_project, python_in

from specdemo.trace.codec import decode
from specdemo.trace.events import RunStarted
from specdemo.trace.metrics import output_ids

pytestmark = pytest.mark.xdist_group("echo")  # one copy of the project
DOCUMENT = (ROOT / "docs" / "add-a-drafter.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The document's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.S)


def patched(text: str, diff: str) -> str:
    """Insert each line of a diff that starts with + after the line that precedes it in the diff."""
    for part in diff.split("...\n"):
        before = ""
        for line in part.splitlines():
            if line.startswith("+"):
                text = text.replace(before, f"{before}{line[1:]}\n")
            else:
                assert text.count(f"\n{line[1:]}\n") == 1, f"no such line: {line}"
            before = f"\n{line[1:]}\n"
    return text


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project in which the document was followed."""
    folder = copy_project(tmp_path_factory.mktemp("echo") / "project")
    (code,) = blocks("python")
    (folder / "specdemo/drafters/echo.py").write_text(code, encoding="utf-8")
    changed = ("specdemo/drafters/methods.py", "assets/words/en/methods.json")
    for name, diff in zip(changed, blocks("diff"), strict=True):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(patched(text, diff), encoding="utf-8")
    python_in(folder, "-m", "tools.docs")
    return folder


def test_the_contract_suite_tests_it(project):
    """Greedy identity, exact sampled distribution, budgets, lengths, restarts and company."""
    suite = "tests/drafters/test_contract.py"
    said = python_in(project, "-m", "pytest", "-q", "-n", "0", "-rA", suite, "-k", "echo")
    passed = set(re.findall(r"PASSED \S+::(test_\w+)\[?\S*echo", said))
    expected = set(re.findall(r"^def (test_\w+)\([^)]*method", (ROOT / suite).read_text(), re.M))
    assert len(expected) >= 8
    assert passed == expected


def test_the_table_of_methods_has_a_row(project):
    table = (project / "docs" / "algorithm.md").read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if line.startswith("| `echo` |"))
    assert "| Echo | Guesses that the last token is said again. | nothing | copied | exact |" in row


PAGE = """
import json
from specdemo.bench.lanes import expand
from specdemo.drafters.methods import METHODS
from specdemo.session.studio import Studio
from specdemo.config.settings import AppSettings
from specdemo.ui import words
from specdemo.ui.app import create_app

studio = Studio(AppSettings(replay=True))
config = json.dumps(create_app(studio).get_config_file(), default=str)
info = next(method for method in studio.methods() if method.name == "echo")
print(json.dumps({
    "menus": config.count('["Echo", "echo"]'),
    "order": list(METHODS),
    "options": info.options,
    "available": info.available,
    "title": info.title,
    "lanes": expand("methods", studio),
    "german": "echo" in words.translations("de"),
}))
"""


def test_the_page_offers_it_and_every_language_can_name_it(project):
    said = json.loads(python_in(project, "-c", PAGE).splitlines()[-1])
    assert said["menus"] >= 2  # the menu, and those of the race
    assert said["order"].index("echo") == said["order"].index("retrieval") + 1
    assert said["options"] == ["lookahead", "fallback"]
    assert said["available"]
    assert said["title"] == "Echo"
    assert "echo" in said["lanes"]
    assert not said["german"]


COMMANDS = """
import json, sys
from specdemo.cli.parser import main

for command in json.loads(sys.argv[1]):
    print("=====")
    sys.stdout.flush()
    code = main(command)
    assert code == 0, (command, code)
"""


def test_every_command_takes_it(project, tiny_folder, tmp_path):
    model = ["--target", str(tiny_folder), "--draft", "none"]
    pair = [*model, "--precision", "fp32", "--device", "cpu"]
    rows, proof = tmp_path / "rows.json", ["--runs", "2", "--tokens", "6"]
    run = [*pair, "--max-new-tokens", "12"]
    commands = [
        ["methods"],
        ["run", "the cat", "--method", "echo", "--json", *run],
        ["compare", "the cat", "--methods", "echo", "--repeat", "1", *run],
        ["bench", "--lanes", "echo", "--limit", "1", "--first-turns", "--json", str(rows), *run],
        ["audit", "--method", "echo", *proof, *pair],
    ]
    said = python_in(project, "-c", COMMANDS, json.dumps(commands)).split("=====\n")[1:]
    listed, run_lines, compared, benched, audited = said
    assert "Guesses that the last token is said again." in listed
    events = [decode(line) for line in run_lines.splitlines()]
    header = next(e for e in events if isinstance(e, RunStarted) and e.lane == "speculative")
    assert header.method == "echo"
    assert not header.lossy
    plain, speculative = (
        output_ids([event for event in events if event.lane == lane])
        for lane in ("plain", "speculative")
    )
    assert plain
    assert plain == speculative
    assert re.search(r"echo .* 100 % +\|$", compared, re.MULTILINE)  # the same output
    assert "echo" in benched
    assert "echo" in rows.read_text(encoding="utf-8")
    assert "echo" in audited
