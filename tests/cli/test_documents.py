"""The generated parts of the documents, and their commands, which exist; those that are cheap are run.

A fenced block of shell commands is run in a folder of its own, one command after the other, unless a comment before
it lists its requirements: `<!-- needs: network -->`. The commands of such a block are only parsed, by the real parser.
"""

import itertools
import json
import re
import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pytest
from programs import ROOT

from specdemo.bench.results import Result, lanes_table, tasks_table
from specdemo.cli.parser import COMMANDS, command_parser, main, parse
from specdemo.trace.events import EVENTS
from tools import docs
from tools.docs import declarations

FILES = sorted((ROOT / docs.MEASURED).glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_measurement_says_where_and_when(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert all(data[name] for name in ("title", "machine", "date", "about"))
    assert data["tables"]
    result = Result.from_dict(data)
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def a_bench(**more: object) -> dict[str, object]:
    """Return a file of measurements with two variants and two tasks."""
    rows = [
        {"task": task, "lane": lane, "speedup": speedup, "answers": 3, "repeats": 1}
        for lane, speedups in {
            "nothing": (1.0, 1.0),
            "tree": (2.0, 0.5),
            "slow": (0.25, 0.5),
        }.items()
        for task, speedup in zip(("math_qa", "all"), speedups, strict=True)
    ]
    return {
        "title": "A bench",
        "machine": "A processor",
        "date": "2026-01-01",
        "about": "Two prompts.",
        "command": "python -m specdemo bench",
        "pairs": [{"target": "tiny", "preset": "greedy", "rows": rows}],
        "tables": [asdict(lanes_table(rows)), asdict(tasks_table(rows, "nothing"))],
        **more,
    }


def write(root: Path, name: str, data: dict[str, object]) -> None:
    folder = root / docs.MEASURED
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(data), encoding="utf-8")


def test_a_bench_is_rendered_with_its_machine_date_and_command(tmp_path: Path) -> None:
    write(tmp_path, "1.json", a_bench())
    text = docs.measured_tables(tmp_path)
    assert text.startswith("## A bench\n\nA processor; 2026-01-01. Two prompts.")
    assert "```sh\npython -m specdemo bench\n```" in text
    (row,) = (line for line in text.splitlines() if line.startswith("| tree ") and "2.00" in line)
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["2.00×", "0.50×", "1 of 3"]


def test_the_readme_shows_chosen_lanes(tmp_path: Path) -> None:
    write(tmp_path, "1.json", a_bench(readme=["slow", "tree"]))
    write(tmp_path, "2.json", a_bench())
    write(tmp_path, "3.json", a_bench(readme=["tree"]))
    table = docs.readme_table(tmp_path).splitlines()
    assert [line.split("`")[3] for line in table[2:5]] == ["tree", "slow", "tree"]
    cells = [cell.strip() for cell in table[2].split("|")[1:-1]]
    assert cells == ["`tiny`", "greedy", "`tree`", "-", "0.50×", "-", "1 of 3", "-", "-"]
    assert table[-1] == "A processor, 2026-01-01. Two prompts."


def test_plain_tables_keep_their_order(tmp_path: Path) -> None:
    for name, title in (("2.json", "Second"), ("1.json", "First")):
        data = {"title": title, "machine": "m", "date": "d", "about": "a"}
        table = {"columns": ["what", "ms"], "rows": [["pass", 3], ["draft", "0.5"]]}
        write(tmp_path, name, {**data, "tables": [table]})
    text = docs.measured_tables(tmp_path)
    assert text.index("## First") < text.index("## Second")
    assert "| pass  | 3   |\n| draft | 0.5 |" in text


def interface(name: str) -> list[str]:
    body = declarations().split(f"export interface {name} {{\n")[1].split("\n}")[0]
    return [line.strip() for line in body.split("\n")]


def test_declarations_contain_every_event_with_all_its_fields():
    for name, cls in EVENTS.items():
        first, *rest = interface(cls.__name__)
        assert first == f'type: "{name}";'
        assert [line.split(":")[0].rstrip("?") for line in rest] == [f.name for f in fields(cls)]


def test_declarations_mark_fields_that_may_be_missing():
    verified = interface("Verified")
    assert "step: number;" in verified
    assert "next?: Node;" in verified  # it has no default, and None is left out of a line
    assert "places?: Place[];" in verified
    started = interface("RunStarted")
    assert "verify_costs?: [number, number][];" in started
    assert "settings: Record<string, any>;" in started
    assert 'export type FinishReason = "stop" | "length" | "cancelled";' in declarations()


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# gpu: a graphics card; hub: files of the hub; network: other files from elsewhere; time: minutes;
# data: files that are not in the project; model: a loaded model; page: one that is served, as tests/ui/test_endpoint.py does; checkout: the project's own tools, which the tests are part of
NEEDS = {"gpu", "hub", "network", "time", "data", "model", "page", "checkout"}
BLOCK = re.compile(
    r"^(?:<!-- needs: ([^>]*?) -->\n+)?```(?:sh|bash|console|shell|powershell)\n(.*?)^```$",
    re.M | re.S,
)
TOOLS = {"pytest", "ruff", "mypy", "venv", "http.server", "playwright"}


@dataclass(frozen=True)
class Block:
    """Shell commands of a document. needs: words of the comment before it, none when the block is run"""

    document: str
    needs: tuple[str, ...]
    commands: tuple[str, ...]


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a document. Commands end at a line end or `&&`, and lose the path of the virtual environment."""
    return [
        Block(
            path.relative_to(ROOT).as_posix(),
            tuple(filter(None, re.split(r"[\s,]+", needs))),
            tuple(
                part.strip()
                for line in re.sub(r"\\\n\s*|\.venv/bin/|\.venv\\Scripts\\", "", body).splitlines()
                if not line.startswith("#")
                for part in line.split(" && ")
                if part.strip()
            ),
        )
        for needs, body in BLOCK.findall(path.read_text(encoding="utf-8"))
    ]


BLOCKS = [block for path in DOCUMENTS for block in blocks_of(path)]
LABELS = [f"{block.document}:{block.commands[0][:40]}" for block in BLOCKS]


def specdemo_arguments(command: str) -> list[str] | None:
    """The arguments that a command gives to specdemo; None when it is another program's."""
    words = shlex.split(command)
    if words[:1] == ["specdemo"]:
        return words[1:]
    if words[:2] == ["python", "app.py"]:
        return ["app", *words[2:]]
    return words[3:] if words[:3] == ["python", "-m", "specdemo"] else None


def check_tool(command: str) -> None:
    """Fails for a command of another program that is not known here, or that names a file that is not there."""
    words = shlex.split(command)
    if words[:3] == ["python", "-m", "pip"]:
        words = words[2:]
    if words[:1] == ["pip"] and words[1] in ("install", "wheel"):
        for option, name in itertools.pairwise(words):
            assert option != "-r" or (ROOT / name).is_file(), f"there is no {name}"
        return
    if words[0] == "docker":
        assert words[1] in ("build", "run")
        known = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
        for option, value in itertools.pairwise(words):
            assert option != "--build-arg" or value.partition("=")[0] in known, command
        return
    if words[0] == "curl":
        assert any(word.startswith("http://127.0.0.1:7860/") for word in words), command
        return
    if words[0] == "npm":
        assert (ROOT / "package-lock.json").is_file()
        scripts = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["scripts"]
        assert words[1:] == ["ci"] or (words[1] == "run" and words[2] in scripts), command
        return
    assert words[0] in {"python", "python3", "py"}, f"unknown command: {command}"
    if (ROOT / words[1]).is_file():
        return
    assert words[1] == "-m", command
    module = words[2]
    known = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    assert module in TOOLS or known.is_file(), f"there is no module {module}"
    for word in words[3:]:
        assert not word.startswith("tests/") or (ROOT / word).exists(), f"there is no {word}"


@pytest.mark.parametrize("block", BLOCKS, ids=LABELS)
def test_the_commands_of_a_block_exist(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(block.needs) <= NEEDS
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    monkeypatch.chdir(tmp_path)
    for command in block.commands:
        arguments = specdemo_arguments(command)
        if arguments is None:
            check_tool(command)
            continue
        for option, name in itertools.pairwise(arguments):  # a reader's own prompts and drafters
            if name.endswith(".jsonl") and not Path(name).exists():
                Path(name).write_text('{"prompt": "hi"}', encoding="utf-8")
            elif option == "--init" or arguments[:2] == ["export", "drafter"]:
                Path(name).mkdir(parents=True, exist_ok=True)
        try:
            parse(arguments)
        except SystemExit as stopped:
            if stopped.code:
                pytest.fail(f"{command}\n{capsys.readouterr().err}")


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if not block.needs], ids=lambda block: block.document
)
def test_the_commands_of_a_block_without_a_mark_run(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    for command in block.commands:
        arguments = specdemo_arguments(command)
        if arguments is not None:
            assert main(arguments) == 0, command
        else:
            assert shlex.split(command)[1:] == ["-m", "tools.docs", "--check"], command
            assert docs.main(["--check"]) == 0


def test_some_blocks_are_run_and_some_are_marked() -> None:
    assert any(not block.needs for block in BLOCKS)
    assert any("network" in block.needs for block in BLOCKS)


INLINE = re.compile(r"`(?:\.venv/bin/)?(python -m specdemo [a-z][^`]*|python app\.py[^`]*)`")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_sentences_name_what_exists(path: Path) -> None:
    """A sentence may leave arguments out; the command and its options are those of the parser."""
    for command in INLINE.findall(path.read_text(encoding="utf-8")):
        words = specdemo_arguments(command) or []
        name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        options = command_parser(name)._option_string_actions
        assert {word for word in words if word.startswith("--")} <= set(options), command


@pytest.mark.parametrize(
    "command", ["rm -rf /", "python -m nowhere", "pip install -r nothing.txt", "python tests.py"]
)
def test_an_unknown_command_is_found(command: str) -> None:
    with pytest.raises(AssertionError):
        check_tool(command)
