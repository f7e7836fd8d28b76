"""Every command in the documents exists, and those that are cheap are run.

A fenced block of shell commands is run in a folder of its own, one command after the other, unless a comment before
it lists its requirements: `<!-- needs: network -->`. The commands of such a block are only parsed, by the real parser.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from specdemo.cli.parser import COMMANDS, command_parser, main, parse
from tools import docs

ROOT = Path(__file__).resolve().parents[2]
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


def blocks_of(name: str, text: str) -> list[Block]:
    """The blocks of a document, a command for each part between line ends and `&&`."""
    return [
        Block(
            name,
            tuple(filter(None, re.split(r"[\s,]+", needs))),
            tuple(
                part.strip()
                for line in re.sub(r"\\\n\s*", "", body).splitlines()
                if not line.startswith("#")
                for part in line.split(" && ")
                if part.strip()
            ),
        )
        for needs, body in BLOCK.findall(text)
    ]


BLOCKS = [
    block
    for path in DOCUMENTS
    for block in blocks_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
]
LABELS = [f"{block.document}:{block.commands[0][:40]}" for block in BLOCKS]


def specdemo_arguments(command: str) -> list[str] | None:
    """The arguments that a command gives to specdemo; None when it is another program's."""
    words = shlex.split(command.replace(".venv\\Scripts\\", "").replace(".venv/bin/", ""))
    if words[:1] == ["specdemo"]:
        return words[1:]
    if words[:2] == ["python", "app.py"]:
        return ["app", *words[2:]]
    return words[3:] if words[:3] == ["python", "-m", "specdemo"] else None


def check_tool(command: str) -> None:
    """Fails for a command of another program that is not known here, or that names a file that is not there."""
    words = shlex.split(command.replace(".venv\\Scripts\\", "").replace(".venv/bin/", ""))
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
def test_the_commands_of_a_block_exist(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(block.needs) <= NEEDS
    for command in block.commands:
        arguments = specdemo_arguments(command)
        if arguments is None:
            check_tool(command)
            continue
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


def test_a_block_tells_its_needs_and_its_commands() -> None:
    text = "<!-- needs: time, data -->\n```sh\npython -m specdemo run a && python app.py\n```\n\n```sh\nspecdemo models\n```\n"
    first, second = blocks_of("a.md", text)
    assert first.needs == ("time", "data")
    assert first.commands == ("python -m specdemo run a", "python app.py")
    assert second == Block("a.md", (), ("specdemo models",))


@pytest.mark.parametrize(
    "command", ["rm -rf /", "python -m nowhere", "pip install -r nothing.txt", "python tests.py"]
)
def test_an_unknown_command_is_found(command: str) -> None:
    with pytest.raises(AssertionError):
        check_tool(command)
