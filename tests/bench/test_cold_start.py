"""The page on a CPU Space: a tiny model, and everything else as there."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest
from tiny_files import make_tiny_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux can")


def test_the_page_and_a_recorded_run_are_there_before_the_model_and_nothing_needs_rights():
    from specdemo.bench.cold_start import measure

    with tempfile.TemporaryDirectory() as folder:  # that another user may read
        model = make_tiny_model(Path(folder) / "model")
        for path in (Path(folder), model, *model.iterdir()):
            path.chmod(0o755)
        tiny = {"TARGET": str(model), "DRAFT": "none", "PRECISION": "fp32"}
        found = measure(bare=False, **{f"SPECDEMO_{name}": value for name, value in tiny.items()})
    assert found.state == "loading"
    assert found.page <= found.recorded < found.ready < found.answered
    events = [json.loads(line) for line in found.answer.splitlines()]
    assert [event["type"] for event in events].count("finished") == 2
    assert not [event for event in events if event["type"] in ("notice", "failed")]
