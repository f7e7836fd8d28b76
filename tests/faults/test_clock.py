"""The wall clock may jump: durations use a monotonic clock."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

from conftest import PROFILE, run_lane

from specdemo import __file__ as package
from specdemo.drafters.base import Plain
from specdemo.trace.events import RunFinished, Verified


def test_a_run_does_not_notice_that_the_clock_jumps(monkeypatch, target_weights):
    jumps = itertools.cycle((0.0, 4e9, -1.0, 1e9))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    events = run_lane(target_weights, Plain(), [1, 2, 3], max_new_tokens=12)
    steps = [event for event in events if isinstance(event, Verified)]
    elapsed = [step.elapsed_seconds for step in steps]
    assert elapsed == sorted(elapsed)
    assert 0 < elapsed[-1] < 60
    assert isinstance(events[-1], RunFinished)
    assert PROFILE.verify


def test_only_the_age_of_files_is_read_from_the_clock_on_the_wall():
    root = Path(package).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(
            r"\btime\.time\(|\butcnow\(|datetime\.now\(\)", path.read_text(encoding="utf-8")
        )
    }
    assert found <= {"files/store.py", "models/measurements.py"}
