"""The command line's own output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from specdemo.cli import console
from specdemo.cli.parser import main
from specdemo.cli.show import show_metrics
from specdemo.trace.events import SPECULATIVE, ModelInfo, RunStarted, Status, Trace, Verified
from specdemo.trace.replay import read

RECORDED = Path(__file__).parents[2] / "assets" / "runs" / "01-guess-and-check.jsonl"


def told(monkeypatch, capsys):
    """Return the output of `run` for a recorded run, and the steps of its events."""
    events = read(RECORDED).trace.lane(SPECULATIVE).events
    conversation = SimpleNamespace(memory=SimpleNamespace(), run=lambda *_, **__: iter(events))
    monkeypatch.setattr(
        console, "open_studio", lambda _: SimpleNamespace(open=lambda: conversation)
    )
    assert main(["run", "Anything", "--no-baseline"]) == 0
    return capsys.readouterr().out, [event for event in events if isinstance(event, Verified)]


def test_run_into_a_file_writes_the_answer_alone(monkeypatch, capsys):
    text, steps = told(monkeypatch, capsys)
    assert any(node.status is Status.REJECTED for step in steps for node in step.nodes)
    kept = [
        node.text
        for step in steps
        for node in [*(step.nodes[place] for place in step.path), step.next]
        if node
    ]
    assert text.strip() == "".join(kept).strip()


def test_run_in_a_terminal_shows_refused_tokens_struck_through(monkeypatch, capsys):
    terminal = Console(force_terminal=True, width=10_000, highlight=False, color_system="standard")
    monkeypatch.setattr(console, "out", terminal)
    text, steps = told(monkeypatch, capsys)
    refused = [node.text for step in steps for node in step.nodes if node.status is Status.REJECTED]
    words = [one for one in refused if one.strip().isalpha()]
    assert words
    assert all(f"\x1b[9;31m{word}\x1b[0m" in text for word in words)


@pytest.mark.parametrize(
    ("precision", "kernel", "may_differ"),
    [
        ("nf4", "bitsandbytes NF4, compiled pass on AVX2", False),
        ("nf4", "bitsandbytes NF4, dequantise each pass, lean pass", True),
        ("bf16", "PyTorch bfloat16 on CPU, lean pass", True),
        ("fp32", "PyTorch float32 on CPU, lean pass", False),
    ],
)
def test_show_metrics_names_the_pass_and_what_it_means(capsys, precision, kernel, may_differ):
    trace = read(RECORDED).trace
    target = ModelInfo("tiny", precision=precision, kernel=kernel)
    events = (
        replace(event, target=target) if isinstance(event, RunStarted) else event
        for event in trace.events
    )
    show_metrics(Trace(tuple(events)), "measured")
    said = capsys.readouterr().err
    assert kernel in said.replace("\n", " ")
    assert ("near tie" in said.replace("\n", " ")) == may_differ


@pytest.mark.parametrize(
    ("place", "said"), [("not/there.jsonl", "no folder"), (".", "is a folder")]
)
@pytest.mark.parametrize(
    "words",
    ["run Anything --save", "run Anything --online-weights"],
)
def test_a_file_that_cannot_be_written_is_told_before_any_work(
    place, said, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(console, "open_studio", lambda _: pytest.fail("a model was loaded"))
    assert main([*words.split(), str(tmp_path / place)]) == 1
    assert said in capsys.readouterr().err
