"""The simulation of a class: one run by hand, runs that share, more engines that help, and the table of the documents."""

from __future__ import annotations

import json

import pytest

from specdemo.bench import scaling
from specdemo.bench.scaling import (
    ASSUMED_GPU,
    RECORDED,
    Class,
    Machine,
    Speed,
    main,
    needed,
    phases,
    recorded_machine,
)
from specdemo.config.errors import UserError
from specdemo.trace.metrics import measure
from specdemo.trace.replay import read

SLOW = Machine("slow", 0.01, Speed(0.1, 1.0, 2.0), Speed(0.1, 2.0, 1.5))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(scaling, "WARM_UP", 60.0)
    monkeypatch.setattr(scaling, "HORIZON", 400.0)
    monkeypatch.setattr(scaling, "ANSWER_TOKENS", (40, 40))
    monkeypatch.setattr(scaling, "PROMPT_TOKENS", 50)


def test_one_student_waits_for_nobody():
    alone = sum(phase.steps * phase.seconds for phase in phases(SLOW, 50, 40))
    assert alone == pytest.approx(50 * 0.01 + 40 * 0.1 + 20 * 0.1)
    seen = Class(SLOW, 1, 1).play()
    assert seen.whole == pytest.approx(alone)
    assert seen.first_token[0] == seen.first_token[1] == pytest.approx(0.5)
    assert 0 < seen.busy < 0.3


def test_as_many_runs_as_an_engine_takes_share_what_was_measured(monkeypatch):
    """Eight plain runs that begin together take as long as eight in turn over what they gain."""
    monkeypatch.setattr(Class, "_pause", lambda _class: 100.0)
    same = Machine("even", 1e-5, Speed(0.1, 1.0, 2.0), Speed(1e-5, 40.0, 2.0))
    seen = Class(same, scaling.SLOTS, 1).play()
    assert seen.whole == pytest.approx(8 * 40 * 0.1 / 2.0, rel=1e-3)


def test_more_engines_shorten_the_wait_and_as_few_as_needed_are_found():
    few, many = (Class(SLOW, 60, replicas).play() for replicas in (2, 12))
    assert many.first_token[1] < few.first_token[1]
    assert many.busy < few.busy <= 1.0
    found = needed(SLOW, 60, patience=2.0)
    assert found.first_token[1] <= 2.0
    assert Class(SLOW, 60, found.replicas - 1).play().first_token[1] > 2.0


def test_a_machine_is_what_its_saved_run_says(tmp_path):
    machine = recorded_machine(RECORDED, (3.0, 2.0))
    run = measure(read(RECORDED).trace.lane("speculative"))
    assert machine.drafted.tokens == run.tokens_per_step
    assert machine.drafted.tokens / machine.drafted.seconds == pytest.approx(run.tokens_per_second)
    assert (machine.plain.tokens, machine.plain.together, machine.drafted.together) == (1, 3, 2)
    assert machine.read_seconds > 0
    lines = RECORDED.read_text().split("\n")
    only = tmp_path / "plain.jsonl"
    only.write_text("\n".join(line for line in lines if '"lane":"plain"' in line))
    with pytest.raises(UserError, match="both a plain and a drafted lane"):
        recorded_machine(only)


def test_the_command_writes_the_table_of_the_documents(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scaling, "HORIZON", 120.0)
    out = tmp_path / "scaling.json"
    assert main(["--students", "5", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["about"].startswith("Modelled.")
    assert "assumed" in ASSUMED_GPU.name
    assert [row[1] for row in written["tables"][0]["rows"]] == ["5", "5"]
    assert "first token" in capsys.readouterr().out
    assert main(["--trace", str(tmp_path / "none.jsonl")]) == 1
