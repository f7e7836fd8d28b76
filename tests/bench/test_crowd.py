"""A crowd on a page with tiny models: everybody is answered, nobody sees another's words, and what falls short is said."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from tiny_files import make_tiny_model

from specdemo.bench import crowd as bench
from specdemo.bench.crowd import Secrets
from specdemo.bench.crowd_report import OUTCOMES, Crowd, Memory, Run
from specdemo.cli.commands.app import make_page
from specdemo.config.settings import AppSettings
from specdemo.session.studio import Studio


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[str]:
    """The address of the real page, with a model of two random layers."""
    folder = make_tiny_model(tmp_path_factory.mktemp("crowd") / "model")
    config = folder / "config.json"
    facts = json.loads(config.read_text()) | {"max_position_embeddings": 2048}
    config.write_text(json.dumps(facts))
    settings = AppSettings(target=str(folder), draft=str(folder), device="cpu", precision="fp32")
    studio = Studio(settings)
    served = make_page(studio)
    _, url, _ = served.launch(
        server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, inbrowser=False
    )
    yield url
    served.close()


def test_a_crowd_is_answered_and_sees_only_its_own(page, monkeypatch):
    for name, value in {"PAUSE_SECONDS": (0.1, 0.4), "ENDING_SECONDS": (0.0, 0.5)}.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(bench, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(bench, "LENGTHS", (8, 16))
    crowd = bench.attend(page, 6, 6.0, seed=3, pid=os.getpid())
    assert bench.failures(crowd) == []
    assert len(crowd.runs) == sum(map(crowd.count, OUTCOMES))
    assert {run.visitor for run in crowd.runs} == set(range(6))


def test_a_word_of_another_visitor_is_found_though_it_is_several_tokens():
    secrets = Secrets(3, seed=1)
    mine, other, _ = secrets.words
    node = {"text": other[:4]}
    step = {"type": "verified", "nodes": [{"text": "x"}, node], "path": [1], "next": {"text": other[4:]}}  # fmt: skip
    seen = bench.shown(json.dumps(step))
    assert secrets.leaks(0, mine) == []
    assert secrets.leaks(0, seen) == [(1, 0)]
    assert secrets.leaks(1, seen) == []


@pytest.mark.parametrize(
    ("lines", "stopped", "expected"),
    [
        ([{"type": "finished", "reason": "length"}], False, "finished"),
        ([{"type": "finished", "reason": "length"}], True, "finished"),
        ([{"type": "finished", "reason": "cancelled"}], True, "stopped"),
        ([], True, "stopped"),
        ([], False, "failed"),
        ([{"type": "notice", "message": "It broke."}], False, "failed"),
    ],
)
def test_how_a_run_ended_is_read_from_its_lines(lines, stopped, expected):
    text = "\n".join(json.dumps(line) for line in [{"type": "open"}, *lines])
    assert bench.outcome(text, stopped=stopped)[0] == expected


def test_what_falls_short_is_said():
    good = Run(0, "auto", "finished", 1.0, 1.2, 3.0)
    looks = [Memory(float(t), 1000.0 + t, 20) for t in range(0, 600, 10)]
    crowd = Crowd(2, 600.0, [good, good], memory=looks, fresh=good)
    assert crowd.grown() == pytest.approx(1.26, abs=0.02)
    assert len(bench.failures(crowd)) == 1
    crowd.memory = [Memory(look.seconds, 1000.0, 20) for look in looks]
    assert bench.failures(crowd) == []
    crowd.runs.append(Run(1, "tree", "failed", problem="It broke."))
    crowd.leaks, crowd.tracebacks, crowd.fresh = [(0, 1)], 2, None
    assert len(bench.failures(crowd)) == 4
    table = dict(bench.rows(crowd))
    assert table["runs"] == "3: 2 finished, 0 stopped, 0 dropped, 1 failed"
    assert table["wait for the turn"] == "1.0, 1.0, 1.0 s"


def test_the_figures_are_a_measurement_of_the_documents():
    crowd = Crowd(2, 6.0, [Run(0, "auto", "finished", 1.0, 1.2, 3.0)], memory=[Memory(0.1, 900, 9)])
    found = json.loads(json.dumps(bench.measurement(crowd, "the command")))
    assert found["tables"][0]["rows"][0] == ["visitors, minutes", "2, 0.1"]
    assert found["crowd"]["memory"] == [{"seconds": 0.1, "megabytes": 900, "threads": 9}]
