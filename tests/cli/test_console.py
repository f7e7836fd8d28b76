"""Progress of long work, on a terminal and into a file."""

import io
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from tiny_files import make_tiny_model
from tiny_gguf import tiny_gguf

from specdemo.cli import console
from specdemo.config.settings import AppSettings
from specdemo.files.found import FoundModel
from specdemo.files.progress import Progress
from specdemo.files.sources import ModelFiles
from specdemo.models.outlook import Outlook
from specdemo.trace.events import ModelInfo


@pytest.fixture
def written(monkeypatch):
    """Return the lines on standard error if it is a file."""
    text = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=text, width=40))
    return text


def test_a_file_gets_a_line_a_prompt(written):
    with console.reporting() as report:
        for index in range(3):
            report(
                Progress("bench", index / 3, f"prompt [{index}] of a suite with quite a long name")
            )
            assert len(written.getvalue().splitlines()) == index + 1  # immediately, not at the end
    assert written.getvalue().splitlines()[1] == (
        "bench 33% prompt [1] of a suite with quite a long name"
    )


def test_constant_progress_gets_a_line_now_and_then(written, monkeypatch):
    clock = iter(range(0, 1000, 1))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with console.reporting() as report:
        for index in range(100):
            report(Progress("download", index / 100, f"{index} MB of 100 MB"))
    assert 5 <= len(written.getvalue().splitlines()) <= 15


def test_a_report_that_says_the_same_again_is_no_new_line(written):
    with console.reporting() as report:
        for _ in range(5):
            report(Progress("load", None, "model"))
    assert written.getvalue().splitlines() == ["load model"]


@pytest.mark.parametrize("terminal", [True, False])
def test_write_puts_a_result_above_the_bars_of_its_terminal_which_go_at_the_end(
    terminal, monkeypatch, capsys
):
    text = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=text, force_terminal=True, width=80))
    monkeypatch.setattr(console, "out", Console(force_terminal=terminal, width=80))
    with console.reporting() as report:
        report(Progress("answer", 0.5, "1 of 2 prompts"))
        console.write("an answer")
    shown = text.getvalue()
    above = re.search(r"\x1b\[2K(?:\x1b\[1A)?an answer\n.*answer 1 of 2", shown, re.DOTALL)
    assert bool(above) is terminal
    assert "answer 1 of 2" in shown
    assert shown.endswith("\x1b[2K")  # the line of the bar is erased
    assert ("an answer\n" in capsys.readouterr().out) is not terminal


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_draft_model_on_this_machine_is_proposed_for_a_target_without_a_drafter(
    is_folder, tmp_path, monkeypatch
):
    folder = make_tiny_model(tmp_path / "large", 256, 512)
    name = str(folder if is_folder else tiny_gguf(tmp_path / "large.gguf", "llama"))
    small = FoundModel("owner/small", "hub cache", make_tiny_model(tmp_path / "small"))
    monkeypatch.setattr("specdemo.files.found.found_models", lambda _: [small])
    target = SimpleNamespace(files=ModelFiles(folder, "large", ""), known="large")
    studio = SimpleNamespace(
        pair=SimpleNamespace(target=target, drafts={"copy": None}),
        settings=AppSettings(target=name), target=ModelInfo("large"),
        loaded=SimpleNamespace(remark="completes"),
        predictor=lambda _: lambda _: Outlook(0, 0, 0, 10.0, 15.0),
    )  # fmt: skip
    said = console._about_target(studio)
    assert said.startswith("large is a model without a chat template")
    assert "about 1.5 times as fast as plain decoding, modelled" in said
    assert said.endswith(f"run --target {name} --draft owner/small PROMPT")
    studio.settings = replace(studio.settings, draft="none")
    assert "owner/small" not in console._about_target(studio)


@pytest.mark.parametrize("drafts", [{}, {"feature": None}])
def test_a_recognised_file_has_a_drafter_only_if_one_ships(drafts, tmp_path):
    path = tiny_gguf(tmp_path / "mine.gguf", "qwen2")
    target = SimpleNamespace(
        files=ModelFiles(tmp_path, "mine", ""), known="qwen2.5-coder-0.5b-instruct"
    )
    studio = SimpleNamespace(
        pair=SimpleNamespace(target=target, drafts=drafts),
        settings=AppSettings(target=str(path)), target=ModelInfo("mine"),
        loaded=SimpleNamespace(remark=""),
    )  # fmt: skip
    used = ": its drafter is used" if drafts else ""
    said = f"mine has the norms of qwen2.5-coder-0.5b-instruct{used}."
    assert console._about_target(studio) == said
